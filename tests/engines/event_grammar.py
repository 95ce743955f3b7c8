"""Whether a run's events come in the written order and say the same as its messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import regex

from kimi_agent.events import (
    ReasoningDelta,
    RetryScheduled,
    StepFinished,
    StepStarted,
    TextDelta,
    TextReset,
    ToolCallDelta,
    ToolCallStarted,
    ToolFinished,
    ToolStarted,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_agent.events import Event
    from kimi_agent.messages import Message

# One letter an event; the grammar that kimi_agent/events.py writes down.
LETTERS: Final = {
    StepStarted: "S",
    ReasoningDelta: "d",
    TextDelta: "d",
    ToolCallStarted: "d",
    ToolCallDelta: "d",
    RetryScheduled: "y",
    StepFinished: "F",
    ToolStarted: "t",
    ToolFinished: "t",
}
STEP: Final = "S(d*r?y)*d*r?F"
TURN: Final = regex.compile(f"{STEP}(t+{STEP})*")


def check_events(events: Sequence[Event], *, ended: bool = True) -> None:
    """Check the events of a run, which may have `ended` before its answer."""
    letters = "".join(_letter(event) for event in events)
    assert TURN.fullmatch(letters, partial=not ended), [event.type for event in events]

    steps = [event.step for event in events if isinstance(event, StepStarted)]
    assert steps == list(range(1, len(steps) + 1))

    reply, tools = _Reply(), _ToolRound([])
    for event in events:
        if isinstance(event, StepStarted):
            tools.check_closed()
            reply = _Reply()
        elif isinstance(event, StepFinished):
            reply.check_says(event.message)
            tools = _ToolRound([call["id"] for call in event.message.get("tool_calls") or ()])
        elif isinstance(event, ToolStarted | ToolFinished):
            tools.add(event)
        else:
            reply.add(event)


class _Reply:
    """The deltas of one reply, joined."""

    def __init__(self) -> None:
        self.shown = ""
        self.withdrawn = False
        self.reasoning = ""
        self.calls: dict[int, dict[str, str]] = {}

    def add(self, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                assert text
                assert not self.withdrawn
                self.shown += text
            case ReasoningDelta(text=text):
                self.reasoning += text
            case ToolCallStarted(index=index, name=name):
                assert index not in self.calls
                assert name
                self.calls[index] = {"name": name, "arguments": ""}
            case ToolCallDelta(index=index, arguments=arguments):
                self.calls[index]["arguments"] += arguments
            case TextReset(text=text, reason=reason):
                assert text == self.shown
                if reason == "reasoning":
                    self.shown = ""
                self.withdrawn = reason == "tool_calls"
            case _:
                assert isinstance(event, RetryScheduled), event
                self.shown, self.reasoning, self.calls = "", "", {}

    def check_says(self, message: Message) -> None:
        """The joined deltas equal the message; of a call that was cut there is no whole text to compare."""
        calls: list[Any] = message.get("tool_calls") or []
        assert (message.get("content") or "").strip() == self.shown.strip()
        assert (message.get("reasoning_content") or "") == self.reasoning
        assert self.withdrawn == bool(calls and self.shown)
        for index, call in enumerate(calls):
            streamed = self.calls[index]
            whole = _decoded(streamed["arguments"] or "{}")
            if whole is not None:
                assert streamed["name"] == call["function"]["name"]
                assert whole == json.loads(call["function"]["arguments"])


class _ToolRound:
    """The calls of one message, each to be finished once."""

    def __init__(self, ids: list[str]) -> None:
        self.ids = ids
        self.started: list[str] = []
        self.finished: list[str] = []

    def add(self, event: ToolStarted | ToolFinished) -> None:
        if isinstance(event, ToolStarted):
            assert event.call.id not in self.started + self.finished
            self.started.append(event.call.id)
            return
        assert event.call.id not in self.finished
        assert event.is_error or event.call.id in self.started
        self.finished.append(event.call.id)

    def check_closed(self) -> None:
        assert sorted(self.finished) == sorted(self.ids)


def _letter(event: Event) -> str:
    if isinstance(event, TextReset):
        return "d" if event.reason == "reasoning" else "r"
    return LETTERS[type(event)]


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
