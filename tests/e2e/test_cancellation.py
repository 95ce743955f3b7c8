"""Leaving a run early, in every way there is: the server sees it, the tools end, nothing stays behind."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kimi_agent import KimiAgent, RetryScheduled, RunLimits, StepStarted, TextDelta, ToolFinished, ToolStarted
from kimi_agent.testing import (
    Delay,
    Hang,
    KimiServer,
    Reply,
    ScriptedReply,
    Reset,
    adaptive_reply,
    chunk,
    error_reply,
    stream_reply,
)
from tests.e2e.support import LONGEST_S, asking_for, is_valid_history, nothing_left, served

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kimi_agent import Run

pytestmark = pytest.mark.anyio

SILENT = Reply(before=(Hang(),))
"""Takes the request and never answers."""

STUCK = stream_reply([chunk({"content": "It "}), chunk({"content": "is"}), Hang()])
"""Begins to answer and then hangs."""

STUCK_WHOLE = Reply(headers={"content-type": "application/json"}, body=['{"choices": [', Hang()])

PROMPTLY_S = 2.0
USER = {"role": "user", "content": "Hello"}


class Tools:
    """An async tool that finishes, one that never does, and what became of the latter."""

    def __init__(self) -> None:
        self.started = anyio.Event()
        self.cancelled = 0

    async def quick(self) -> str:
        """Finish at once."""
        return "finished"

    async def stuck(self) -> str:
        """Never finish."""
        self.started.set()
        try:
            await anyio.sleep_forever()
        except BaseException:
            self.cancelled += 1
            raise
        return "never"

    @property
    def all(self) -> list[Callable[[], Awaitable[str]]]:
        return [self.quick, self.stuck]


ROUND = asking_for(("quick", {}), ("stuck", {}), ("quick", {}), text="Let me see.")


async def read_until(run: Run, wanted: type[Any]) -> None:
    async for event in run:
        if isinstance(event, wanted):
            return


def disconnected(server: KimiServer) -> Any:
    return server.wait_for_async(lambda: server.disconnects == 1 and server.requests_open == 0, PROMPTLY_S)


# --- the caller's block ------------------------------------------------------------------------


async def test_breaking_out_of_the_loop_ends_the_request() -> None:
    async with served([STUCK]) as (server, agent), nothing_left():
        async with agent.stream("Hello") as run:
            async for event in run:
                if isinstance(event, TextDelta) and event.text == "is":
                    break
        await disconnected(server)

    assert run.text == "It is"
    assert run.result.finish_reason == "cancelled"
    assert run.result.messages == [USER]
    assert (run.result.steps, run.result.text) == ([], "")


async def test_breaking_out_of_text_deltas_ends_the_request_too() -> None:
    async with served([STUCK]) as (server, agent), nothing_left():
        async with agent.stream("Hello") as run:
            async for text in run.text_deltas():
                assert text == "It "
                break
        await disconnected(server)

    assert run.result.messages == [USER]


async def test_a_block_that_reads_nothing_sends_nothing() -> None:
    async with served([STUCK]) as (server, agent), nothing_left():
        async with agent.stream("Hello") as run:
            pass

    assert server.requests == []
    assert run.result.messages == [USER]


async def test_leaving_before_the_request_is_sent_is_possible() -> None:
    async with served([STUCK]) as (server, agent), nothing_left():
        async with agent.stream("Hello") as run:
            await read_until(run, StepStarted)

    assert server.requests == []
    assert run.result.finish_reason == "cancelled"


@pytest.mark.parametrize("script", [[STUCK], [ROUND]], ids=["mid-stream", "during a tool"])
async def test_an_exception_in_the_callers_block_comes_out_bare(script: list[ScriptedReply]) -> None:
    tools = Tools()
    wanted = TextDelta if script == [STUCK] else ToolFinished
    async with served(script, tools=tools.all) as (server, agent), nothing_left():
        run = agent.stream("Hello")
        with pytest.raises(ZeroDivisionError) as caught:
            async with run:
                await read_until(run, wanted)
                raise ZeroDivisionError("mine")
        if wanted is TextDelta:
            await disconnected(server)

    assert caught.value.args == ("mine",)
    assert caught.value.__cause__ is None
    assert run.result.finish_reason == "error"
    assert is_valid_history(run.result.messages)


async def test_a_group_of_the_callers_own_stays_the_callers() -> None:
    async with served([STUCK]) as (server, agent), nothing_left():
        with pytest.raises(ExceptionGroup) as caught:
            async with agent.stream("Hello") as run:
                await read_until(run, TextDelta)
                raise ExceptionGroup("mine", [ValueError("a")])
        await disconnected(server)

    assert caught.value.message == "mine"
    assert [type(each) for each in caught.value.exceptions] == [ValueError]


async def test_leaving_during_a_tool_cancels_it_and_keeps_what_was_finished() -> None:
    tools = Tools()
    async with served([ROUND], tools=tools.all) as (_, agent), nothing_left():
        async with agent.stream("Hello") as run:
            finished = 0
            async for event in run:
                finished += isinstance(event, ToolFinished)
                if finished == 2:
                    await tools.started.wait()
                    break

    assert tools.cancelled == 1
    result = run.result
    assert result.finish_reason == "cancelled"
    assert [(call.result, call.is_error) for call in result.tool_calls] == [
        ("finished", False),
        ("[cancelled]", True),
        ("finished", False),
    ]
    assert [message["content"] for message in result.messages if message["role"] == "tool"] == [
        "finished",
        "[cancelled]",
        "finished",
    ]
    assert is_valid_history(result.messages)


async def test_leaving_between_a_reply_and_its_tools_leaves_a_valid_history() -> None:
    tools = Tools()
    async with served([ROUND], tools=tools.all) as (_, agent), nothing_left():
        async with agent.stream("Hello") as run:
            async for event in run:
                if event.type == "step_finished":
                    break

    assert [call.result for call in run.result.tool_calls] == ["[cancelled]"] * 3
    assert is_valid_history(run.result.messages)


async def test_a_cancelled_run_goes_on_from_its_history() -> None:
    tools = Tools()
    async with served([ROUND, adaptive_reply("I gave up.")], tools=tools.all) as (server, agent):
        async with agent.stream("Hello") as run:
            await read_until(run, ToolStarted)
        result = await agent.run("What happened?", history=run.result.messages)

    assert result.text == "I gave up."
    assert [message["role"] for message in server.requests[1].body["messages"]] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "tool",
        "user",
    ]


async def test_leaving_during_the_wait_before_a_retry_ends_it() -> None:
    script = [error_reply(503, "loading", type="server_unavailable", retry_after_s=60), adaptive_reply("x")]
    async with served(script, limits=RunLimits()) as (server, agent), nothing_left():
        async with agent.stream("Hello") as run:
            await read_until(run, RetryScheduled)

    assert len(server.requests) == 1
    assert run.result.messages == [USER]


async def test_an_async_generator_of_the_callers_around_a_run_can_be_closed() -> None:
    async def texts(agent: KimiAgent) -> Any:
        async with agent.stream("Hello") as run:
            async for text in run.text_deltas():
                yield text

    async with served([STUCK]) as (server, agent), nothing_left():
        generator = texts(agent)
        assert await anext(generator) == "It "
        await generator.aclose()
        await disconnected(server)


# --- cancellation from outside -----------------------------------------------------------------


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
        async with KimiServer(replies={"/v1/models": SILENT}) as server:
            async with KimiAgent(base_url=server.base_url) as agent, nothing_left():
                await cancelled_when(
                    agent, lambda: server.wait_for_async(lambda: server.requests_open == 1), streamed=False
                )
                await disconnected(server)


async def test_a_deadline_around_a_run_ends_it() -> None:
    async with served([STUCK]) as (server, agent), nothing_left():
        run = agent.stream("Hello")
        with pytest.raises(TimeoutError), anyio.fail_after(LONGEST_S) as scope:
            async with run:
                async for event in run:
                    if isinstance(event, TextDelta):
                        scope.deadline = anyio.current_time()
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
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(LONGEST_S) as deadline, run:
                async for event in run:
                    if isinstance(event, TextDelta):
                        deadline.reschedule(0)
        await disconnected(server)

    assert run.result.messages == [USER]
