"""A `match` over events is known to be complete; pyright reads this file, nothing runs it."""

from __future__ import annotations

from typing import Any, Literal, assert_never, assert_type

from kimi_agent.errors import KimiAgentError
from kimi_agent.events import (
    Event,
    ModelEvent,
    ReasoningDelta,
    RetryScheduled,
    StepFinished,
    StepStarted,
    TextDelta,
    TextReset,
    ToolCallDelta,
    ToolCallStarted,
    ToolEvent,
    ToolFinished,
    ToolStarted,
)
from kimi_agent.messages import ToolCall
from kimi_agent.results import Usage


def every_event(event: Event) -> None:
    match event:
        case StepStarted():
            assert_type(event.step, int)
        case ReasoningDelta() | TextDelta():
            assert_type(event.text, str)
        case ToolCallStarted():
            assert_type((event.index, event.id, event.name), tuple[int, str, str])
        case ToolCallDelta():
            assert_type((event.index, event.arguments), tuple[int, str])
        case TextReset():
            assert_type(event.reason, Literal["tool_calls", "retry", "reasoning"])
        case RetryScheduled():
            assert_type(event.error, KimiAgentError)
            assert_type(event.delay_s, float)
        case StepFinished():
            assert_type(event.message, dict[str, Any])
            assert_type(event.usage, Usage)
            assert_type(event.raw_finish_reason, str | None)
        case ToolStarted():
            assert_type(event.call, ToolCall)
        case ToolFinished():
            assert_type((event.result, event.is_error, event.duration_s), tuple[str, bool, float])
        case _:
            assert_never(event)


def by_tag(event: Event) -> str:
    if event.type == "text_delta":
        assert_type(event, TextDelta)
        return event.text
    if event.type == "tool_finished":
        assert_type(event, ToolFinished)
    return ""


def an_incomplete_match_is_noticed(event: ToolEvent) -> None:
    match event:
        case ToolStarted():
            pass
        case _:
            assert_never(event)  # pyright: ignore[reportArgumentType]


def an_incomplete_match_without_default_is_noticed(event: ModelEvent) -> None:
    match event:  # pyright: ignore[reportMatchNotExhaustive]
        case TextDelta() | ReasoningDelta() | ToolCallStarted() | ToolCallDelta():
            pass


def events_are_frozen_and_named(event: TextDelta) -> None:
    event.text = "changed"  # pyright: ignore[reportAttributeAccessIssue]
    TextDelta("Oslo")  # pyright: ignore[reportCallIssue]
    assert_type(TextDelta(text="Oslo").type, Literal["text_delta"])
