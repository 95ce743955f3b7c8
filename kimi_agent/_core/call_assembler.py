"""Tool-call deltas → calls, joined by index, forgiving what servers do to index, id and name."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kimi_agent._core.half_characters import joined_halves
from kimi_agent._core.json_text import ObjectTracker
from kimi_agent.events import ModelEvent, ToolCallDelta, ToolCallStarted
from kimi_agent.json_types import is_object

if TYPE_CHECKING:
    from kimi_agent.json_types import JsonObject


_DIGITS: Final = re.compile(r"-?\d{1,9}")
_LONGEST_NAME: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredCall:
    """A call as the server reported it."""

    id: str
    """`""` if the server gave none."""
    name: str
    arguments: str


@dataclass(slots=True)
class _Growing:
    position: int
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    announced: bool = False
    tracker: ObjectTracker = field(default_factory=ObjectTracker)
    tracked: int = 0
    """How many of `pieces` the tracker has seen."""

    @property
    def is_whole(self) -> bool:
        """Whether the arguments so far are a closed object; each piece is looked at once."""
        for piece in self.pieces[self.tracked :]:
            self.tracker.feed(piece)
        self.tracked = len(self.pieces)
        return self.tracker.closed


class CallAssembler:
    """Add the `tool_calls` entries of each delta; read `calls` at the end.

    A call keeps the first id it was given. An entry without index belongs to the call with its id,
    else it begins a new call if it brings an id or a name of its own, else it continues the last one.
    An index that comes again with another id *and* another name or whole arguments is a new call.
    """

    def __init__(self, tool_names: Collection[str] = ()) -> None:
        is_renamed = isinstance(tool_names, Mapping)
        self._tool_names: Mapping[str, str] = (
            tool_names if is_renamed else {name: name for name in tool_names}
        )
        """For each tool's name on the wire its own."""
        self._calls: list[_Growing] = []
        self._by_index: dict[int, _Growing] = {}
        self._by_id: dict[str, _Growing] = {}

    @property
    def calls(self) -> tuple[StructuredCall, ...]:
        """The calls so far, in the order in which they began."""
        return tuple(
            StructuredCall(id=call.id, name=call.name, arguments=joined_halves("".join(call.pieces)))
            for call in self._calls
        )

    def add(self, entries: list[Any], events: list[ModelEvent]) -> None:
        """Take one delta's entries; what they make happen is appended to `events`."""
        for entry in entries:
            if is_object(entry):
                self._add_to(None, entry, events)

    def add_whole(self, entries: list[Any], events: list[ModelEvent]) -> None:
        """Take the entries of a whole message: each is a call of its own, whatever its id or index."""
        for entry in entries:
            if is_object(entry):
                self._add_to(self._begin(), entry, events)

    def close(self) -> list[ModelEvent]:
        """Announce calls that never got arguments."""
        events: list[ModelEvent] = []
        for call in self._calls:
            self._announce(call, events)
        return events

    def _add_to(self, call: _Growing | None, entry: JsonObject, events: list[ModelEvent]) -> None:
        function: Any = entry.get("function")
        if not is_object(function):
            function = {}
        call_id = _text(entry.get("id"))
        name = _text(function.get("name"))
        arguments = _arguments_text(function.get("arguments"))
        if call is None:
            call = self._call_of(entry.get("index"), call_id, name)
        if call_id and not call.id:
            call.id = call_id
            self._by_id.setdefault(call_id, call)
        if name:
            self._add_name(call, name)
        if arguments:
            self._announce(call, events)
            call.pieces.append(arguments)
            events.append(ToolCallDelta(index=call.position, arguments=arguments))
        elif call.id and self._is_whole_name(call.name):
            self._announce(call, events)

    def _call_of(self, index: Any, call_id: str, name: str) -> _Growing:
        if isinstance(index, str) and _DIGITS.fullmatch(index):
            index = int(index)
        if isinstance(index, int) and not isinstance(index, bool):
            call = self._by_index.get(index)
            if call is None or self._is_another(call, call_id, name):
                call = self._begin()
                self._by_index[index] = call
            return call
        if call_id and (call := self._by_id.get(call_id)) is not None:
            return call
        last = self._calls[-1] if self._calls else None
        if last is None or (name and last.name) or (call_id and last.id and name):
            return self._begin()
        if call_id and last.id and last.is_whole:
            return self._begin()
        return last

    def _is_another(self, call: _Growing, call_id: str, name: str) -> bool:
        """Whether an entry under the index of `call` starts a different call."""
        if not (call_id and name and call.id and call.name) or call_id == call.id:
            return False
        return call.is_whole or (name != call.name and bool(call.pieces))

    def _begin(self) -> _Growing:
        call = _Growing(position=len(self._calls))
        self._calls.append(call)
        return call

    def _add_name(self, call: _Growing, name: str) -> None:
        """A name may come in pieces, or again and again."""
        if not call.name:
            call.name = name
        elif name != call.name and not call.pieces and self._can_grow(call.name):
            call.name += name

    def _can_grow(self, name: str) -> bool:
        return len(name) < _LONGEST_NAME and not self._is_whole_name(name)

    def _is_whole_name(self, name: str) -> bool:
        """Whether `name` is an offered tool's and cannot grow into another's."""
        if name not in self._tool_names:
            return False
        return not any(other != name and other.startswith(name) for other in self._tool_names)

    def _announce(self, call: _Growing, events: list[ModelEvent]) -> None:
        if not call.announced:
            call.announced = True
            name = self._tool_names.get(call.name, call.name)
            events.append(ToolCallStarted(index=call.position, id=call.id, name=name))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _arguments_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    # Some servers send the decoded object instead of its text.
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else ""
