"""A reply exactly as the server sent it: nothing is repaired, moved or hidden."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kimi_agent.json_types import is_array, is_object
from kimi_agent.messages import text_of
from kimi_agent.transport import END_OF_REPLY

if TYPE_CHECKING:
    from kimi_agent.json_types import JsonObject

REASONING_FIELDS: Final = ("reasoning_content", "reasoning")


@dataclass(slots=True)
class ObservedCall:
    """A call of the `tool_calls` field, its pieces joined."""

    id: str = ""
    name: str = ""
    argument_pieces: list[str] = field(default_factory=list[str])

    @property
    def arguments(self) -> str:
        """The arguments' text."""
        return "".join(self.argument_pieces)

    @property
    def decoded(self) -> JsonObject | None:
        """The arguments, if they are the JSON of an object."""
        try:
            value: object = json.loads(self.arguments)
        except (ValueError, RecursionError):
            return None
        return value if is_object(value) else None


class ObservedReply:
    """Grows by `add`, one chunk or whole reply after the other. Only choice 0 is looked at."""

    def __init__(self) -> None:
        self.calls: list[ObservedCall] = []
        self.finish_reason: str | None = None
        self.usage: JsonObject | None = None
        self.fingerprint: str | None = None
        self.first_chunk: JsonObject = {}
        self.is_ended = False
        """Whether the server said that it was done."""
        self.duration_s = 0.0
        self._content: list[str] = []
        self._reasoning: dict[str, list[str]] = {}
        self._places: dict[int, ObservedCall] = {}

    @property
    def content(self) -> str:
        """The text of the answer."""
        return "".join(self._content)

    @property
    def reasoning(self) -> dict[str, str]:
        """The reasoning, by the name of the field it came in."""
        return {name: "".join(pieces) for name, pieces in self._reasoning.items()}

    @property
    def reasoning_text(self) -> str:
        """The reasoning, under whatever name it came."""
        return next((text for text in self.reasoning.values() if text), "")

    @property
    def reasoning_field(self) -> str | None:
        """The name of the field that held reasoning."""
        return next((name for name, text in self.reasoning.items() if text), None)

    def add(self, chunk: JsonObject) -> None:
        """Take in one object of the reply."""
        if chunk is END_OF_REPLY:
            self.is_ended = True
            return
        self.first_chunk = self.first_chunk or chunk
        self._add_usage(chunk.get("usage"))
        if isinstance(fingerprint := chunk.get("system_fingerprint"), str):
            self.fingerprint = fingerprint
        choices: Any = chunk.get("choices")
        for choice in choices if is_array(choices) else ():
            if is_object(choice) and not choice.get("index"):
                self._add_choice(choice)

    def _add_choice(self, choice: JsonObject) -> None:
        self._add_usage(choice.get("usage"))
        if isinstance(reason := choice.get("finish_reason"), str):
            self.finish_reason = reason
        self._content.append(_text(choice.get("text")))
        for holder in (choice.get("delta"), choice.get("message")):
            if is_object(holder):
                self._add_message(holder)

    def _add_message(self, message: JsonObject) -> None:
        self._content.append(text_of(message.get("content")))
        for name in REASONING_FIELDS:
            if isinstance(text := message.get(name), str):
                self._reasoning.setdefault(name, []).append(text)
        calls: Any = message.get("tool_calls")
        for place, call in enumerate(calls if is_array(calls) else ()):
            if is_object(call):
                self._add_call(call, place)

    def _add_call(self, piece: JsonObject, place: int) -> None:
        index = piece.get("index")
        index = index if isinstance(index, int) else place
        call = self._places.get(index)
        if call is None:
            call = self._places[index] = ObservedCall()
            self.calls.append(call)
        function: Any = piece.get("function")
        function = function if is_object(function) else {}
        call.id = call.id or _text(piece.get("id"))
        call.name = call.name or _text(function.get("name"))
        arguments: Any = function.get("arguments")
        call.argument_pieces.append(json.dumps(arguments) if is_object(arguments) else _text(arguments))

    def _add_usage(self, usage: Any) -> None:
        if is_object(usage):
            self.usage = usage


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
