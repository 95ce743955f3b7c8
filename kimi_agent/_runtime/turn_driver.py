"""Performs the commands of one turn: asks the model, repeats what failed, runs the tools."""

from __future__ import annotations

import logging
import math
import random
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

import anyio

from kimi_agent._core.advice import parser_flags, request_findings
from kimi_agent._core.backoff import delay_before, may_retry
from kimi_agent._core.model_choice import meant_model, model_ids
from kimi_agent._core.reply_reader import ReplyReader
from kimi_agent._core.settle import settle
from kimi_agent._core.turn import CallModel, Finish, RunTools, StepTiming, ToolOutcome
from kimi_agent.dialects.engine import VLLM
from kimi_agent.errors import (
    InvalidRequestError,
    KimiAgentError,
    ModelNotFoundError,
    ServerLoadingError,
    ToolsUnsupportedError,
    TransportConnectionError,
    TransportTimeoutError,
)
from kimi_agent.events import (
    Event,
    RetryScheduled,
    StepFinished,
    StepStarted,
    TextDelta,
    TextReset,
    ToolCallDelta,
    ToolCallStarted,
)
from kimi_agent.results import Repair
from kimi_agent.transport import END_OF_REPLY, Request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from anyio.abc import TaskGroup

    from kimi_agent._core.encode import Encoder
    from kimi_agent._core.reply_reader import Reply
    from kimi_agent._core.settled import SettledReply
    from kimi_agent._core.turn import Turn
    from kimi_agent._runtime.tool_runner import ToolRunner
    from kimi_agent.dialects import Engine
    from kimi_agent.events import ModelEvent
    from kimi_agent.json_types import JsonObject
    from kimi_agent.options import ModelOptions, RunLimits
    from kimi_agent.results import RunResult
    from kimi_agent.transport import Transport


_LOG = logging.getLogger("kimi_agent")
_LISTING_S = 3.0
_LOADING_DELAY_S = 2.0


@dataclass(slots=True)
class _Attempt:
    """One sending of a step's request."""

    reader: ReplyReader
    started: float
    first: float | None = None
    reply: Reply | None = None
    is_known: bool = False
    """Whether the first chunk has been looked at."""


@dataclass(kw_only=True)
class TurnDriver:
    """Carries out one turn. `events` is to be iterated once; `group` runs its tools."""

    turn: Turn
    transport: Transport
    encoder: Encoder
    options: ModelOptions
    limits: RunLimits
    stream: bool
    make_runner: Callable[..., ToolRunner]
    """Makes the runner of a tool round, given `emit`, which takes its events."""
    on_first_chunk: Callable[[JsonObject], Engine | None]
    """Told the first chunk of every reply; gives the engine that the server shows itself to be."""
    outcomes: dict[int, ToolOutcome] = field(default_factory=dict[int, ToolOutcome])
    """The finished calls of the tool round under way, by index."""
    result: RunResult | None = None
    seen_engine: Engine | None = None
    _noted_parser: bool = False

    def learn(self, error: KimiAgentError) -> bool:
        """Whether the error taught a change, so that the request is to be sent again at once."""
        lesson = self.encoder.learn(error)
        if lesson is None:
            return False
        detail = lesson.detail
        if lesson.kind == "raw_tool_mode":
            # Only vLLM refuses like this, so its flags are meant.
            detail += f"; better {parser_flags(VLLM, self.encoder.generation)}"
            self._noted_parser = True
            self.encoder.warn_once("missing_parser")
        self.turn.add_repair(Repair(kind=lesson.kind, where="request", detail=detail))
        if lesson.is_new and self.encoder.warn_once(detail):
            _LOG.warning("%s (model %s)", detail, self.encoder.model)
        return True

    def note_missing_parser(self) -> None:
        """Report, once a run, and log, once an agent, that the server leaves calls as text."""
        if self._noted_parser or self.encoder.path != "/chat/completions":
            return
        self._noted_parser = True
        advice = parser_flags(self.seen_engine or self.encoder.engine, self.encoder.generation)
        detail = f"the server left tool calls as raw text; they were read, but better {advice}"
        self.turn.add_repair(Repair(kind="missing_parser", where="server", detail=detail))
        if self.encoder.warn_once("missing_parser"):
            _LOG.warning("%s (model %s)", detail, self.encoder.model)

    async def events(self, group: TaskGroup) -> AsyncGenerator[Event]:
        """Everything that happens, until the turn is over.

        Raises:
            KimiAgentError: the turn cannot go on; `.result` holds what was done.
        """
        command = self.turn.start()
        try:
            while True:
                match command:
                    case CallModel():
                        step = _Step(self, command)
                        async with aclosing(step.events()) as events:
                            async for event in events:
                                yield event
                        command = step.next_command
                    case RunTools():
                        async with aclosing(self._run_tools(command, group)) as events:
                            async for event in events:
                                yield event
                        outcomes, self.outcomes = self.outcomes, {}
                        command = self.turn.on_tool_results([outcomes[call.index] for call in command.calls])
                    case Finish():
                        self.result = command.result
                        return
                    case _:
                        assert_never(command)
        except KimiAgentError as error:
            if error.result is None:
                error.result = self.turn.result("error")
            raise

    async def _run_tools(self, command: RunTools, group: TaskGroup) -> AsyncGenerator[Event]:
        send, receive = anyio.create_memory_object_stream[Event](math.inf)
        runner = self.make_runner(emit=send.send_nowait)

        async def round_of_tools() -> None:
            with send:
                await runner.run(command, self.outcomes)

        group.start_soon(round_of_tools)
        with receive:
            async for event in receive:
                yield event


class _Step:
    """One step's request, sent until a reply can be used."""

    def __init__(self, driver: TurnDriver, command: CallModel) -> None:
        self._driver = driver
        self._command = command
        self._stream = driver.stream
        self._failures = 0
        """Failures that count against `RunLimits.max_retries`."""
        self._loading_since: float | None = None
        self.next_command: CallModel | RunTools | Finish = command

    async def events(self) -> AsyncGenerator[Event]:
        """The events of the step, from `StepStarted` to `StepFinished`."""
        yield StepStarted(step=self._command.step)
        attempt = 0
        while True:
            attempt += 1
            tried = self._begin()
            try:
                async with aclosing(self._receive(tried)) as received:
                    async for event in received:
                        yield event
                settled, command = self._decide(tried)
            except KimiAgentError as error:
                if tried.reply is None:
                    self._driver.turn.on_failure()
                delay_s = self._delay(error)
                failure = await self._explained(error, tried)
                if delay_s is None:
                    raise failure from error.__cause__
            else:
                if not (isinstance(command, CallModel) and command.because is not None):
                    self.next_command = command
                    for event in _closing_events(tried, settled, command, self._command.step):
                        yield event
                    return
                # A reply that vLLM garbles in a stream it may well get right as a whole.
                failure, self._command, self._stream, delay_s = command.because, command, False, 0.0
            if tried.reader.shown:
                yield TextReset(text=tried.reader.shown, reason="retry")
            yield RetryScheduled(attempt=attempt, delay_s=delay_s, error=failure)
            await anyio.sleep(delay_s)

    def _delay(self, error: KimiAgentError) -> float | None:
        """Seconds until the request is sent again, or `None` if it is not."""
        if self._driver.learn(error):
            return 0.0
        limits = self._driver.limits
        if isinstance(error, ServerLoadingError):
            now = anyio.current_time()
            self._loading_since = now if self._loading_since is None else self._loading_since
            if now - self._loading_since < limits.loading_timeout_s:
                return min(error.retry_after_s or _LOADING_DELAY_S, limits.max_retry_delay_s)
        if self._failures >= limits.max_retries or not may_retry(error):
            return None
        self._failures += 1
        spread = random.random()  # noqa: S311 - spreads clients, hides nothing
        return delay_before(error, attempt=self._failures, spread=spread, longest_s=limits.max_retry_delay_s)

    def _begin(self) -> _Attempt:
        encoder = self._driver.encoder
        reader = ReplyReader(
            {spec.wire_name: name for name, spec in self._command.asked.tools.items()},
            text_format=encoder.text_format,
            starts_in_thought=encoder.starts_in_thought,
        )
        return _Attempt(reader=reader, started=anyio.current_time())

    async def _receive(self, tried: _Attempt) -> AsyncGenerator[ModelEvent]:
        driver, reader = self._driver, tried.reader
        try:
            async with aclosing(driver.transport.stream(self._request())) as chunks:
                async for chunk in chunks:
                    if chunk is END_OF_REPLY:
                        reader.end()
                        continue
                    if not tried.is_known:
                        tried.is_known = True
                        driver.seen_engine = driver.on_first_chunk(chunk) or driver.seen_engine
                    for event in reader.feed(chunk):
                        if tried.first is None:
                            tried.first = anyio.current_time()
                        yield event
        except (TransportConnectionError, TransportTimeoutError):
            if not reader.is_finished:
                raise
        closing, tried.reply = reader.close()
        for event in closing:
            yield event

    def _request(self) -> Request:
        driver, limits = self._driver, self._driver.limits
        body = driver.encoder.body(self._command.messages, stream=self._stream, first=self._command.step == 1)
        return Request(
            path=driver.encoder.path,
            body=body,
            stream=self._stream,
            headers=driver.options.extra_headers,
            silence_timeout_s=limits.request_timeout_s,
            connect_timeout_s=limits.connect_timeout_s,
            max_reply_bytes=limits.max_reply_bytes,
        )

    def _decide(self, tried: _Attempt) -> tuple[SettledReply, CallModel | RunTools | Finish]:
        if tried.reply is None:  # pragma: no cover - _receive sets it or raises
            raise AssertionError
        settled = settle(tried.reply, self._command.asked)
        if any(call.recovered for call in settled.calls):
            self._driver.note_missing_parser()
        timing = StepTiming(
            ttft_s=None if tried.first is None else tried.first - tried.started,
            duration_s=anyio.current_time() - tried.started,
        )
        return settled, self._driver.turn.on_reply(settled, timing)

    async def _explained(self, error: KimiAgentError, tried: _Attempt) -> KimiAgentError:
        """`error` with what is known here: the text received so far, and what may be wrong."""
        driver = self._driver
        if not error.partial_text:
            error.partial_text = tried.reader.shown
        if isinstance(error, ModelNotFoundError) and not error.available:
            await self._list_models(error)
        elif isinstance(error, ToolsUnsupportedError):
            error.args = (f"{error}: {parser_flags(driver.encoder.engine, driver.encoder.generation)}",)
        elif type(error) is InvalidRequestError:
            error.findings = request_findings(self._command.messages, self._command.asked.tools)
            error.args = (f"{error}. Seen from here: {'; '.join(error.findings)}",)
        return error

    async def _list_models(self, error: ModelNotFoundError) -> None:
        try:
            with anyio.fail_after(_LISTING_S):
                models = await self._driver.transport.models()
        except (KimiAgentError, TimeoutError):
            return
        error.available = tuple(model_ids(models))
        error.suggestion = meant_model(self._driver.encoder.model, error.available)
        hint = f" Did you mean {error.suggestion!r}?" if error.suggestion else ""
        error.args = (f"{error}. The server has: {', '.join(error.available) or 'none'}.{hint}",)


def _closing_events(
    tried: _Attempt, settled: SettledReply, command: RunTools | Finish | CallModel, step: int
) -> Iterator[Event]:
    """What remains to be told once a reply is understood."""
    yield from _recovered_calls(settled)
    shown = tried.reader.shown
    if isinstance(command, RunTools):
        if shown:
            yield TextReset(text=shown, reason="tool_calls")
    elif shown != settled.content:
        # Text turned out to be something else, e.g. a call without markers that was not allowed.
        if shown:
            yield TextReset(text=shown, reason="reasoning")
        if settled.content:
            yield TextDelta(text=settled.content)
    yield StepFinished(
        step=step,
        message=settled.message(),
        finish_reason=settled.finish_reason,
        raw_finish_reason=settled.raw_finish_reason,
        usage=settled.usage,
    )


def _recovered_calls(settled: SettledReply) -> Iterator[Event]:
    for call in settled.calls:
        if call.recovered:
            yield ToolCallStarted(index=call.index, id=call.id, name=call.name)
            yield ToolCallDelta(index=call.index, arguments=call.arguments_text)
