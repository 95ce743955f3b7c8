"""Runs the calls of a reply side by side; every one of them gets exactly one outcome."""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from pydantic_core import PydanticSerializationError, to_jsonable_python

from kimi_agent._core.redaction import one_line
from kimi_agent._core.turn import ToolOutcome
from kimi_agent.events import ToolFinished, ToolStarted
from kimi_agent.json_types import is_object
from kimi_agent.messages import ToolCall
from kimi_agent.tools import Approval, InvalidArgumentsError, ToolContext, ToolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kimi_agent._core.turn import PlannedCall, RunTools
    from kimi_agent.events import ToolEvent
    from kimi_agent.messages import ToolSpec
    from kimi_agent.options import RunLimits
    from kimi_agent.tools import Tool

_LOG = logging.getLogger("kimi_agent.tools")


class ToolRunner:
    """Carries out one agent's calls."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        *,
        specs: Mapping[str, ToolSpec],
        limits: RunLimits,
        approve: Callable[[ToolCall], Awaitable[Approval]] | None,
        deps: Any,
        emit: Callable[[ToolEvent], None],
    ) -> None:
        self._tools = tools
        self._specs = specs
        self._limits = limits
        self._approve = approve
        self._deps = deps
        self._emit = emit
        self._limiter = anyio.CapacityLimiter(limits.max_parallel_tools)
        self._threads = anyio.CapacityLimiter(limits.max_parallel_tools)

    async def run(self, command: RunTools, outcomes: dict[int, ToolOutcome]) -> None:
        """Fill `outcomes`, by call index, as calls finish."""
        async with anyio.create_task_group() as group:
            for call in command.calls:
                if call.answer is None:
                    group.start_soon(self._run_one, call, command.step, outcomes)
                else:
                    self._finish(_tool_call(call, command.step), call.answer, outcomes)

    def _finish(self, call: ToolCall, outcome: ToolOutcome, outcomes: dict[int, ToolOutcome]) -> None:
        outcomes[call.index] = outcome
        self._emit(
            ToolFinished(
                call=call, result=outcome.text, is_error=outcome.is_error, duration_s=outcome.duration_s
            )
        )

    async def _run_one(self, planned: PlannedCall, step: int, outcomes: dict[int, ToolOutcome]) -> None:
        call = _tool_call(planned, step)
        started = anyio.current_time()
        outcome = await self._guarded(call, planned)
        duration_s = anyio.current_time() - started
        self._finish(call, dataclasses.replace(outcome, duration_s=duration_s), outcomes)

    async def _guarded(self, call: ToolCall, planned: PlannedCall) -> ToolOutcome:
        """The outcome, whatever the approval or the tool raises."""
        try:
            denied, call = await self._approved(call)
            if denied is not None:
                return denied
            async with self._limiter:
                return await self._timed(self._tools[planned.name], call)
        except InvalidArgumentsError as error:
            return ToolOutcome(text=str(error), kind="invalid_arguments")
        except ToolError as error:
            return ToolOutcome(text=str(error), kind="error")
        except anyio.get_cancelled_exc_class():
            if anyio.current_effective_deadline() == -math.inf:
                raise
            # Nobody cancelled the run: the tool awaited something that was cancelled by itself.
            return ToolOutcome(text=f"The tool {call.name!r} was cancelled.", kind="cancelled")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a tool's body may raise anything
            _LOG.exception("tool %r failed (step %d, call %s)", call.name, call.step, call.id)
            return ToolOutcome(text=f"The tool {call.name!r} failed: {_told(error)}", kind="error")

    async def _approved(self, call: ToolCall) -> tuple[ToolOutcome | None, ToolCall]:
        if self._approve is None:
            return None, call
        try:
            answer: Any = self._approve(call)
            approval = _as_approval(await answer if inspect.isawaitable(answer) else answer)
        except Exception:  # noqa: BLE001 - a failed approval approves nothing
            _LOG.exception("approving %r failed (step %d, call %s)", call.name, call.step, call.id)
            return ToolOutcome(text="The call could not be approved, so it was not run.", kind="denied"), call
        if not approval.allowed:
            reason = f": {approval.reason}" if approval.reason else "."
            return ToolOutcome(text=f"The call was not allowed{reason}", kind="denied"), call
        if approval.arguments is not None:
            call = dataclasses.replace(call, arguments=approval.arguments)
        return None, call

    async def _timed(self, tool: Tool, call: ToolCall) -> ToolOutcome:
        context = ToolContext(call=call, step=call.step, deps=self._deps)
        prepared = tool.prepare(call.arguments, context, spec=self._specs[call.name])
        self._emit(ToolStarted(call=call))
        timeout_s = tool.timeout_s if tool.timeout_s is not None else self._limits.tool_timeout_s
        with anyio.move_on_after(timeout_s) as scope:
            value = await self._called(tool, prepared)
            return ToolOutcome(text=result_text(value, tool.name))
        if not scope.cancelled_caught:  # pragma: no cover - the scope ends by a result or by its deadline
            raise AssertionError
        # Not "was stopped": the thread of a plain function goes on.
        return ToolOutcome(
            text=f"The tool {tool.name!r} did not finish within {timeout_s:g} s and is waited for no longer.",
            kind="timeout",
        )

    async def _called(self, tool: Tool, prepared: Callable[[], Any]) -> Any:
        if tool.is_async:
            value = prepared()
        else:
            # Abandoned on cancellation: a thread cannot be stopped, but nobody has to wait for it.
            # Boxed, since trio refuses a thread's result that could be awaited.
            (value,) = await anyio.to_thread.run_sync(
                lambda: (prepared(),), abandon_on_cancel=True, limiter=self._threads
            )
        return await value if inspect.isawaitable(value) else value


def _told(error: BaseException) -> str:
    """One line about an exception; some cannot even say what they are."""
    with suppress(Exception):
        if told := one_line(str(error)):
            return f"{type(error).__name__}: {told}"
    return type(error).__name__


def _as_approval(answer: Any) -> Approval:
    """The approval an `approve` function gave; a plain bool counts as one.

    Raises:
        TypeError: it gave something else, which approves nothing.
    """
    if isinstance(answer, bool):
        return Approval(allowed=answer)
    if isinstance(answer, Approval):
        return answer
    message = f"approve must return an Approval or a bool, got {type(answer).__name__}"
    raise TypeError(message)


def result_text(value: Any, name: str) -> str:
    """A tool's result as the text the model gets: a string as it is, anything else as JSON.

    Raises:
        ToolError: JSON cannot hold it.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        raise ToolError(
            f"The tool {name!r} returned {type(value).__name__}, which cannot be shown to a model; decode "
            "it to text, or return a data: URL in a content part"
        )
    try:
        return json.dumps(to_jsonable_python(value), ensure_ascii=False, allow_nan=False)
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        raise ToolError(
            f"The tool {name!r} returned {type(value).__name__}, which JSON cannot hold: "
            f"{one_line(str(error))}"
        ) from error


def _tool_call(planned: PlannedCall, step: int) -> ToolCall:
    arguments = planned.arguments if is_object(planned.arguments) else {}
    return ToolCall(index=planned.index, id=planned.id, name=planned.name, arguments=arguments, step=step)
