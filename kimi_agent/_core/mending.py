"""A history from anywhere → one every server takes, and what had to be changed for that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kimi_agent._core.lenient_json import is_json_object
from kimi_agent.json_types import is_array, is_object
from kimi_agent.results import Repair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_agent.json_types import JsonObject
    from kimi_agent.messages import Message

INTERRUPTED: Final = "[interrupted before completion]"
"""The result of a call that nobody answered."""

_KEYS: Final = frozenset(
    (
        "role",
        "name",
        "content",
        "tool_calls",
        "tool_call_id",
        "partial",
        "tools",
        "reasoning_content",
        "reasoning",
    )
)


def mended(messages: Sequence[Message]) -> tuple[list[Message], list[Repair]]:
    """`messages` with every call answered once, right behind its message, and nothing empty.

    The given messages are not changed. Doing it again changes nothing.
    """
    mender = _Mender(messages)
    return mender.mended(), mender.repairs


class _Mender:
    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        roles = [message.get("role") for message in messages]
        self._begun = next(
            (at for at, role in enumerate(roles) if role not in ("system", "tool")), len(roles)
        )
        """Where the first message of user or model stands."""
        self._taken: set[int] = set()
        """Positions of tool messages that found their call."""
        self.repairs: list[Repair] = []

    def mended(self) -> list[Message]:
        out: list[Message] = []
        for position, message in enumerate(self._messages):
            if message.get("role") == "tool":
                out += self._stray_result(position, message)
            elif message.get("role") == "assistant":
                out += self._assistant(position, message)
            elif not self._is_empty(position, message):
                out.append(self._plain(position, message))
        return out

    def _repair(self, kind: str, position: int, detail: str) -> None:
        self.repairs.append(Repair(kind=kind, where=f"messages[{position}]", detail=detail))

    def _stray_result(self, position: int, message: Message) -> list[Message]:
        if position in self._taken:
            return []
        if position < self._begun:
            # A history may be a window that begins behind the call; only the server can tell.
            return [{"content": "", **self._plain(position, message)}]
        detail = f"the result of {message.get('tool_call_id')!r} belongs to no call; left out"
        self._repair("orphan_result", position, detail)
        return []

    def _assistant(self, position: int, message: Message) -> list[Message]:
        plain = self._plain(position, message)
        calls: Any = plain.pop("tool_calls", None)
        calls = [call for call in calls if is_object(call)] if is_array(calls) else []
        if not calls:
            if has_content(plain) or message.get("partial"):
                return [plain]
            self._repair(
                "empty_message", position, "an assistant message without content and calls; left out"
            )
            return []
        plain["tool_calls"] = [self._call(position, call) for call in calls]
        return [plain, *self._results(position, plain["tool_calls"])]

    def _call(self, position: int, call: JsonObject) -> JsonObject:
        function: Any = call.get("function")
        function = dict(function) if is_object(function) else {}
        arguments = function.get("arguments")
        is_text = isinstance(arguments, str)
        if (is_text and not is_json_object(arguments)) or not (is_text or is_object(arguments)):
            detail = f"the arguments of {call.get('id')} are no JSON object; sent as {{}}"
            if arguments is not None and str(arguments).strip():
                self._repair("history_arguments", position, detail)
            function["arguments"] = "{}"
        return {**call, "function": function}

    def _results(self, position: int, calls: Sequence[JsonObject]) -> list[Message]:
        """One result for each call, in call order, from the tool messages before the next reply."""
        found = self._result_positions(position)
        by_call: dict[int, int] = {}
        for place, call in enumerate(calls):
            match = next(
                (at for at in found if self._messages[at].get("tool_call_id") == call.get("id")), None
            )
            if match is not None:
                by_call[place] = match
                found.remove(match)
        open_calls = [place for place in range(len(calls)) if place not in by_call]
        if open_calls and len(open_calls) == len(found):
            # As many results as calls are left: other clients rename ids, but keep the order.
            by_call.update(zip(open_calls, found, strict=True))
            self._repair("result_id", position, "results with other ids than their calls; paired by place")
        self._taken.update(by_call.values())
        places = [by_call[place] for place in sorted(by_call)]
        if places != list(range(position + 1, position + 1 + len(places))):
            self._repair(
                "result_order",
                position,
                "results elsewhere than right behind their calls, in call order; put there",
            )
        return [self._result(position, call, by_call.get(place)) for place, call in enumerate(calls)]

    def _result_positions(self, position: int) -> list[int]:
        positions: list[int] = []
        for later in range(position + 1, len(self._messages)):
            role = self._messages[later].get("role")
            if role == "assistant":
                break
            if role == "tool" and later not in self._taken:
                positions.append(later)
        return positions

    def _result(self, position: int, call: JsonObject, found: int | None) -> Message:
        if found is None:
            self._repair("missing_result", position, f"{call.get('id')} was never answered; told so")
            return {"role": "tool", "tool_call_id": call.get("id"), "content": INTERRUPTED}
        message = self._plain(found, self._messages[found])
        message["tool_call_id"] = call.get("id")
        message.setdefault("content", "")
        return message

    def _plain(self, position: int, message: Message) -> Message:
        """`message` without keys servers refuse, nulls and empty text parts."""
        foreign = sorted(str(key) for key in message.keys() - _KEYS if message[key] is not None)
        if foreign:
            self._repair("unknown_keys", position, f"not part of a message; left out: {', '.join(foreign)}")
        plain = {key: value for key, value in message.items() if key in _KEYS and value is not None}
        content: Any = plain.get("content")
        if is_array(content):
            kept = [part for part in content if not _is_blank_part(part)]
            if len(kept) < len(content):
                self._repair("empty_part", position, "empty content parts; left out")
            plain["content"] = kept or ""
        return plain

    def _is_empty(self, position: int, message: Message) -> bool:
        if message.get("tools") or has_content(message):
            return False
        self._repair("empty_message", position, f"an empty {message.get('role')} message; left out")
        return True


def has_content(message: Message) -> bool:
    """Whether a message says anything: text that is not blank, or a part that is no text."""
    content: Any = message.get("content")
    if isinstance(content, tuple):
        content = [*content]
    if is_array(content):
        return any(not _is_blank_part(part) for part in content)
    # What is no text and no list of parts is not empty, only wrong; that is told when it is written.
    return bool(content.strip()) if isinstance(content, str) else content is not None


def _is_blank_part(part: Any) -> bool:
    return is_object(part) and part.get("type") == "text" and not str(part.get("text") or "").strip()
