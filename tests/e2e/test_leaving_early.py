"""Leaving a run's block early, in every way there is: the server sees it, the tools end, nothing stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent import KimiAgent, RetryScheduled, RunLimits, StepStarted, TextDelta, ToolFinished, ToolStarted
from kimi_agent.testing import (
    ScriptedReply,
    adaptive_reply,
    error_reply,
)
from tests.e2e.stuck import ROUND, STUCK, USER, Tools, disconnected, read_until
from tests.e2e.support import is_valid_history, nothing_left, served

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kimi_agent import Run

pytestmark = pytest.mark.anyio


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
    async with served([STUCK]) as (server, agent), nothing_left(), agent.stream("Hello") as run:
        pass

    assert server.requests == []
    assert run.result.messages == [USER]


async def test_leaving_before_the_request_is_sent_is_possible() -> None:
    async with served([STUCK]) as (server, agent), nothing_left(), agent.stream("Hello") as run:
        await read_until(run, StepStarted)

    assert server.requests == []
    assert run.result.finish_reason == "cancelled"


async def fail_inside(run: Run, wanted: type[Any], error: Exception) -> None:
    async with run:
        await read_until(run, wanted)
        raise error


@pytest.mark.parametrize("script", [[STUCK], [ROUND]], ids=["mid-stream", "during a tool"])
async def test_an_exception_in_the_callers_block_comes_out_bare(script: list[ScriptedReply]) -> None:
    tools = Tools()
    wanted = TextDelta if script == [STUCK] else ToolFinished
    async with served(script, tools=tools.all) as (server, agent), nothing_left():
        run = agent.stream("Hello")
        with pytest.raises(ZeroDivisionError) as caught:
            await fail_inside(run, wanted, ZeroDivisionError("mine"))
        if wanted is TextDelta:
            await disconnected(server)

    assert caught.value.args == ("mine",)
    assert caught.value.__cause__ is None
    assert run.result.finish_reason == "error"
    assert is_valid_history(run.result.messages)


async def test_a_group_of_the_callers_own_stays_the_callers() -> None:
    async with served([STUCK]) as (server, agent), nothing_left():
        with pytest.raises(ExceptionGroup) as caught:
            await fail_inside(agent.stream("Hello"), TextDelta, ExceptionGroup("mine", [ValueError("a")]))
        await disconnected(server)

    assert caught.value.message == "mine"
    assert [type(each) for each in caught.value.exceptions] == [ValueError]


async def test_leaving_during_a_tool_cancels_it_and_keeps_what_was_finished() -> None:
    tools = Tools()
    async with (
        served([ROUND], tools=tools.all) as (_, agent),
        nothing_left(),
        agent.stream("Hello") as run,
    ):
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
    async with (
        served([ROUND], tools=tools.all) as (_, agent),
        nothing_left(),
        agent.stream("Hello") as run,
    ):
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
    async with (
        served(script, limits=RunLimits()) as (server, agent),
        nothing_left(),
        agent.stream("Hello") as run,
    ):
        await read_until(run, RetryScheduled)

    assert len(server.requests) == 1
    assert run.result.messages == [USER]


async def test_an_async_generator_of_the_callers_around_a_run_can_be_closed() -> None:
    async def texts(agent: KimiAgent) -> AsyncGenerator[str]:
        async with agent.stream("Hello") as run:
            async for text in run.text_deltas():
                yield text

    async with served([STUCK]) as (server, agent), nothing_left():
        generator = texts(agent)
        assert await anext(generator) == "It "
        await generator.aclose()
        await disconnected(server)
