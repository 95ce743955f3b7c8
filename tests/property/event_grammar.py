"""The order of a run's events, as `kimi_agent.events` writes it down, checked event by event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, assert_never

from kimi_agent.events import (
    Event,
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
    from collections.abc import Iterable

Phase = Literal["between steps", "deltas", "reset for retry", "reset for tools", "tools", "over"]


def check_event_order(events: Iterable[Event], *, whole: bool = True) -> None:
    """Refuse `events` that do not follow the grammar; `whole=False` allows a run that ended early.

    Raises:
        AssertionError: naming the place, the event and what it breaks.
    """
    reader = _Reader()
    place, event = -1, None
    for place, event in enumerate(events):
        try:
            reader.take(event)
        except AssertionError as error:
            raise AssertionError(f"event {place}, {event}, in phase {reader.phase!r}: {error}") from None
    assert not whole or reader.phase == "over", f"ended after event {place}, {event}, in {reader.phase!r}"


class _Reader:
    def __init__(self) -> None:
        self.phase: Phase = "between steps"
        self._step = 0
        self._attempt = 1
        self._shown = ""
        self._announced: set[int] = set()
        self._to_finish = 0
        """Calls of the tool round that have not finished."""
        self._started: set[int] = set()
        self._finished: set[int] = set()

    def take(self, event: Event) -> None:
        match event:
            case StepStarted():
                self._step_started(event)
            case TextDelta() | ReasoningDelta() | ToolCallStarted() | ToolCallDelta():
                self._delta(event)
            case TextReset():
                self._text_reset(event)
            case RetryScheduled():
                self._retry(event)
            case StepFinished():
                self._step_finished(event)
            case ToolStarted():
                self._tool_started(event)
            case ToolFinished():
                self._tool_finished(event)
            case _:
                assert_never(event)

    def _step_started(self, event: StepStarted) -> None:
        assert self.phase == "between steps" or (self.phase == "tools" and not self._to_finish), (
            "a step is open"
        )
        assert event.step == self._step + 1, f"step {self._step + 1} is next"
        self._step, self._attempt = event.step, 1
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        self.phase = "deltas"
        self._shown = ""
        self._announced = set()

    def _delta(self, event: TextDelta | ReasoningDelta | ToolCallStarted | ToolCallDelta) -> None:
        assert self.phase == "deltas", "no delta may stand here"
        match event:
            case TextDelta():
                assert event.text, "the text is empty"
                self._shown += event.text
            case ToolCallStarted():
                assert event.index not in self._announced, "the call was announced before"
                self._announced.add(event.index)
            case ToolCallDelta():
                assert event.index in self._announced, "the call was not announced"
            case ReasoningDelta():
                pass

    def _text_reset(self, event: TextReset) -> None:
        assert self.phase == "deltas", "no reset may stand here"
        assert event.text == self._shown, f"{self._shown!r} was shown"
        assert event.text, "there was nothing to withdraw"
        self._shown = ""
        if event.reason != "reasoning":
            self.phase = "reset for retry" if event.reason == "retry" else "reset for tools"

    def _retry(self, event: RetryScheduled) -> None:
        assert self.phase in ("deltas", "reset for retry"), "no request is under way"
        assert not self._shown, f"{self._shown!r} was shown and not withdrawn"
        assert event.attempt == self._attempt, f"attempt {self._attempt} is under way"
        assert event.delay_s >= 0
        self._attempt += 1
        self._begin_attempt()

    def _step_finished(self, event: StepFinished) -> None:
        assert self.phase in ("deltas", "reset for tools"), "no step is open"
        assert event.step == self._step, f"step {self._step} is open"
        calls: list[Any] = event.message.get("tool_calls") or []
        if calls:
            assert not self._shown, f"{self._shown!r} was shown and not withdrawn"
            assert len(self._announced) >= len(calls), "a call was not announced"
            self._to_finish, self._started, self._finished = len(calls), set(), set()
            self.phase = "tools"
        else:
            assert self.phase == "deltas", "the text was withdrawn for tools, and there are none"
            content = event.message["content"]
            assert self._shown == content, f"{self._shown!r} was shown, {content!r} is the answer"
            self.phase = "over"

    def _tool_started(self, event: ToolStarted) -> None:
        self._check_call(event)
        assert event.call.index not in self._started, "the call has started before"
        self._started.add(event.call.index)

    def _tool_finished(self, event: ToolFinished) -> None:
        self._check_call(event)
        assert event.is_error or event.call.index in self._started, "a call that never started succeeded"
        assert self._to_finish, "more calls finished than the message holds"
        self._finished.add(event.call.index)
        self._to_finish -= 1

    def _check_call(self, event: ToolStarted | ToolFinished) -> None:
        assert self.phase == "tools", "no tool round is under way"
        assert event.call.step == self._step, f"step {self._step} is under way"
        assert event.call.index in self._announced, "the call was not announced"
        assert event.call.index not in self._finished, "the call has finished before"
