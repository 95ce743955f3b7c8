"""The server under examination: what is known of it, and requests to it."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from kimi_agent._core.json_bytes import to_json
from kimi_agent._core.lessons import Learned, learn
from kimi_agent._core.request_fields import request_fields, with_lessons
from kimi_agent.dialects.engine import GENERIC
from kimi_agent.dialects.generation import UNKNOWN
from kimi_agent.doctor.observed_reply import ObservedReply
from kimi_agent.errors import (
    EngineOverloadedError,
    InvalidRequestError,
    KimiAgentError,
    RateLimitedError,
    ToolsUnsupportedError,
    TransportConnectionError,
    TransportTimeoutError,
)
from kimi_agent.options import ModelOptions
from kimi_agent.transport import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_agent._core.lessons import Lesson
    from kimi_agent.dialects import Engine, Generation
    from kimi_agent.json_types import JsonObject
    from kimi_agent.transport import Transport

Path = Literal["/chat/completions", "/completions"]

MAX_REPLY_BYTES: Final = 4 * 1024 * 1024
_CONNECT_S: Final = 10.0
_MAX_RESENDINGS: Final = 4
_PAUSE_S: Final = 2.0
_PLAIN_TOKENS: Final = 1024
_THINKING_TOKENS: Final = 4096
_SMALLEST_BUDGET: Final = 64


@dataclass(slots=True, kw_only=True)
class Deployment:
    """A server, one of its models, and what has been found out about them so far."""

    transport: Transport
    base_url: str
    timeout_s: float
    """Seconds one probe may take."""

    model: str | None = None
    engine: Engine | None = None
    """`None`: not known yet, or not recognised."""

    generation: Generation = UNKNOWN
    context_tokens: int | None = None
    learned: Learned = field(default_factory=Learned)
    lessons: list[Lesson] = field(default_factory=list["Lesson"])
    """What the server's refusals taught."""
    _was_cut: bool = False
    """Whether the latest connection was lost."""

    @property
    def dialect(self) -> Engine:
        """The engine to speak to."""
        return self.engine or GENERIC

    @property
    def output_tokens(self) -> int:
        """The output limit of a probe: room for a thought where there may be one."""
        wanted = _PLAIN_TOKENS if self.generation.thinking == "never" else _THINKING_TOKENS
        if self.context_tokens is None:
            return wanted
        return max(_SMALLEST_BUDGET, min(wanted, self.context_tokens // 4))

    @property
    def options(self) -> ModelOptions:
        """What the probes ask for: as little chance as the model takes well, and short thoughts."""
        # A thinking model at temperature 0 repeats itself; those get what is recommended for them.
        calm = self.generation is UNKNOWN or self.generation.thinking == "never"
        return ModelOptions(
            temperature=0.0 if calm else None,
            effort=self.generation.efforts[0] if self.generation.efforts else None,
            max_output_tokens=self.output_tokens,
        )

    def fields(self, *, max_tokens: int | None = None) -> JsonObject:
        """The fields of every probe besides its messages and tools."""
        fields, _ = request_fields(self.options, self.dialect, self.generation)
        if max_tokens is not None:
            fields[self.dialect.output_limit_field] = max_tokens
        return {"model": self.model, **fields}

    async def models(self) -> Sequence[JsonObject]:
        """The entries of the server's list of models.

        Raises:
            KimiAgentError: it did not tell.
        """
        try:
            with anyio.fail_after(self.timeout_s):
                return await self.transport.models()
        except TimeoutError:
            raise self.late() from None

    async def ask(
        self, fields: JsonObject, *, path: Path = "/chat/completions", learns: bool = True
    ) -> ObservedReply:
        """The reply to one request, as it came.

        A server that is busy is asked again, once also one that cut the connection, and, as the agent does
        it, one that refuses a field which can be left out; `learns=False` sends everything as it is.

        Raises:
            KimiAgentError: there was no reply in time, or the server refused.
        """
        try:
            with anyio.fail_after(self.timeout_s):
                for _ in range(_MAX_RESENDINGS):
                    body = with_lessons(fields, self.learned) if learns else fields
                    try:
                        return await self._sent(body, path)
                    except KimiAgentError as error:
                        if not await self._may_resend(error, body, learns=learns):
                            raise
                return await self._sent(with_lessons(fields, self.learned) if learns else fields, path)
        except TimeoutError:
            raise self.late() from None

    async def _may_resend(self, error: KimiAgentError, body: JsonObject, *, learns: bool) -> bool:
        """Whether the request is to be sent again, once it is time to."""
        match error:
            case RateLimitedError() | EngineOverloadedError():
                await anyio.sleep(error.retry_after_s or _PAUSE_S)
                return True
            case TransportConnectionError():
                # A server may close an idle connection in the moment it is used again.
                is_first, self._was_cut = not self._was_cut, True
                return is_first
            case InvalidRequestError():
                return learns and self._learn(error, body)
            case _:
                return False

    def _learn(self, error: InvalidRequestError, body: JsonObject) -> bool:
        # That a server has no tool parser is a finding, nothing to work around here.
        if isinstance(error, ToolsUnsupportedError):
            return False
        lesson = learn(error, self.learned, sent=set(body))
        if lesson is not None:
            self.lessons.append(lesson)
        return lesson is not None

    async def _sent(self, body: JsonObject, path: Path) -> ObservedReply:
        request = Request(
            path=path,
            body=to_json(body),
            stream=body.get("stream") is True,
            silence_timeout_s=self.timeout_s,
            connect_timeout_s=_CONNECT_S,
            max_reply_bytes=MAX_REPLY_BYTES,
        )
        reply = ObservedReply()
        started = anyio.current_time()
        async with aclosing(self.transport.stream(request)) as chunks:
            async for chunk in chunks:
                reply.add(chunk)
        self._was_cut = False
        reply.duration_s = anyio.current_time() - started
        return reply

    def late(self) -> TransportTimeoutError:
        """The error for a server that took too long."""
        return TransportTimeoutError(f"no whole reply within {self.timeout_s:g} s")


def with_tools(fields: JsonObject, tools: Sequence[JsonObject], **more: Any) -> JsonObject:
    """`fields` with tools to call and whatever else is given."""
    return {**fields, "tools": list(tools), **more}
