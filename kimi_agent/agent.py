"""`KimiAgent`, the description of an agent, and `Run`, one turn of it being carried out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel

from kimi_agent._core.dialect_names import api_named, engine_named, generation_named
from kimi_agent._core.encode import ChatEncoder
from kimi_agent._core.encode_completions import CompletionsEncoder
from kimi_agent._core.engine_signs import engine_of_host, engine_of_models, engine_of_reply
from kimi_agent._core.history import prompt_messages
from kimi_agent._core.lessons import Learned
from kimi_agent._core.mending import mended
from kimi_agent._core.model_choice import context_tokens, model_ids, only_model
from kimi_agent._core.turn import Turn
from kimi_agent._core.wire_names import wire_names
from kimi_agent._runtime.connection import connection, model_from_environment
from kimi_agent._runtime.loop_transports import transports
from kimi_agent._runtime.model_list import listed_models
from kimi_agent._runtime.tool_runner import ToolRunner
from kimi_agent._runtime.turn_driver import TurnDriver
from kimi_agent.dialects import GENERATIONS, generation_of
from kimi_agent.dialects.engine import GENERIC
from kimi_agent.dialects.generation import UNKNOWN
from kimi_agent.errors import ConfigurationError, KimiAgentError
from kimi_agent.events import StepFinished, StepStarted, TextDelta, TextReset
from kimi_agent.options import ModelOptions, RunLimits
from kimi_agent.tools import tools_by_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
    from types import TracebackType

    import openai
    from anyio.abc import TaskGroup

    from kimi_agent._core.encode import Encoder
    from kimi_agent.dialects import Engine, Generation
    from kimi_agent.events import Event
    from kimi_agent.json_types import JsonObject
    from kimi_agent.messages import ContentPart, Message, ToolCall
    from kimi_agent.results import RunResult
    from kimi_agent.tools import Approval, Tool
    from kimi_agent.transport import Transport

_CLOSING_S = 5.0


class KimiAgent:
    """A model with its tools; immutable, and able to serve any number of runs at once.

    `model`, `base_url` and `api_key` fall back to `KIMI_MODEL`, `KIMI_BASE_URL` and `KIMI_API_KEY` (then to
    the names that Moonshot's and OpenAI's clients read). Without a model the server's only one is used.

    Raises:
        ConfigurationError: something given cannot work; raised before any request is sent.
    """

    def __init__(  # noqa: PLR0913 - the whole description of an agent, each part named by the caller
        self,
        model: str | None = None,
        *,
        tools: Iterable[Callable[..., Any] | Tool] = (),
        instructions: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        client: openai.AsyncOpenAI | None = None,
        transport: Transport | None = None,
        engine: str | Engine = "auto",
        generation: str | Generation = "auto",
        api: Literal["chat", "completions"] = "chat",
        options: ModelOptions | None = None,
        limits: RunLimits | None = None,
        approve: Callable[[ToolCall], Awaitable[Approval]] | None = None,
    ) -> None:
        if client is not None and (base_url is not None or api_key is not None):
            raise ConfigurationError("give either client= or base_url= and api_key=, not both")
        self._model = model
        self._tools = tools_by_name(tools)
        sent = wire_names(self._tools)
        self._specs = {name: replace(tool.spec, sent_name=sent[name]) for name, tool in self._tools.items()}
        self._instructions = instructions
        self._base_url = base_url
        self._api_key = api_key
        self._client = client
        self._given_transport = transport
        self._engine = engine_named(engine)
        self._generation = generation_named(generation)
        self._api = api_named(api)
        self._learned = Learned()
        self._listed: Sequence[JsonObject] | None = None
        self._options = options if options is not None else ModelOptions()
        self._limits = limits if limits is not None else RunLimits()
        self._approve = approve

    async def run(
        self,
        prompt: str | Sequence[ContentPart] | None,
        *,
        history: Sequence[Message] | None = None,
        deps: Any = None,
    ) -> RunResult:
        """The result of one turn.

        `prompt` is a text, a list of content parts, or `None` to go on from `history`, a list of Chat
        Completions messages, which is not changed. `deps` reaches the tools in their `ToolContext`.

        Raises:
            KimiAgentError: the turn could not be finished; `.result` holds what was done.
        """
        async with self._new_run(prompt, history=history, deps=deps, streamed=False) as run:
            async for _ in run:
                pass
            return run.result

    def run_sync(
        self,
        prompt: str | Sequence[ContentPart] | None,
        *,
        history: Sequence[Message] | None = None,
        deps: Any = None,
    ) -> RunResult:
        """`run`, from code without an event loop.

        Raises:
            ConfigurationError: an event loop is running here; `await run(…)` instead.
        """

        async def run_and_close() -> RunResult:
            try:
                return await self.run(prompt, history=history, deps=deps)
            finally:
                await self.aclose()

        try:
            anyio.lowlevel.current_token()
        except RuntimeError:
            return anyio.run(run_and_close)
        raise ConfigurationError(
            "run_sync was called where an event loop is running: use `await agent.run(…)`"
        )

    def stream(
        self,
        prompt: str | Sequence[ContentPart] | None,
        *,
        history: Sequence[Message] | None = None,
        deps: Any = None,
    ) -> Run:
        """One turn as events: `async with agent.stream(…) as run:`, then `async for event in run:`.

        Arguments as for `run`. Leaving the block, in whatever way, ends the request and the tools.
        """
        return self._new_run(prompt, history=history, deps=deps, streamed=True)

    async def aclose(self) -> None:
        """Close the connections this agent opened in this event loop; a client passed in stays open."""
        transport = transports().pop(self, None)
        if transport is not None:
            await transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _new_run(
        self,
        prompt: str | Sequence[ContentPart] | None,
        *,
        history: Sequence[Message] | None,
        deps: Any,
        streamed: bool,
    ) -> Run:
        before, begun = prompt_messages(prompt, history=history or (), instructions=self._instructions)
        sent, repairs = mended([*before, *begun])
        if all(message.get("role") == "system" for message in sent):
            raise ConfigurationError("nothing but empty messages: there is nothing to answer")
        turn = Turn(
            before,
            begun,
            tools=self._specs,
            options=self._options,
            limits=self._limits,
            repairs=repairs,
            raw_text=self._api == "completions",
        )
        return Run(lambda: self._driver(turn, sent, deps=deps, streamed=streamed))

    async def _driver(self, turn: Turn, sent: list[Message], *, deps: Any, streamed: bool) -> TurnDriver:
        transport = self._connected()
        encoder = await self._encoder(transport, sent, replaced=len(turn.messages))
        for repair in encoder.repairs:
            turn.add_repair(repair)

        make_runner = partial(
            ToolRunner, self._tools, specs=self._specs, limits=self._limits, approve=self._approve, deps=deps
        )
        return TurnDriver(
            turn=turn,
            transport=transport,
            encoder=encoder,
            options=self._options,
            limits=self._limits,
            stream=streamed,
            make_runner=make_runner,
            on_first_chunk=self._look_at,
        )

    async def _encoder(self, transport: Transport, sent: list[Message], *, replaced: int) -> Encoder:
        model = self._model or model_from_environment()
        host = urlsplit(_url(transport)).hostname or ""
        self._engine = self._engine or engine_of_host(host)
        entries: Sequence[JsonObject] = ()
        if model is None or self._api == "completions":
            entries = await self._models(transport, may_fail=model is not None)
            self._engine = self._engine or engine_of_models(entries)
        if model is None:
            model = only_model(model_ids(entries), _url(transport))
        engine = self._engine or GENERIC
        generation = self._generation or generation_of(model)
        parts: dict[str, Any] = {
            "model": model,
            "tools": self._specs,
            "options": self._options,
            "engine": engine,
            "generation": generation,
            "learned": self._learned,
            "mended": sent,
            "replaced": replaced,
        }
        if self._api == "chat":
            return ChatEncoder(**parts)
        if generation is UNKNOWN:
            raise ConfigurationError(
                f"the prompt of {model!r} cannot be rendered: its name tells no generation; pass "
                f"generation=, one of {', '.join(GENERATIONS)}"
            )
        return CompletionsEncoder(**parts, context_tokens=context_tokens(entries, model))

    async def _models(self, transport: Transport, *, may_fail: bool) -> Sequence[JsonObject]:
        if self._listed is None:
            try:
                self._listed = await listed_models(transport, self._limits)
            except KimiAgentError:
                if not may_fail:
                    raise
                return ()
        return self._listed

    def _look_at(self, chunk: JsonObject) -> Engine | None:
        """Learn from a reply what engine the server is; the next run speaks its dialect."""
        if self._engine is None:
            self._engine = engine_of_reply(chunk)
        return self._engine

    def _connected(self) -> Transport:
        transport = self._given_transport or transports().get(self)
        if transport is None:
            # Late, so that importing this package and describing an agent stay cheap.
            from kimi_agent._runtime.openai_transport import OpenAITransport  # noqa: PLC0415

            if self._client is not None:
                transport = OpenAITransport(self._client)
            else:
                target = connection(self._base_url, self._api_key)
                transport = OpenAITransport.connect(base_url=target.base_url, api_key=target.api_key)
            transports()[self] = transport
        return transport


class Run:
    """One turn being carried out; `KimiAgent.stream` makes it.

    Iterate over it for events, or over `text_deltas()` for the text alone, inside its `async with` block.
    """

    def __init__(self, prepare: Callable[[], Awaitable[TurnDriver]]) -> None:
        self._prepare = prepare
        self._driver: TurnDriver | None = None
        self._events: AsyncGenerator[Event] | None = None
        self._group: TaskGroup | None = None
        self._text: list[str] = []
        self._result: RunResult | None = None

    @property
    def text(self) -> str:
        """The answer so far: cleared when a tool round or a retry shows that it was not the answer."""
        return "".join(self._text)

    @property
    def result(self) -> RunResult:
        """The result, once the iterator has ended.

        After a block that was left early it holds what was done until then, its history closed.

        Raises:
            ConfigurationError: the run is still under way.
        """
        if self._result is None:
            raise ConfigurationError(
                "the run is not finished: iterate over it to the end before reading run.result"
            )
        return self._result

    async def __aenter__(self) -> Self:
        if self._driver is not None:
            raise ConfigurationError("a Run can be entered once; call agent.stream(…) for another turn")
        self._driver = await self._prepare()
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._events = self._driver.events(self._group)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._group is None or self._events is None or self._driver is None:  # pragma: no cover
            return
        self._group.cancel_scope.cancel()
        try:
            # Nothing is handed to the group: it would wrap the caller's own exception.
            await self._group.__aexit__(None, None, None)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSING_S):
                await self._events.aclose()
            if self._result is None:
                self._driver.turn.cancel(self._driver.outcomes)
                self._result = self._driver.turn.result("cancelled" if error is None else "error")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._events is None or self._driver is None:
            raise ConfigurationError("iterate inside the block: `async with agent.stream(…) as run:`")
        try:
            event = await self._events.__anext__()
        except StopAsyncIteration:
            self._result = self._driver.result
            raise
        if isinstance(event, TextDelta):
            self._text.append(event.text)
        elif isinstance(event, TextReset | StepStarted):
            self._text.clear()
        return event

    def text_deltas(
        self, *, on_reset: Callable[[str], None] | None = None, final_only: bool = False
    ) -> AsyncIterator[str]:
        """Only the text, as it comes.

        Text that turns out not to be the answer is withdrawn: `on_reset` is called with it, so that it can
        be wiped from a screen. `final_only=True` holds each reply back until it is known to be the answer.
        """
        return _TextDeltas(self, on_reset=on_reset, final_only=final_only)


class _TextDeltas:
    """The text of a run; an iterator rather than a generator, so that leaving it leaves nothing open."""

    def __init__(self, run: Run, *, on_reset: Callable[[str], None] | None, final_only: bool) -> None:
        self._run = run
        self._on_reset = on_reset
        self._final_only = final_only
        self._waiting: list[str] = []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        while True:
            event = await anext(self._run)
            if isinstance(event, TextDelta):
                if not self._final_only:
                    return event.text
                self._waiting.append(event.text)
            elif isinstance(event, TextReset):
                self._waiting.clear()
                if self._on_reset is not None:
                    self._on_reset(event.text)
            elif isinstance(event, StepFinished) and self._waiting:
                text = "".join(self._waiting)
                self._waiting.clear()
                return text


def _url(transport: Transport) -> str:
    return str(getattr(transport, "base_url", "the server"))
