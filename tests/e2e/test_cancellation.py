"""Runs cancelled from outside: the server sees it, the tools end, nothing stays behind."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kimi_agent import KimiAgent, RetryScheduled, RunLimits, TextDelta, ToolStarted
from kimi_agent.testing import (
    KimiServer,
    ScriptedReply,
    adaptive_reply,
    error_reply,
)
from tests.e2e.stuck import (
    PROMPTLY_S,
    ROUND,
    SILENT,
    STUCK,
    STUCK_WHOLE,
    USER,
    Tools,
    disconnected,
    read_until,
)
from tests.e2e.support import LONGEST_S, asking_for, is_valid_history, nothing_left, served

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


pytestmark = pytest.mark.anyio


async def cancelled_when(agent: KimiAgent, ready: Callable[[], Awaitable[Any]], *, streamed: bool) -> Any:
    """Run the agent in a scope that is cancelled once `ready` returns; the run, if it was streamed."""
    run = agent.stream("Hello") if streamed else None

    async def ask() -> None:
        if run is None:
            await agent.run("Hello")
            return
        async with run:
            async for _ in run:
                pass

    async with anyio.create_task_group() as group:

        async def work() -> None:
            await ask()
            pytest.fail("the run was not cancelled")

        group.start_soon(work)
        await ready()
        group.cancel_scope.cancel()
    return run


STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["run", "stream"])


@STREAMED
async def test_cancelling_while_the_server_is_silent_ends_the_request(streamed: bool) -> None:
    async with served([SILENT]) as (server, agent), nothing_left():
        run = await cancelled_when(
            agent, lambda: server.wait_for_async(lambda: server.requests_open == 1), streamed=streamed
        )
        await disconnected(server)

    if run is not None:
        assert run.result.messages == [USER]


@STREAMED
async def test_cancelling_in_the_middle_of_a_reply_ends_the_request(streamed: bool) -> None:
    script = [STUCK if streamed else STUCK_WHOLE]
    async with served(script) as (server, agent), nothing_left():
        seen = anyio.Event()

        async def ask() -> None:
            if not streamed:
                await agent.run("Hello")
                return
            async with agent.stream("Hello") as run:
                async for event in run:
                    if isinstance(event, TextDelta):
                        seen.set()

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            if streamed:
                await seen.wait()
            else:
                await server.wait_for_async(lambda: server.requests_open == 1)
            group.cancel_scope.cancel()
        await disconnected(server)


@STREAMED
async def test_cancelling_during_a_tool_cancels_the_tool(streamed: bool) -> None:
    tools = Tools()
    async with served([ROUND], tools=tools.all) as (_, agent), nothing_left():
        run = await cancelled_when(agent, tools.started.wait, streamed=streamed)

    assert tools.cancelled == 1
    if run is not None:
        assert run.result.tool_calls[1].result == "[cancelled]"
        assert is_valid_history(run.result.messages)


@STREAMED
async def test_cancelling_during_the_wait_before_a_retry_ends_it(streamed: bool) -> None:
    script = [error_reply(503, "loading", type="server_unavailable", retry_after_s=60), adaptive_reply("x")]
    async with served(script, limits=RunLimits()) as (server, agent), nothing_left():

        async def answered() -> None:
            await server.wait_for_async(lambda: len(server.requests) == 1 and server.requests_open == 0)

        await cancelled_when(agent, answered, streamed=streamed)

    assert len(server.requests) == 1


async def test_cancelling_during_an_approval_ends_it() -> None:
    asked = anyio.Event()

    async def approve(_: Any) -> Any:
        asked.set()
        await anyio.sleep_forever()

    async with served([ROUND], tools=Tools().all, approve=approve) as (_, agent), nothing_left():
        run = await cancelled_when(agent, asked.wait, streamed=True)

    assert [call.result for call in run.result.tool_calls] == ["[cancelled]"] * 3


async def test_cancelling_while_the_models_are_asked_for_ends_the_request() -> None:
    with anyio.fail_after(LONGEST_S):
        async with (
            KimiServer(replies={"/v1/models": SILENT}) as server,
            KimiAgent(base_url=server.base_url) as agent,
            nothing_left(),
        ):
            await cancelled_when(
                agent, lambda: server.wait_for_async(lambda: server.requests_open == 1), streamed=False
            )
            await disconnected(server)


async def test_a_deadline_around_a_run_ends_it() -> None:
    async with served([STUCK]) as (server, agent), nothing_left():
        run = agent.stream("Hello")

        async def ask() -> None:
            with anyio.fail_after(LONGEST_S) as scope:
                async with run:
                    async for event in run:
                        if isinstance(event, TextDelta):
                            scope.deadline = anyio.current_time()

        with pytest.raises(TimeoutError):
            await ask()
        await disconnected(server)

    assert run.result.messages == [USER]


async def test_a_sync_tool_is_not_waited_for_when_the_run_is_left() -> None:
    release, started = threading.Event(), threading.Event()

    def block() -> str:
        """Block a thread."""
        started.set()
        release.wait(LONGEST_S)
        return "late"

    try:
        async with served([asking_for(("block", {}))], tools=[block]) as (_, agent):
            with anyio.fail_after(PROMPTLY_S):
                async with agent.stream("Hello") as run:
                    await read_until(run, ToolStarted)
                    while not started.is_set():
                        await anyio.lowlevel.checkpoint()
            assert not release.is_set()
    finally:
        release.set()

    assert run.result.tool_calls[0].result == "[cancelled]"


async def test_a_tool_that_takes_time_to_clean_up_is_waited_for() -> None:
    cleaned = False
    started = anyio.Event()

    async def careful() -> str:
        """Clean up when cancelled."""
        nonlocal cleaned
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                for _ in range(50):
                    await anyio.lowlevel.checkpoint()
                cleaned = True
        return "never"

    async with served([asking_for(("careful", {}))], tools=[careful]) as (_, agent), nothing_left():
        await cancelled_when(agent, started.wait, streamed=True)

    assert cleaned


async def test_one_cancelled_run_does_not_touch_another() -> None:
    async with (
        served(
            lambda request: (
                STUCK if request.body["messages"][0]["content"] == "stuck" else adaptive_reply("ok")(request)
            )
        ) as (server, agent),
        nothing_left(),
    ):
        async with agent.stream("stuck") as run:
            await read_until(run, TextDelta)
            other = await agent.run("fine")
        await disconnected(server)
        third = await agent.run("fine")

    assert (other.text, third.text) == ("ok", "ok")


# --- asyncio's own cancellation ----------------------------------------------------------------


asyncio_only = pytest.mark.parametrize("anyio_backend", ["asyncio"])


async def cancel_task_when(work: Any, ready: Any) -> None:
    task = asyncio.create_task(work)
    await ready
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@asyncio_only
@STREAMED
@pytest.mark.parametrize("where", ["silent", "mid-stream", "tool", "retry"])
async def test_cancelling_the_task_ends_everything(where: str, streamed: bool) -> None:
    tools = Tools()
    replies: dict[str, ScriptedReply] = {
        "silent": SILENT,
        "mid-stream": STUCK if streamed else STUCK_WHOLE,
        "tool": ROUND,
        "retry": error_reply(503, "loading", type="server_unavailable", retry_after_s=60),
    }
    async with (
        served([replies[where]], tools=tools.all, limits=RunLimits()) as (server, agent),
        nothing_left(),
    ):
        seen = anyio.Event()

        async def ask() -> None:
            if not streamed:
                await agent.run("Hello")
                return
            async with agent.stream("Hello") as run:
                async for event in run:
                    if isinstance(event, TextDelta | RetryScheduled):
                        seen.set()

        if where == "tool":
            ready: Any = tools.started.wait()
        elif streamed and where != "silent":
            ready = seen.wait()
        elif where == "retry":
            ready = server.wait_for_async(lambda: len(server.requests) == 1 and server.requests_open == 0)
        else:
            ready = server.wait_for_async(lambda: server.requests_open == 1)
        await cancel_task_when(ask(), ready)
        if where in ("silent", "mid-stream"):
            await disconnected(server)

    assert tools.cancelled == (where == "tool")
    assert len(server.requests) == 1


@asyncio_only
async def test_a_cancelled_task_may_clean_up_with_the_result_at_hand() -> None:
    tools = Tools()
    kept: list[Any] = []
    async with served([ROUND], tools=tools.all) as (_, agent), nothing_left():

        async def ask() -> None:
            run = agent.stream("Hello")
            try:
                async with run:
                    async for _ in run:
                        pass
            except asyncio.CancelledError:
                kept.append(run.result)
                raise

        await cancel_task_when(ask(), tools.started.wait())

    [result] = kept
    assert [call.result for call in result.tool_calls] == ["finished", "[cancelled]", "finished"]


@asyncio_only
async def test_asyncios_own_deadline_around_a_run_ends_it() -> None:
    async with served([STUCK]) as (server, agent), nothing_left():
        run = agent.stream("Hello")

        async def ask() -> None:
            async with asyncio.timeout(LONGEST_S) as deadline, run:
                async for event in run:
                    if isinstance(event, TextDelta):
                        deadline.reschedule(0)

        with pytest.raises(TimeoutError):
            await ask()
        await disconnected(server)

    assert run.result.messages == [USER]
