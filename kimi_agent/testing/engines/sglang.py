"""SGLang 0.5 with `--tool-call-parser kimi_k2`, as recorded from a running server."""

from collections.abc import Iterator
from typing import ClassVar

from typing_extensions import override

from kimi_agent.testing.conversation import choice_of, offered_tools
from kimi_agent.testing.engines.dialect import Dialect
from kimi_agent.testing.engines.vllm import IM_END
from kimi_agent.testing.generation import CallText, Generation, Kind, Token
from kimi_agent.testing.json_values import JsonObject, as_count, as_list, as_object
from kimi_agent.testing.k2_prompt import ARGUMENT_BEGIN
from kimi_agent.testing.replies import Reply


class Sglang(Dialect):
    """Flat errors, explicit nulls in every delta, any model name."""

    name = "sglang"
    choice_none_hides_tools: ClassVar[bool] = True

    @property
    @override
    def default_model(self) -> str:
        return "default"

    @override
    def models(self, created: int) -> Reply:
        model = self.settings.model
        entry = {
            "id": model,
            "object": "model",
            "created": created,
            "owned_by": "sglang",
            "root": model,
            "parent": None,
            "max_model_len": self.settings.context_length,
        }
        return self.json({"object": "list", "data": [entry]})

    @override
    def error(
        self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None
    ) -> Reply:
        return self.json(
            {"object": "error", "message": message, "type": kind, "param": param, "code": status}, status
        )

    @override
    def refusal(self, request: JsonObject, *, chat: bool) -> Reply | None:
        field = "messages" if chat else "prompt"
        if field not in request:
            found = f"{{'type': 'missing', 'loc': ('body', '{field}'), 'msg': 'Field required'}}"
            return self.error(400, f"1 validation error:\n  {found}", "Bad Request")
        wanted = as_count(request.get("max_completion_tokens")) or as_count(request.get("max_tokens")) or 0
        if wanted > (limit := self.settings.context_length):
            message = f"max_completion_tokens is too large: {wanted}."
            return self.error(400, f"{message}This model supports at most {limit} completion tokens.")
        return self._tools_refusal(request) if chat else None

    def _tools_refusal(self, request: JsonObject) -> Reply | None:
        names = {tool.name for tool in offered_tools(request.get("tools"))}
        choice, named = choice_of(request.get("tool_choice"))
        if choice == "required" and not names:
            return self.error(400, "Tools cannot be empty if tool choice is set to required.")
        if named is not None and named not in names:
            return self.error(400, f"Tool '{named}' not found in tools list.")
        for message in map(as_object, as_list(request.get("messages"))):
            for call in map(as_object, as_list(message.get("tool_calls"))):
                if self.unreadable(as_object(call.get("function")).get("arguments")):
                    return self.error(
                        400, "Assistant tool call function.arguments must be valid JSON.", "BadRequest"
                    )
        return None

    @override
    def too_long(self, prompt_tokens: int) -> Reply:
        limit = self.settings.context_length
        return self.error(
            400,
            f"The input ({prompt_tokens} tokens) is longer than the model's context length ({limit} tokens).",
        )

    @override
    def usage(self, generation: Generation, completion_tokens: int | None = None) -> JsonObject:
        reasoning = generation.reasoning_tokens
        return {
            **super().usage(generation, completion_tokens),
            "prompt_tokens_details": None,
            "reasoning_tokens": reasoning,
            "completion_tokens_details": {"reasoning_tokens": reasoning} if reasoning else None,
        }

    @override
    def chat(self, generation: Generation) -> JsonObject:
        message: JsonObject = {
            "role": "assistant",
            "content": generation.text(Kind.CONTENT),
            "reasoning_content": generation.text(Kind.REASONING) or None,
        }
        # A call that the token limit cut is not there at all.
        calls = [call for call in generation.calls() if call.closed]
        if calls:
            message["tool_calls"] = [
                {**self.call_head(index, call.header, call.arguments), "index": index}
                for index, call in enumerate(calls)
            ]
        reason = self.finish_reason(generation)
        choice: JsonObject = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": reason,
            "matched_stop": matched_stop(generation) if reason == "stop" else None,
        }
        return {
            **self._envelope(generation, "chat.completion", [choice]),
            "usage": self.usage(generation),
            "metadata": metadata(generation),
        }

    @override
    def text(self, generation: Generation) -> JsonObject:
        choice = {**text_choice(generation.raw), **self._ending(generation, generation.finish)}
        return {
            **self._envelope(generation, "text_completion", [choice]),
            "usage": {**self.usage(generation), "reasoning_tokens": 0, "completion_tokens_details": None},
            "metadata": metadata(generation),
        }

    @override
    def chat_chunks(self, generation: Generation) -> Iterator[JsonObject]:
        yield self._chunk(generation, {"reasoning_content": None, "role": "assistant", "content": ""})
        for delta, count in self.deltas(generation):
            chunk = self._chunk(generation, delta)
            if generation.continuous_usage:
                chunk["usage"] = self.usage(generation, count)
            elif "role" in delta:  # only the path that parses for calls fills in the nulls
                chunk["usage"] = None
            yield chunk
        last = self._chunk(generation, {"reasoning_content": None})
        last["choices"][0].update(self._ending(generation, self.finish_reason(generation)))
        yield last
        if generation.include_usage:
            yield {**last, "choices": [], "usage": self.usage(generation)}

    @override
    def text_chunks(self, generation: Generation) -> Iterator[JsonObject]:
        for token in generation.tokens:
            yield {**self._envelope(generation, "text_completion", [text_choice(token.text)]), "usage": None}
        ending = {**text_choice(""), **self._ending(generation, generation.finish)}
        yield {**self._envelope(generation, "text_completion", [ending]), "usage": None}
        if generation.include_usage:
            usage = {**Dialect.usage(self, generation), "reasoning_tokens": 0}
            yield {**self._envelope(generation, "text_completion", []), "usage": usage}

    @override
    def deltas(self, generation: Generation) -> Iterator[tuple[JsonObject, int]]:
        parses = generation.offered_tools and self.settings.parser
        for delta, count in super().deltas(generation):
            if "content" not in delta or "role" in delta:
                yield delta, count
            elif parses:
                yield {"role": None, **delta, "reasoning_content": None}, count
            else:
                yield {"reasoning_content": None, **delta}, count

    @override
    def call_deltas(self, token: Token, call: CallText, begun: set[int]) -> Iterator[JsonObject]:
        if token.text == ARGUMENT_BEGIN and token.kind is Kind.MARKER:
            yield self.call_delta(self.call_head(token.call, call.header, ""))
        elif token.kind is Kind.ARGUMENTS:
            function = {"name": None, "arguments": token.text}
            yield self.call_delta({"id": None, "index": token.call, "type": "function", "function": function})

    @override
    def call_delta(self, call: JsonObject) -> JsonObject:
        return {"role": None, "content": None, "reasoning_content": None, "tool_calls": [call]}

    @override
    def call_head(self, index: int, call_id: str, arguments: str) -> JsonObject:
        head = super().call_head(index, call_id, arguments)
        return {"id": head["id"], "index": index, "type": "function", "function": head["function"]}

    def _ending(self, generation: Generation, reason: str) -> JsonObject:
        return {"finish_reason": reason, "matched_stop": matched_stop(generation)}

    def _chunk(self, generation: Generation, delta: JsonObject) -> JsonObject:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, "matched_stop": None}
        return self._envelope(generation, "chat.completion.chunk", [choice])

    def _envelope(self, generation: Generation, kind: str, choices: list[JsonObject]) -> JsonObject:
        return {
            "id": generation.id,
            "object": kind,
            "created": generation.created,
            "model": generation.model,
            "choices": choices,
        }


def matched_stop(generation: Generation) -> int | str | None:
    """What SGLang says ended the reply."""
    return None if generation.finish == "length" else generation.stop_string or IM_END


def text_choice(text: str) -> JsonObject:
    """A streamed piece of raw text."""
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": None, "matched_stop": None}


def metadata(generation: Generation) -> JsonObject:
    """The weights a whole reply was made with."""
    span = {"version": "default", "start": 0, "end": generation.completion_tokens}
    return {"weight_version": "default", "weight_versions": [span]}
