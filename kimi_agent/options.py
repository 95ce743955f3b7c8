"""What is asked of the model, and the limits of a run; units stand in the names."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from typing_extensions import TypeIs

from kimi_agent.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimi_agent.json_types import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What is asked of the model. `None` leaves a field out of the request: the server decides."""

    temperature: float | None = None
    top_p: float | None = None

    max_output_tokens: int | None = None
    """Tokens of one reply, reasoning included."""

    thinking: bool | None = None
    """Whether the model reasons before it answers, where it can be chosen."""

    keep_reasoning: bool | None = None
    """Whether the model sees the reasoning of earlier turns again, where it can be chosen."""

    effort: Literal["low", "high", "max"] | str | None = None  # noqa: PYI051 - the known words for the editor, others allowed
    """How much the model reasons, where it can be chosen."""

    tool_choice: str | JsonObject | None = None
    """`auto`, `none`, `required`, a tool's name, or the object of Chat Completions."""

    parallel_tool_calls: bool | None = None
    seed: int | None = None
    stop: str | tuple[str, ...] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    response_format: JsonObject | None = None

    raw_tool_calls: bool = True
    """Whether calls that a server left as raw text are recovered; markers are hidden either way."""

    control_tokens: Literal["neutralise", "refuse"] = "neutralise"
    """What happens, in raw completions, to control tokens in texts: broken up by a space, or refused."""

    extra_body: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further fields of the request body, as they are; they win over the fields above."""

    extra_headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        _check_positive(self, "max_output_tokens")
        for name in ("temperature", "top_p"):
            _check_number(self, name, minimum=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """Limits of one run."""

    max_steps: int = 50
    """Requests to the model before `StepLimitError`; retries do not count."""

    max_parallel_tools: int = 8
    """Tools of one reply that run at the same time."""

    tool_timeout_s: float | None = 60.0
    """Seconds one tool may take; then the model is told so. `None`: no limit."""

    request_timeout_s: float | None = 600.0
    """Seconds the server may stay silent within one request, its first answer included. `None`: no limit."""

    connect_timeout_s: float = 10.0
    """Seconds to reach the server."""

    max_retries: int = 2
    """How often one step's request is sent again after a failure that may pass."""

    max_retry_delay_s: float = 60.0
    """The longest wait before a request is sent again, whatever the server asks for."""

    loading_timeout_s: float = 600.0
    """Seconds to wait for a server that says it is still loading the model."""

    max_total_tokens: int | None = None
    """Input and output tokens of all steps before `TokenLimitError`. `None`: no limit."""

    max_repeats: int | None = 8
    """How often the same call may bring the same result before `LoopDetectedError`. `None`: no limit.

    A reminder is added from the third time, and from the fifth the call is refused.
    """

    max_reply_bytes: int = 64 * 1024 * 1024
    """Bytes of one reply before `ProtocolError`."""

    def __post_init__(self) -> None:
        for name in (
            "max_steps",
            "max_parallel_tools",
            "tool_timeout_s",
            "request_timeout_s",
            "connect_timeout_s",
            "loading_timeout_s",
            "max_total_tokens",
            "max_repeats",
            "max_reply_bytes",
        ):
            _check_positive(self, name)
        _check_number(self, "max_repeats", minimum=2)
        _check_number(self, "max_retries", minimum=0)
        _check_number(self, "max_retry_delay_s", minimum=0)


def _check_positive(options: ModelOptions | RunLimits, name: str) -> None:
    value: object = getattr(options, name)
    if value is not None and not (_is_number(value) and value > 0):
        raise ConfigurationError(
            f"{type(options).__name__}.{name} must be a number greater than 0, got {value!r}"
        )


def _check_number(options: ModelOptions | RunLimits, name: str, *, minimum: float) -> None:
    value: object = getattr(options, name)
    if value is not None and not (_is_number(value) and value >= minimum):
        raise ConfigurationError(
            f"{type(options).__name__}.{name} must be a number of at least {minimum}, got {value!r}"
        )


def _is_number(value: object) -> TypeIs[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
