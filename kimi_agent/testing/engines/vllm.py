"""vLLM 0.32 with `--tool-call-parser kimi_k2`, as recorded from a running server."""

import uuid
from collections.abc import Iterator
from typing import ClassVar

from typing_extensions import override

from kimi_agent.testing.conversation import choice_of, offered_tools
from kimi_agent.testing.engines.dialect import Dialect
from kimi_agent.testing.generation import CallText, Generation, Kind
from kimi_agent.testing.json_values import JsonObject, as_count
from kimi_agent.testing.k2_prompt import name_in_id
from kimi_agent.testing.replies import Reply

IM_END = 163586
"""Token id of `<|im_end|>`, which vLLM reports as the stop reason."""

FINGERPRINT = "vllm-0.32.0-simulated"


class Vllm(Dialect):
    """Reasoning in `reasoning`; a call cut by the token limit comes out whole with `{}`."""

    name = "vllm"
    reasoning_field: ClassVar[str] = "reasoning"
    obeys_parallel: ClassVar[bool] = True

    @override
    def version(self) -> Reply:
        return self.json({"version": "0.32.0"})

    @override
    def models(self, created: int) -> Reply:
        model = self.settings.model
        permission = {
            "id": "modelperm-simulated",
            "object": "model_permission",
            "created": created,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        entry = {
            "id": model,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": model,
            "parent": None,
            "max_model_len": self.settings.context_length,
            "permission": [permission],
        }
        return self.json({"object": "list", "data": [entry]})

    @override
    def error(
        self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None
    ) -> Reply:
        return self.json(
            {"error": {"message": message, "type": kind, "param": param, "code": status}}, status
        )

    @override
    def refusal(self, request: JsonObject, *, chat: bool) -> Reply | None:
        field = "messages" if chat else "prompt"
        if field not in request:
            found = f"{{'type': 'missing', 'loc': 'body.{field}', 'msg': 'Field required'}}"
            return self.error(400, f"1 validation error:\n  {found}", "Bad Request", f"body.{field}")
        model = request.get("model")
        if model is not None and model != self.settings.model:
            # A model known only by its path is not named.
            aliases = "<path>" if "/" in self.settings.model else f"{self.settings.model}."
            message = f"The model `{model}` does not exist. Valid aliases: {aliases}"
            return self.error(404, message, "NotFoundError", "model")
        if chat and (refused := self._tools_refusal(request)):
            return refused
        wanted = as_count(request.get("max_completion_tokens")) or as_count(request.get("max_tokens")) or 0
        if wanted > (limit := self.settings.context_length):
            message = (
                f"max_tokens={wanted} cannot be greater than max_model_len={limit}. Please request fewer "
                f"output tokens. (parameter=max_tokens, value={wanted})"
            )
            return self.error(400, message, param="max_tokens")
        return None

    def _tools_refusal(self, request: JsonObject) -> Reply | None:
        tools, choice = request.get("tools"), request.get("tool_choice")
        if tools == []:
            message = (
                "`tools` must not be an empty array. Either provide at least one tool or omit the field "
                "entirely. (parameter=tools)"
            )
            return self.error(400, message, param="tools")
        if choice not in (None, "none") and not tools:
            message = "When using `tool_choice`, `tools` must be set. (parameter=tool_choice)"
            return self.error(400, message, param="tool_choice")
        named = choice_of(choice)[1]
        if named is not None and named not in {tool.name for tool in offered_tools(tools)}:
            message = "The tool specified in `tool_choice` does not match any of the specified `tools`"
            return self.error(400, f"{message} (parameter=tool_choice)", param="tool_choice")
        if not tools or self.settings.parser or choice == "none":
            return None
        if choice == "required" or named is not None:
            forced = 'tool_choice="required"' if named is None else f'tool_choice=function "{named}"'
            return self.error(400, f"{forced} requires --tool-call-parser to be set")
        flags = "--enable-auto-tool-choice and --tool-call-parser"
        return self.error(400, f'"auto" tool choice requires {flags} to be set')

    @override
    def too_long(self, prompt_tokens: int) -> Reply:
        # vLLM stops counting one past the limit.
        limit = self.settings.context_length
        message = (
            f"This model's maximum context length is {limit} tokens. However, your prompt contains at "
            f"least {limit + 1} input tokens, which exceeds this limit even without any output tokens. "
            f"Please reduce the length of the input prompt. (parameter=input_tokens, value={limit + 1})"
        )
        return self.error(400, message, param="input_tokens")

    @override
    def finish_reason(self, generation: Generation) -> str:
        reason = super().finish_reason(generation)
        return "stop" if generation.choice == "named" and reason == "tool_calls" else reason

    @override
    def chat(self, generation: Generation) -> JsonObject:
        calls = [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": call.arguments or "{}"},
            }
            for call in generation.calls()
            if call.header
            for call_id, name in [seen_id(call)]
        ]
        forced = generation.choice in {"required", "named"}
        message: JsonObject = {
            "role": "assistant",
            "content": generation.text(Kind.CONTENT) or ("" if forced else None),
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            **({"tool_calls": calls} if calls else {}),
            "reasoning": generation.text(Kind.REASONING) or None,
        }
        # Whole replies say `tool_calls` even of a call that the token limit cut.
        cut_call = bool(calls) and generation.finish == "length"
        choice: JsonObject = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": "tool_calls" if cut_call else self.finish_reason(generation),
            "stop_reason": stop_reason(generation),
            "token_ids": None,
            "routed_experts": None,
        }
        return {
            "id": f"chatcmpl-{generation.id[:16]}",
            "object": "chat.completion",
            "created": generation.created,
            "model": generation.model,
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": {
                **self.usage(generation),
                "prompt_tokens_details": None,
                "completion_tokens_details": self._reasoning_details(generation),
            },
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "prompt_text": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }

    def _reasoning_details(self, generation: Generation) -> JsonObject | None:
        reasoning = generation.reasoning_tokens
        return {"reasoning_tokens": reasoning} if reasoning else None

    @override
    def text(self, generation: Generation) -> JsonObject:
        choice: JsonObject = {
            "index": 0,
            "text": generation.raw,
            "logprobs": None,
            "finish_reason": generation.finish,
            "stop_reason": stop_reason(generation),
            "token_ids": None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "routed_experts": None,
        }
        return {
            "id": f"cmpl-{generation.id[:16]}",
            "object": "text_completion",
            "created": generation.created,
            "model": generation.model,
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": {
                **self.usage(generation),
                "prompt_tokens_details": None,
                "completion_tokens_details": None,
            },
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }

    @override
    def chat_chunks(self, generation: Generation) -> Iterator[JsonObject]:
        first: JsonObject = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}
        yield {
            **self._chunk(generation, [{**first, "finish_reason": None}], 0),
            "prompt_token_ids": None,
            "prompt_text": None,
        }
        # The finish reason rides on the last delta of a reply that was cut, else it has a chunk of its own.
        held: tuple[JsonObject, int] | None = None
        for following in self._all_deltas(generation):
            if held is not None:
                yield self._chunk(generation, [delta_choice(held[0])], held[1])
            held = following
        last: JsonObject = {} if self.settings.parser else {"content": ""}
        if held is not None and generation.finish == "stop":
            yield self._chunk(generation, [delta_choice(held[0])], held[1])
        elif held is not None:
            last = held[0]
        choice: JsonObject = {
            "index": 0,
            "delta": last,
            "logprobs": None,
            "finish_reason": self.finish_reason(generation),
            "stop_reason": stop_reason(generation),
            "token_ids": None,
        }
        yield from self._ended(generation, self._chunk(generation, [choice], generation.completion_tokens))

    def _all_deltas(self, generation: Generation) -> Iterator[tuple[JsonObject, int]]:
        yield from self.deltas(generation)
        calls = generation.calls()
        if calls and calls[-1].header and not calls[-1].arguments:
            call_id, name = seen_id(calls[-1])
            yield (
                self.call_delta(call_fragment(len(calls) - 1, call_id, name, "")),
                generation.completion_tokens,
            )

    @override
    def call_head(self, index: int, call_id: str, arguments: str) -> JsonObject:
        return call_fragment(index, call_id, name_in_id(call_id), arguments)

    @override
    def text_chunks(self, generation: Generation) -> Iterator[JsonObject]:
        for count, token in enumerate(generation.tokens, start=1):
            yield self._chunk(generation, [text_choice(token.text)], count)
        ending = {"finish_reason": generation.finish, "stop_reason": stop_reason(generation)}
        yield from self._ended(
            generation, self._chunk(generation, [{**text_choice(""), **ending}], generation.completion_tokens)
        )

    def _chunk(self, generation: Generation, choices: list[JsonObject], completion_tokens: int) -> JsonObject:
        is_text = bool(choices) and "text" in choices[0]
        chunk: JsonObject = {
            "id": f"{'cmpl' if is_text else 'chatcmpl'}-{generation.id[:16]}",
            "object": "text_completion" if is_text else "chat.completion.chunk",
            "created": generation.created,
            "model": generation.model,
            "choices": choices,
        }
        if generation.continuous_usage:
            details = self._reasoning_details(generation)
            chunk["usage"] = {
                **self.usage(generation, completion_tokens),
                "completion_tokens_details": details,
            }
        return chunk

    def _ended(self, generation: Generation, last: JsonObject) -> Iterator[JsonObject]:
        if not generation.include_usage:
            yield {**last, "system_fingerprint": FINGERPRINT}
            return
        yield last
        usage = self.usage(generation)
        is_chat = last["object"] == "chat.completion.chunk"
        if is_chat and (details := self._reasoning_details(generation)):
            usage["completion_tokens_details"] = details
        yield {**last, "choices": [], "usage": usage, "system_fingerprint": FINGERPRINT}


def seen_id(call: CallText) -> tuple[str, str]:
    """Id and name vLLM makes of a header; one that was cut gets an invented id and its text as name."""
    if call.has_arguments:
        return call.header, name_in_id(call.header)
    return f"chatcmpl-tool-{uuid.uuid4().hex[:16]}", call.header


def stop_reason(generation: Generation) -> int | str | None:
    """What vLLM says ended the reply."""
    return None if generation.finish == "length" else generation.stop_string or IM_END


def delta_choice(delta: JsonObject) -> JsonObject:
    """A streamed choice that goes on."""
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, "token_ids": None}


def text_choice(text: str) -> JsonObject:
    """A streamed piece of raw text."""
    return {
        "index": 0,
        "text": text,
        "logprobs": None,
        "finish_reason": None,
        "stop_reason": None,
        "prompt_token_ids": None,
        "token_ids": None,
    }


def call_fragment(index: int, call_id: str, name: str, arguments: str) -> JsonObject:
    """The first fragment of a call, with the fields in vLLM's order."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "index": index, "function": function}
