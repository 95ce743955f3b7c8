"""What happens while a run is carried out: one frozen class for each meaning.

Order, with `{}` for any number and `[]` for at most one::

    turn  = step { tools step }
    step  = StepStarted { { delta } [ TextReset ] RetryScheduled } { delta } [ TextReset ] StepFinished
    tools = { ToolStarted | ToolFinished }        each call once, Started before Finished
    delta = ReasoningDelta | TextDelta | ToolCallStarted | ToolCallDelta

One exception: a `TextReset` with reason `"reasoning"` may stand among the deltas. It comes when a
server without reasoning parser sends a thought as answer text and only its end marker tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from kimi_agent.errors import KimiAgentError
    from kimi_agent.messages import Message, ToolCall
    from kimi_agent.results import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """A request is about to be sent."""

    step: int
    """Counted from 1."""

    type: Literal["step_started"] = "step_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta:
    """More reasoning."""

    text: str
    """May be `""` once, which means: reasoned, but empty."""

    type: Literal["reasoning_delta"] = "reasoning_delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """More answer text."""

    text: str
    """Never empty."""

    type: Literal["text_delta"] = "text_delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted:
    """The model began a call; its arguments follow."""

    index: int
    """Place in the reply, from 0."""

    id: str
    """The server's label, or `""` while it has not sent one."""

    name: str
    type: Literal["tool_call_started"] = "tool_call_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDelta:
    """More of the arguments' JSON text of the call at `index`."""

    index: int
    """The number that `ToolCallStarted` carried."""

    arguments: str
    type: Literal["tool_call_delta"] = "tool_call_delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReset:
    """The text shown since `StepStarted` was not the answer."""

    text: str
    """What is withdrawn."""

    reason: Literal["tool_calls", "retry", "reasoning"]
    """A tool round follows; the request is sent again; or the text was reasoning after all."""

    type: Literal["text_reset"] = "text_reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled:
    """The request is sent again; every delta since `StepStarted` is void."""

    attempt: int
    """The attempt that failed, from 1."""

    delay_s: float
    error: KimiAgentError
    type: Literal["retry_scheduled"] = "retry_scheduled"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """The reply is whole."""

    step: int
    message: Message
    """The assistant message as it stands in the history."""

    finish_reason: str
    """`stop`, `length`, `tool_calls`, `content_filter` or `other`."""

    raw_finish_reason: str | None
    usage: Usage
    type: Literal["step_finished"] = "step_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A call was approved and is about to run."""

    call: ToolCall
    type: Literal["tool_started"] = "tool_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A call returned, failed, was refused or ran out of time."""

    call: ToolCall
    result: str
    """The text sent to the model."""

    is_error: bool
    duration_s: float
    type: Literal["tool_finished"] = "tool_finished"


ModelEvent: TypeAlias = TextDelta | ReasoningDelta | ToolCallStarted | ToolCallDelta | TextReset
"""What one reply is made of."""

ToolEvent: TypeAlias = ToolStarted | ToolFinished
"""What happens in a tool round."""

Event: TypeAlias = StepStarted | ModelEvent | RetryScheduled | StepFinished | ToolEvent
"""Everything `KimiAgent.stream` yields."""
