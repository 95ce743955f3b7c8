"""What a run leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kimi_agent.json_types import is_object

if TYPE_CHECKING:
    from kimi_agent.json_types import JsonObject
    from kimi_agent.messages import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the server counted them, summed where several requests are meant."""

    requests: int = 0
    """Requests sent, repeated ones included."""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Input tokens the server took from its prefix cache."""
    reasoning_tokens: int = 0
    """Output tokens spent on reasoning, where the server says so."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Something of a reply or a request that had to be put right."""

    kind: str
    """What sort of repair, one of the words listed in docs/reference/repairs.md."""

    where: str
    """The place, e.g. `step 2, call 0`."""

    detail: str
    """What was seen and what was made of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallRecord:
    """One call of the run and what came of it."""

    step: int
    """The step whose reply held the call, from 1."""

    index: int
    """Place in that reply, from 0."""

    id: str
    name: str

    arguments: Any
    """The decoded object, or the raw text if it could not be decoded."""

    result: str
    """The text sent to the model."""

    is_error: bool
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One request and its reply."""

    step: int
    """Counted from 1."""

    finish_reason: str
    """`stop`, `length`, `tool_calls`, `content_filter` or `other`."""

    raw_finish_reason: str | None
    """The server's own word."""

    usage: Usage
    repairs: tuple[Repair, ...] = ()

    ttft_s: float | None = None
    """Seconds from sending the request to the first text, reasoning or call; `None` if nothing came."""

    duration_s: float = 0.0
    """Seconds from sending the request to the end of the reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A finished run."""

    text: str
    """The final answer: no control token, and nothing said before a tool round."""

    reasoning: str | None
    """Reasoning of the last step."""

    output: Any
    """The value of the agent's `output_type`, else `text`."""

    messages: list[Message]
    """The whole conversation, JSON-serialisable, valid as `history` of the next run."""

    new_messages: list[Message]
    """What this run added to the history it was given."""

    tool_calls: list[ToolCallRecord] = field(default_factory=list[ToolCallRecord])
    steps: list[StepRecord] = field(default_factory=list[StepRecord])
    usage: Usage = field(default_factory=Usage)

    finish_reason: str = "stop"
    """`stop`, `length`, `content_filter`, or another word the server used.

    A run that ended early has `cancelled` or `error`.
    """

    repairs: list[Repair] = field(default_factory=list[Repair])


def usage_from(raw: JsonObject) -> Usage:
    """The tokens of one reply from a server's `usage` object, wherever it puts its details.

    Cached tokens: Moonshot has them at the top level, others in `prompt_tokens_details`.
    Fields that are missing, null or not a number count as 0.
    """
    prompt_details: Any = raw.get("prompt_tokens_details")
    completion_details: Any = raw.get("completion_tokens_details")
    return Usage(
        requests=1,
        input_tokens=_count(raw, "prompt_tokens"),
        output_tokens=_count(raw, "completion_tokens"),
        cached_tokens=_count(raw, "cached_tokens") or _count(prompt_details, "cached_tokens"),
        reasoning_tokens=_count(raw, "reasoning_tokens") or _count(completion_details, "reasoning_tokens"),
    )


def _count(holder: Any, key: str) -> int:
    value: object = holder.get(key) if is_object(holder) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
