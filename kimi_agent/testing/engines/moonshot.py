"""Moonshot's own API, after its public documentation; nothing here was recorded from it."""

import re
from collections.abc import Iterator
from typing import ClassVar

from typing_extensions import override

from kimi_agent.testing.engines.dialect import Dialect
from kimi_agent.testing.generation import Generation, Kind
from kimi_agent.testing.json_values import JsonObject, as_list, as_object
from kimi_agent.testing.replies import Reply

_FUNCTION_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,255}")


class Moonshot(Dialect):
    """Ids `name:0`; usage inside the finishing choice; histories are checked."""

    name = "moonshot"
    json_headers: ClassVar[dict[str, str]] = {
        "content-type": "application/json; charset=utf-8",
        "x-trace-id": "simulated",
    }
    stream_headers: ClassVar[dict[str, str]] = {
        "content-type": "text/event-stream; charset=utf-8",
        "x-trace-id": "simulated",
    }
    has_parser_flag: ClassVar[bool] = False
    choice_none_hides_tools: ClassVar[bool] = True
    forced_call_has_text: ClassVar[bool] = True
    open_paths: ClassVar[frozenset[str]] = frozenset()

    @override
    def health(self) -> Reply:
        return self.not_found()

    @override
    def models(self, created: int) -> Reply:
        entry = {
            "id": self.settings.model,
            "object": "model",
            "created": created,
            "owned_by": "moonshot",
            "context_length": self.settings.context_length,
            "supports_image_in": False,
            "supports_video_in": False,
            "supports_reasoning": self.settings.thinking,
        }
        return self.json({"object": "list", "data": [entry]})

    @override
    def error(
        self, status: int, message: str, kind: str = "invalid_request_error", param: str | None = None
    ) -> Reply:
        return self.json({"error": {"message": message, "type": kind}}, status)

    @override
    def unauthorized(self) -> Reply:
        return self.error(401, "Invalid Authentication", "invalid_authentication_error")

    @override
    def not_found(self) -> Reply:
        return self.error(404, "The requested resource was not found", "resource_not_found_error")

    @override
    def wrong_method(self, allowed: str) -> Reply:
        return self.error(405, "Method Not Allowed")

    @override
    def too_long(self, prompt_tokens: int) -> Reply:
        limit = self.settings.context_length
        message = (
            f"Invalid request: Your request exceeded model token limit: {limit} (requested: {prompt_tokens})"
        )
        return self.error(400, message)

    @override
    def refusal(self, request: JsonObject, *, chat: bool) -> Reply | None:
        model = request.get("model")
        if model != self.settings.model:
            message = f"Not found the model {model} or Permission denied"
            return self.error(404, message, "resource_not_found_error")
        if not chat:
            return None
        messages = [as_object(message) for message in as_list(request.get("messages"))]
        found = tools_fault(request, thinking=self.thinks(request)) or history_fault(
            messages, thinking=self.thinks(request)
        )
        return None if found is None else self.error(400, found)

    def thinks(self, request: JsonObject) -> bool:
        """Whether this request is answered with reasoning."""
        return self.settings.thinking and as_object(request.get("thinking")).get("type") != "disabled"

    @override
    def usage(self, generation: Generation, completion_tokens: int | None = None) -> JsonObject:
        counts = super().usage(generation, completion_tokens)
        return {
            "prompt_tokens": counts["prompt_tokens"],
            "completion_tokens": counts["completion_tokens"],
            "total_tokens": counts["total_tokens"],
            "cached_tokens": 0,
        }

    @override
    def call_head(self, index: int, call_id: str, arguments: str) -> JsonObject:
        return super().call_head(index, call_id, arguments) | {"id": call_id.removeprefix("functions.")}

    @override
    def chat(self, generation: Generation) -> JsonObject:
        message: JsonObject = {"role": "assistant", "content": generation.text(Kind.CONTENT)}
        if reasoning := generation.text(Kind.REASONING):
            message["reasoning_content"] = reasoning
        begun = [call for call in generation.calls() if call.has_arguments]
        if calls := [self.call_head(index, call.header, call.arguments) for index, call in enumerate(begun)]:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason(generation)}
        return {
            **self._envelope(generation, "chat.completion", [choice]),
            "usage": self.usage(generation),
        }

    @override
    def text(self, generation: Generation) -> JsonObject:
        choice = {"index": 0, "text": generation.raw, "finish_reason": generation.finish}
        return {
            **self._envelope(generation, "text_completion", [choice]),
            "usage": self.usage(generation),
        }

    @override
    def chat_chunks(self, generation: Generation) -> Iterator[JsonObject]:
        yield self._chunk(generation, {"role": "assistant", "content": ""})
        for delta, _ in self.deltas(generation):
            yield self._chunk(generation, delta)
        last = self._chunk(generation, {})
        usage = self.usage(generation)
        last["choices"][0].update({"finish_reason": self.finish_reason(generation), "usage": usage})
        yield last
        if generation.include_usage:
            yield {**last, "choices": [], "usage": usage}

    @override
    def text_chunks(self, generation: Generation) -> Iterator[JsonObject]:
        for token in generation.tokens:
            choice = {"index": 0, "text": token.text, "finish_reason": None}
            yield self._envelope(generation, "text_completion", [choice])
        last = {"index": 0, "text": "", "finish_reason": generation.finish, "usage": self.usage(generation)}
        yield self._envelope(generation, "text_completion", [last])
        if generation.include_usage:
            yield {**self._envelope(generation, "text_completion", []), "usage": self.usage(generation)}

    def _chunk(self, generation: Generation, delta: JsonObject) -> JsonObject:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        return self._envelope(generation, "chat.completion.chunk", [choice])

    def _envelope(self, generation: Generation, kind: str, choices: list[JsonObject]) -> JsonObject:
        return {
            "id": f"chatcmpl-{generation.id[:24]}",
            "object": kind,
            "created": generation.created,
            "model": generation.model,
            "choices": choices,
            "system_fingerprint": "fpv0_simulated",
        }


def tools_fault(request: JsonObject, *, thinking: bool) -> str | None:
    """What is wrong with the tools and the choice among them."""
    seen: set[object] = set()
    for tool in map(as_object, as_list(request.get("tools"))):
        name = as_object(tool.get("function")).get("name")
        if not isinstance(name, str) or not _FUNCTION_NAME.fullmatch(name):
            return (
                "Invalid request: function name is invalid, must start with a letter and can contain "
                "letters, numbers, underscores, and dashes"
            )
        if name in seen:
            return f"Invalid request: function name {name} is duplicated"
        seen.add(name)
    choice = request.get("tool_choice")
    if thinking and (choice == "required" or isinstance(choice, dict)):
        said = "required" if choice == "required" else "specified"
        return f"tool_choice '{said}' is incompatible with thinking enabled"
    return None


def history_fault(messages: list[JsonObject], *, thinking: bool) -> str | None:
    """What is wrong with the messages, in the API's words."""
    if not messages:
        return "Invalid request: messages must not be empty"
    waiting: list[str] = []
    last_user = max((at for at, message in enumerate(messages) if message.get("role") == "user"), default=-1)
    for at, message in enumerate(messages):
        role, calls = message.get("role"), as_list(message.get("tool_calls"))
        if role == "tool":
            call_id = str(message.get("tool_call_id") or "")
            if call_id not in waiting:
                return f"tool_call_id {call_id} is not found"
            waiting.remove(call_id)
            continue
        if waiting:
            return unanswered(waiting)
        if not calls and not message.get("content") and not message.get("tools"):
            return f"Invalid request: message at position {at} with role '{role}' must not be empty"
        if thinking and calls and at > last_user and "reasoning_content" not in message:
            missing = "reasoning_content is missing in assistant tool call message"
            return f"thinking is enabled but {missing} at index {at}"
        waiting = [str(as_object(call).get("id")) for call in calls]
    return unanswered(waiting) if waiting else None


def unanswered(call_ids: list[str]) -> str:
    """The text about calls nobody answered."""
    return (
        "an assistant message with 'tool_calls' must be followed by tool messages responding to each "
        f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(call_ids)}"
    )
