"""llama.cpp's server, as recorded from a running one (2026-10)."""

from collections.abc import Iterator
from typing import ClassVar

from typing_extensions import override

from kimi_agent.testing.engines.dialect import Dialect
from kimi_agent.testing.generation import CallText, Generation, Kind
from kimi_agent.testing.json_values import JsonObject, as_list, as_object
from kimi_agent.testing.replies import Reply

COMMON_HEADERS = {"server": "llama.cpp", "access-control-allow-origin": ""}


class LlamaCpp(Dialect):
    """Always parses; `timings` on the last chunk; any model name."""

    name = "llama.cpp"
    json_headers: ClassVar[dict[str, str]] = {
        **COMMON_HEADERS,
        "content-type": "application/json; charset=utf-8",
    }
    stream_headers: ClassVar[dict[str, str]] = {
        **COMMON_HEADERS,
        "x-accel-buffering": "no",
        "content-type": "text/event-stream",
    }
    has_parser_flag: ClassVar[bool] = False
    choice_none_parses: ClassVar[bool] = False
    forced_call_has_text: ClassVar[bool] = True
    obeys_parallel: ClassVar[bool] = True
    open_paths: ClassVar[frozenset[str]] = frozenset({"/health", "/v1/models"})

    @override
    def health(self) -> Reply:
        return self.json({"status": "ok"})

    @override
    def models(self, created: int) -> Reply:
        entry = {
            "id": self.settings.model,
            "aliases": [self.settings.model],
            "tags": [],
            "object": "model",
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "created": created,
            "owned_by": "llamacpp",
            "meta": {"n_ctx": self.settings.context_length, "n_ctx_train": self.settings.context_length},
        }
        listed = {
            "name": self.settings.model,
            "model": self.settings.model,
            "modified_at": "",
            "size": "",
            "digest": "",
            "type": "model",
            "description": "",
            "tags": [""],
            "capabilities": ["completion"],
            "parameters": "",
            "details": {"parent_model": "", "format": "gguf", "family": "", "families": [""]},
        }
        return self.json({"models": [listed], "object": "list", "data": [entry]})

    @override
    def error(
        self, status: int, message: str, kind: str = "invalid_request_error", param: str | None = None
    ) -> Reply:
        return self.json({"error": {"code": status, "message": message, "type": kind}}, status)

    @override
    def unauthorized(self) -> Reply:
        return self.error(401, "Invalid API Key", "authentication_error")

    @override
    def not_found(self) -> Reply:
        return self.json(
            {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}, 404
        )

    @override
    def wrong_method(self, allowed: str) -> Reply:
        return self.not_found()

    @override
    def refusal(self, request: JsonObject, *, chat: bool) -> Reply | None:
        field = "messages" if chat else "prompt"
        if field not in request:
            return self.error(400, f"'{field}' is required")
        count = request.get("n")
        if isinstance(count, int) and count != 1:
            return self.error(400, f"Field 'n': Value must be between 1 <= value <= 1, but got {count}")
        for message in map(as_object, as_list(request.get("messages"))):
            for call in map(as_object, as_list(message.get("tool_calls"))):
                if self.unreadable(as_object(call.get("function")).get("arguments")):
                    return self.error(500, "Failed to parse tool call arguments as JSON", "server_error")
        return None

    @override
    def too_long(self, prompt_tokens: int) -> Reply:
        limit = self.settings.context_length
        message = (
            f"request ({prompt_tokens} tokens) exceeds the available context size ({limit} tokens), "
            "try increasing it"
        )
        fields = {"code": 400, "message": message, "type": "exceed_context_size_error"}
        return self.json({"error": {**fields, "n_prompt_tokens": prompt_tokens, "n_ctx": limit}}, 400)

    @override
    def usage(self, generation: Generation, completion_tokens: int | None = None) -> JsonObject:
        counts = super().usage(generation, completion_tokens)
        return {
            "completion_tokens": counts["completion_tokens"],
            "prompt_tokens": counts["prompt_tokens"],
            "total_tokens": counts["total_tokens"],
            "prompt_tokens_details": {"cached_tokens": 0},
        }

    @override
    def chat(self, generation: Generation) -> JsonObject:
        message: JsonObject = {"role": "assistant", "content": generation.text(Kind.CONTENT)}
        if reasoning := generation.text(Kind.REASONING):
            message["reasoning_content"] = reasoning
        # A call that was cut is passed on with the arguments it has, unless it has none yet.
        if calls := [whole_call(call) for call in generation.calls() if call.arguments]:
            message["tool_calls"] = calls
        choice = {"finish_reason": self.finish_reason(generation), "index": 0, "message": message}
        return self._counted(generation, self._envelope(generation, "chat.completion", [choice]))

    @override
    def text(self, generation: Generation) -> JsonObject:
        choice = {**text_choice(generation.raw), "finish_reason": generation.finish}
        return self._counted(generation, self._envelope(generation, "text_completion", [choice]))

    @override
    def chat_chunks(self, generation: Generation) -> Iterator[JsonObject]:
        yield self._chunk(generation, {"role": "assistant", "content": None}, None)
        for delta, _ in self.deltas(generation):
            yield self._chunk(generation, delta, None)
        last = self._chunk(generation, {}, self.finish_reason(generation))
        if generation.include_usage:
            yield last
            last = {
                **self._envelope(generation, "chat.completion.chunk", []),
                "usage": self.usage(generation),
            }
        yield {**last, "timings": timings(generation)}

    @override
    def text_chunks(self, generation: Generation) -> Iterator[JsonObject]:
        for text in (*(token.text for token in generation.tokens), ""):
            yield self._envelope(generation, "text_completion", [text_choice(text)])
        ending = {**text_choice(""), "finish_reason": generation.finish}
        yield self._counted(generation, self._envelope(generation, "text_completion", [ending]))

    def _chunk(self, generation: Generation, delta: JsonObject, reason: str | None) -> JsonObject:
        choice = {"finish_reason": reason, "index": 0, "delta": delta}
        return self._envelope(generation, "chat.completion.chunk", [choice])

    def _envelope(self, generation: Generation, kind: str, choices: list[JsonObject]) -> JsonObject:
        fields: JsonObject = {
            "choices": choices,
            "created": generation.created,
            "model": self.settings.model,
            "system_fingerprint": "b0-simulated",
            "object": kind,
            "id": f"chatcmpl-{generation.id}",
        }
        if kind == "chat.completion.chunk":  # the one kind that has the id in front
            order = ("choices", "created", "id", "model", "system_fingerprint", "object")
            return {name: fields[name] for name in order}
        return fields

    def _counted(self, generation: Generation, reply: JsonObject) -> JsonObject:
        """`reply` with what was used, which stands before the id."""
        reply_id = reply.pop("id")
        return {**reply, "usage": self.usage(generation), "id": reply_id, "timings": timings(generation)}


def text_choice(text: str) -> JsonObject:
    """A piece of raw text."""
    return {"text": text, "index": 0, "logprobs": None, "finish_reason": None}


def whole_call(call: CallText) -> JsonObject:
    """A call of a whole reply, id last as llama.cpp has it."""
    name = call.header.removeprefix("functions.").rsplit(":", 1)[0]
    return {"type": "function", "function": {"name": name, "arguments": call.arguments}, "id": call.header}


def timings(generation: Generation) -> JsonObject:
    """Counts as they are; nothing is timed here, so a millisecond a token stands for it."""
    prompt, emitted = generation.prompt_tokens, generation.completion_tokens
    return {
        "cache_n": 0,
        "prompt_n": prompt,
        "prompt_ms": float(prompt),
        "prompt_per_token_ms": 1.0,
        "prompt_per_second": 1000.0,
        "predicted_n": emitted,
        "predicted_ms": float(emitted),
        "predicted_per_token_ms": 1.0,
        "predicted_per_second": 1000.0,
    }
