"""What the tests of dialects share: one exchange with a scripted server, and what was sent in it."""

from __future__ import annotations

import copy
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from kimi_agent import KimiAgent, KimiAgentError, RunLimits, Tool
from kimi_agent.json_types import is_array, is_object
from kimi_agent.testing import KimiServer, adaptive_reply, error_reply

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from kimi_agent import RunResult
    from kimi_agent.testing import ReceivedRequest, Reply
    from kimi_agent.testing.server import Script

Body = dict[str, Any]
Row = dict[str, Any]

ANSWER = "It is done."
PROMPT = "And now?"
ASKED: Row = {"role": "user", "content": PROMPT}
USER: Row = {"role": "user", "content": "Hello"}
CHAT, COMPLETIONS, MODELS = "/v1/chat/completions", "/v1/completions", "/v1/models"
FAST = RunLimits(max_retry_delay_s=0.005)
LONGEST_S = 15


@dataclass(kw_only=True)
class Exchange:
    """What one run sent, in order, and what came of it."""

    requests: list[ReceivedRequest] = field(default_factory=list["ReceivedRequest"])
    outcome: RunResult | KimiAgentError | None = None
    executed: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])

    @property
    def result(self) -> RunResult:
        """The result of a run that went well."""
        if isinstance(self.outcome, KimiAgentError):
            raise self.outcome
        assert self.outcome is not None
        return self.outcome

    @property
    def error(self) -> KimiAgentError:
        """The error of a run that failed."""
        assert isinstance(self.outcome, KimiAgentError)
        return self.outcome

    @property
    def bodies(self) -> list[Body]:
        """The decoded bodies, the list of models left aside."""
        return [request.body for request in self.requests if request.path != MODELS]

    @property
    def body(self) -> Body:
        """The one body that was sent."""
        (body,) = self.bodies
        return body

    @property
    def messages(self) -> list[Row]:
        """The messages of the one body, without the prompt at their end."""
        assert self.body["messages"][-1] == ASKED
        return self.body["messages"][:-1]

    @property
    def repairs(self) -> list[tuple[str, str]]:
        """Kind and place of what the run reports."""
        return [(repair.kind, repair.where) for repair in self.result.repairs]

    @property
    def kinds(self) -> list[str]:
        """The kinds alone."""
        return [repair.kind for repair in self.result.repairs]

    @property
    def details(self) -> str:
        """All that the repairs say."""
        return "\n".join(repair.detail for repair in self.result.repairs)


class Refusing:
    """A server that answers an error as long as a request is what it refuses."""

    def __init__(
        self, is_refused: Callable[[Body], bool], message: str, status: int = 400, **more: Any
    ) -> None:
        self._is_refused = is_refused
        self._error = error_reply(status, message, **more)
        self.refused = 0

    def __call__(self, request: ReceivedRequest) -> Reply:
        if self._is_refused(request.body):
            self.refused += 1
            return self._error
        return adaptive_reply(ANSWER)(request)


def answering(request: ReceivedRequest) -> Reply:
    """A plain answer to every request."""
    return adaptive_reply(ANSWER)(request)


def tool_named(name: str, executed: list[tuple[str, Any]], parameters: Row | None = None) -> Tool:
    """A tool that notes its calls."""

    async def function(arguments: Row) -> str:
        executed.append((name, arguments))
        return f"{name} is done"

    return Tool(name=name, parameters=parameters or {"type": "object", "properties": {}}, function=function)


@asynccontextmanager
async def agent_on(
    replies: Script | Mapping[str, Script] = answering,
    *,
    model: str | None = "kimi-k2",
    tools: Sequence[str] = (),
    executed: list[tuple[str, Any]] | None = None,
    limits: RunLimits = FAST,
    **options: Any,
) -> AsyncGenerator[tuple[KimiServer, KimiAgent]]:
    """A server that plays `replies` and an agent on it, for a bounded time."""
    noted = [] if executed is None else executed
    with anyio.fail_after(LONGEST_S):
        async with (
            KimiServer(replies=replies) as server,
            KimiAgent(
                model,
                base_url=server.base_url,
                tools=[tool_named(name, noted) for name in tools],
                limits=limits,
                **options,
            ) as agent,
        ):
            yield server, agent


async def run_of(
    agent: KimiAgent, history: Sequence[Row] = (), *, prompt: Any = PROMPT, streamed: bool = False
) -> RunResult:
    """One run in one of the two ways; the history must stay as it is."""
    given = copy.deepcopy([*history])
    try:
        if not streamed:
            return await agent.run(prompt, history=given)
        async with agent.stream(prompt, history=given) as run:
            async for _ in run:
                pass
        return run.result
    finally:
        assert given == [*history], "the caller's history was changed"


async def exchange(
    history: Sequence[Row] = (),
    replies: Script | Mapping[str, Script] = answering,
    *,
    prompt: Any = PROMPT,
    streamed: bool = False,
    **options: Any,
) -> Exchange:
    """One run of an agent of its own, with what it sent."""
    seen = Exchange()
    async with agent_on(replies, executed=seen.executed, **options) as (server, agent):
        try:
            seen.outcome = await run_of(agent, history, prompt=prompt, streamed=streamed)
        except KimiAgentError as error:
            seen.outcome = error
        seen.requests = server.requests
    return seen


def call(identity: Any, name: str = "get_weather", arguments: Any = '{"city":"Oslo"}') -> Row:
    """A call as it stands in a message."""
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: Any, **more: Any) -> Row:
    """An assistant message with calls, given whole or by their ids."""
    entries: list[Row] = [each if is_object(each) else call(each) for each in calls]
    return {"role": "assistant", **more, "tool_calls": entries}


def told(identity: Any, content: Any = "4 C", **more: Any) -> Row:
    """The result of a call."""
    return {"role": "tool", "tool_call_id": identity, "content": content, **more}


def without(body: Body, *names: str) -> Body:
    """A body without some fields."""
    return {name: value for name, value in body.items() if name not in names}


def messages_bytes(raw: bytes) -> bytes:
    """The bytes of a body up to the end of its last message."""
    start = raw.index(b'"messages":[') + len(b'"messages":[')
    text = raw[start - 1 :].decode()
    _, end = json.JSONDecoder().raw_decode(text)
    return raw[:start] + text[1 : end - 1].encode()


def holds_no_null(value: Any) -> bool:
    """Whether a JSON value holds no null anywhere."""
    if is_object(value):
        return all(holds_no_null(each) for each in value.values())
    if is_array(value):
        return all(holds_no_null(each) for each in value)
    return value is not None
