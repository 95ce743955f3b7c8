"""A turn as a state machine: replies and tool results in, commands out. It never waits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from kimi_agent._core.loop_guard import LoopGuard, refusal
from kimi_agent._core.settled import Asked, SettledCall, SettledReply
from kimi_agent.errors import (
    KimiAgentError,
    LoopDetectedError,
    ModelError,
    StepLimitError,
    TokenLimitError,
)
from kimi_agent.results import Repair, RunResult, StepRecord, ToolCallRecord, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimi_agent.messages import Message, ToolSpec
    from kimi_agent.options import ModelOptions, RunLimits

MAX_UNUSABLE_STEPS: Final = 3
"""Steps in a row whose calls were all malformed before the run ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallModel:
    """Send the messages and read one reply."""

    step: int
    messages: Sequence[Message]
    asked: Asked
    because: ModelError | None = None
    """Set if this repeats the step's request after a reply nobody can use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTools:
    """Carry out the calls that have no `answer` yet, side by side, and hand back every outcome in order."""

    step: int
    calls: Sequence[PlannedCall]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The turn is over."""

    result: RunResult


Command: TypeAlias = CallModel | RunTools | Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """A call of the reply, and its answer if it must not run."""

    index: int
    id: str
    name: str
    arguments: Any
    answer: ToolOutcome | None = None


OutcomeKind: TypeAlias = Literal[
    "ok",
    "error",
    "invalid_arguments",
    "unknown_tool",
    "truncated",
    "refused",
    "denied",
    "timeout",
    "cancelled",
]
_UNUSABLE: Final = frozenset({"invalid_arguments", "unknown_tool", "truncated"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """What came of one call."""

    text: str
    """What the model is told."""
    kind: OutcomeKind = "ok"
    duration_s: float = 0.0

    @property
    def is_error(self) -> bool:
        """Whether the tool did not do what it was asked."""
        return self.kind != "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTiming:
    """How long one reply took, in seconds from sending the request."""

    ttft_s: float | None = None
    duration_s: float = 0.0


@dataclass(slots=True)
class _Progress:
    messages: list[Message]
    calls: list[ToolCallRecord] = field(default_factory=list[ToolCallRecord])
    steps: list[StepRecord] = field(default_factory=list[StepRecord])
    usage: Usage = field(default_factory=Usage)
    repairs: list[Repair] = field(default_factory=list[Repair])
    calls_in_history: int = 0
    text: str = ""
    reasoning: str | None = None


class Turn:
    """From a prompt to its answer.

    `start` gives the first command; hand what came of each command to the method named after it, until
    `Finish`. Errors leave the turn with everything done so far attached as `.result`.
    """

    def __init__(
        self,
        history: Sequence[Message],
        prompt: Sequence[Message],
        *,
        tools: Mapping[str, ToolSpec],
        options: ModelOptions,
        limits: RunLimits,
        repairs: Sequence[Repair] = (),
        raw_text: bool = False,
    ) -> None:
        self._tools = tools
        self._raw_text = raw_text
        self._options = options
        self._limits = limits
        self._done = _Progress(messages=[dict(message) for message in (*history, *prompt)])
        self._done.repairs += repairs
        self._done.calls_in_history = sum(len(message.get("tool_calls") or ()) for message in history)
        self._old = len(history)
        self._step = 0
        self._retried = False
        self._unusable_steps = 0
        self._guard = LoopGuard(limits.max_repeats)
        self._open: Sequence[PlannedCall] = ()

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation so far."""
        return self._done.messages

    def start(self) -> CallModel:
        """The first request."""
        return self._next_step()

    def on_reply(self, reply: SettledReply, timing: StepTiming = StepTiming()) -> Command:
        """What to do after a reply.

        Raises:
            ModelError: nobody can use the reply, and asking once more did not help.
        """
        self._done.usage += reply.usage
        self._done.repairs += reply.repairs
        if self._is_empty(reply):
            return self._on_empty_reply(reply)
        self._retried = False
        self._done.steps.append(self._record(reply, timing))
        self._done.messages.append(reply.message())
        self._done.reasoning = reply.reasoning
        self._done.calls_in_history += len(reply.calls)
        if not reply.calls:
            self._done.text = reply.content
            return Finish(result=self.result(_final_word(reply)))
        self._open = tuple(self._planned(call) for call in reply.calls)
        return RunTools(step=self._step, calls=self._open)

    def add_repair(self, repair: Repair) -> None:
        """Report something that was put right outside the turn."""
        self._done.repairs.append(repair)

    def on_failure(self) -> None:
        """Count a request that brought no reply."""
        self._done.usage += Usage(requests=1)

    def on_tool_results(self, outcomes: Sequence[ToolOutcome]) -> Command:
        """What to do after a tool round; `outcomes` are in call order, one for each call.

        Raises:
            ModelError: the model made nothing but malformed calls, three steps in a row.
            LimitError: a limit of the run is reached.
        """
        loops = self._add_results(outcomes)
        self._unusable_steps = self._unusable_steps + 1 if _all_unusable(outcomes) else 0
        if self._unusable_steps >= MAX_UNUSABLE_STEPS:
            raise self._with_result(
                ModelError(
                    f"step {self._step}: the model made only calls that cannot run in {MAX_UNUSABLE_STEPS} "
                    f"steps in a row; the last answer to it was: {outcomes[-1].text[:500]}"
                )
            )
        if loops:
            raise self._with_result(
                LoopDetectedError(
                    f"step {self._step}: {loops[0]!r} was called {self._limits.max_repeats} times with the "
                    "same arguments and the same result, nothing new in between; change the prompt or the "
                    "tool, or raise RunLimits.max_repeats"
                )
            )
        return self._next_step()

    def cancel(self, outcomes: Mapping[int, ToolOutcome]) -> None:
        """Close the history of a turn that is given up during a tool round.

        `outcomes` holds the calls that had finished, by index; the others are marked as cancelled.
        """
        if self._open:
            cancelled = ToolOutcome(text="[cancelled]", kind="cancelled")
            self._add_results([outcomes.get(call.index, call.answer or cancelled) for call in self._open])

    def result(self, finish_reason: str) -> RunResult:
        """Everything done so far."""
        done = self._done
        return RunResult(
            text=done.text,
            reasoning=done.reasoning,
            output=done.text,
            messages=list(done.messages),
            new_messages=done.messages[self._old :],
            tool_calls=list(done.calls),
            steps=list(done.steps),
            usage=done.usage,
            finish_reason=finish_reason,
            repairs=list(done.repairs),
        )

    # --- steps -----------------------------------------------------------------------------------

    def _next_step(self) -> CallModel:
        limit = self._limits.max_total_tokens
        if self._step >= self._limits.max_steps:
            raise self._with_result(
                StepLimitError(
                    f"the model still wants tools after {self._step} steps; raise RunLimits.max_steps, or "
                    "go on from error.result.messages"
                )
            )
        if limit is not None and self._done.usage.total_tokens >= limit:
            raise self._with_result(
                TokenLimitError(
                    f"{self._done.usage.total_tokens} tokens are used after {self._step} steps, the limit is "
                    f"{limit}; raise RunLimits.max_total_tokens, or go on from error.result.messages"
                )
            )
        self._step += 1
        return self._call_model()

    def _call_model(self, because: ModelError | None = None) -> CallModel:
        calls_allowed = bool(self._tools) and self._options.tool_choice != "none"
        asked = Asked(
            step=self._step,
            tools=self._tools,
            calls_allowed=calls_allowed,
            raw_calls_allowed=self._options.raw_tool_calls,
            raw_text=self._raw_text,
            max_output_tokens=self._options.max_output_tokens,
            calls_before=self._done.calls_in_history,
        )
        return CallModel(step=self._step, messages=self._done.messages, asked=asked, because=because)

    def _record(self, reply: SettledReply, timing: StepTiming) -> StepRecord:
        return StepRecord(
            step=self._step,
            finish_reason=reply.finish_reason,
            raw_finish_reason=reply.raw_finish_reason,
            usage=reply.usage,
            repairs=reply.repairs,
            ttft_s=timing.ttft_s,
            duration_s=timing.duration_s,
        )

    # --- replies nobody can use -------------------------------------------------------------------

    def _is_empty(self, reply: SettledReply) -> bool:
        filtered = reply.finish_reason == "content_filter"
        return not (reply.calls or reply.content.strip() or reply.calls_refused or filtered)

    def _on_empty_reply(self, reply: SettledReply) -> CallModel:
        held = "reasoning only" if reply.reasoning else "nothing"
        if reply.finish_reason == "length":
            raise self._with_result(
                ModelError(
                    f"step {self._step}: the reply reached the output limit and held {held}; raise "
                    "ModelOptions.max_output_tokens"
                )
            )
        error = ModelError(
            f"step {self._step}: the reply held {held}, no answer and no call "
            f"(finish_reason {reply.raw_finish_reason!r})",
            retryable=True,
        )
        if self._retried:
            error = ModelError(
                f"{error}, twice. A server whose tool or reasoning parser does not fit the model loses "
                "calls and answers like this: check its parser flags, or try another engine setting",
            )
            raise self._with_result(error)
        self._retried = True
        self._done.repairs.append(
            Repair(kind="empty_reply", where=f"step {self._step}, reply", detail=f"held {held}; asked again")
        )
        return self._call_model(because=error)

    def _with_result(self, error: KimiAgentError) -> KimiAgentError:
        error.result = self.result("error")
        return error

    # --- tools -------------------------------------------------------------------------------------

    def _planned(self, call: SettledCall) -> PlannedCall:
        planned = PlannedCall(index=call.index, id=call.id, name=call.name, arguments=call.arguments)
        if call.problem is not None:
            return replace(planned, answer=ToolOutcome(text=call.explanation, kind=call.problem))
        if self._guard.refuses(call.name, call.arguments):
            return replace(planned, answer=ToolOutcome(text=refusal(call.name), kind="refused"))
        return planned

    def _add_results(self, outcomes: Sequence[ToolOutcome]) -> list[str]:
        """Put the results into the history; the names of the calls that go round in circles."""
        loops: list[str] = []
        counts: dict[str, int] = {}
        for call, outcome in zip(self._open, outcomes, strict=True):
            # The same call several times in one reply counts once: the model could not know better yet.
            key = f"{call.name} {call.arguments!r}"
            if key not in counts:
                counts[key] = self._guard.note(
                    call.name, call.arguments, outcome.text, refused=outcome.kind == "refused"
                )
            count = counts[key]
            text = outcome.text + self._guard.reminder(count)
            if self._guard.is_loop(count):
                loops.append(call.name)
            self._done.messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
            self._done.calls.append(
                ToolCallRecord(
                    step=self._step,
                    index=call.index,
                    id=call.id,
                    name=call.name,
                    arguments=call.arguments,
                    result=text,
                    is_error=outcome.is_error,
                    duration_s=outcome.duration_s,
                )
            )
        self._open = ()
        return loops


def _all_unusable(outcomes: Sequence[ToolOutcome]) -> bool:
    return all(outcome.kind in _UNUSABLE for outcome in outcomes)


def _final_word(reply: SettledReply) -> str:
    """The run's finish reason: a word users know, or the server's own."""
    return reply.finish_reason if reply.finish_reason != "other" else (reply.raw_finish_reason or "stop")
