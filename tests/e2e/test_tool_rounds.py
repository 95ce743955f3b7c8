"""Tool rounds: side by side, bounded, results in call order, each call with its context."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from kimi_agent import RunLimits, ToolContext, ToolFinished, ToolStarted, tool
from kimi_agent.testing import adaptive_reply
from tests.e2e.support import (
    LONGEST_S,
    asking_for,
    events_of,
    is_valid_history,
    result_of,
    results_told,
    served,
)

pytestmark = pytest.mark.anyio

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
DONE = adaptive_reply("done")
PARTIES = 4


@STREAMED
async def test_calls_of_one_reply_run_at_the_same_time(streamed: bool) -> None:
    arrived, all_here = list[int](), anyio.Event()

    async def meet(number: int) -> str:
        """Wait until every call of the reply is under way."""
        arrived.append(number)
        if len(arrived) == PARTIES:
            all_here.set()
        await all_here.wait()
        return f"{number} met {len(arrived)}"

    script = [asking_for(*(("meet", {"number": number}) for number in range(PARTIES))), DONE]
    async with served(script, tools=[meet]) as (server, agent):
        await result_of(agent, streamed=streamed)

    assert results_told(server.requests[1]) == [f"{number} met {PARTIES}" for number in range(PARTIES)]


async def test_sync_tools_run_at_the_same_time_in_threads_and_the_loop_goes_on() -> None:
    barrier = threading.Barrier(PARTIES + 1, timeout=LONGEST_S)

    def meet(number: int) -> str:
        """Wait until every thread is here, and the loop too."""
        barrier.wait()
        return f"{number} in {threading.current_thread() is not threading.main_thread()}"

    script = [asking_for(*(("meet", {"number": number}) for number in range(PARTIES))), DONE]
    async with served(script, tools=[meet]) as (server, agent), anyio.create_task_group() as group:

        async def come_last() -> None:
            # Runs in the loop while the tools block their threads.
            while barrier.n_waiting < PARTIES:
                await anyio.lowlevel.checkpoint()
            barrier.wait()

        group.start_soon(come_last)
        await agent.run("Hello")

    assert results_told(server.requests[1]) == [f"{number} in True" for number in range(PARTIES)]


@pytest.mark.parametrize("limit", [1, 3])
async def test_no_more_tools_run_at_once_than_allowed(limit: int) -> None:
    running, most, full = 0, 0, anyio.Event()
    total = 7

    async def count(number: int) -> str:
        """Count who is running."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == limit:
            full.set()
        await full.wait()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        running -= 1
        return str(number)

    script = [asking_for(*(("count", {"number": number}) for number in range(total))), DONE]
    limits = RunLimits(max_parallel_tools=limit)
    async with served(script, tools=[count], limits=limits) as (server, agent):
        await agent.run("Hello")

    assert most == limit
    assert results_told(server.requests[1]) == [str(number) for number in range(total)]


async def test_threads_are_bounded_too() -> None:
    lock, running, most = threading.Lock(), 0, 0
    pair = threading.Barrier(2, timeout=LONGEST_S)

    def count(number: int) -> int:
        """Count who is running."""
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        pair.wait()
        with lock:
            running -= 1
        pair.wait()
        return number

    script = [asking_for(*(("count", {"number": number}) for number in range(6))), DONE]
    async with served(script, tools=[count], limits=RunLimits(max_parallel_tools=2)) as (_, agent):
        await agent.run("Hello")

    assert most == 2


@STREAMED
async def test_results_go_back_in_call_order_whatever_finishes_first(streamed: bool) -> None:
    finished: list[int] = []
    turns = [anyio.Event() for _ in range(PARTIES + 1)]
    turns[PARTIES].set()

    async def last_first(number: int) -> str:
        """Finish only after the call that comes behind this one."""
        await turns[number + 1].wait()
        finished.append(number)
        turns[number].set()
        return f"result {number}"

    script = [asking_for(*(("last_first", {"number": number}) for number in range(PARTIES))), DONE]
    async with served(script, tools=[last_first]) as (server, agent):
        result = await result_of(agent, streamed=streamed)

    assert finished == [3, 2, 1, 0]
    assert results_told(server.requests[1]) == [f"result {number}" for number in range(PARTIES)]
    assert [call.result for call in result.tool_calls] == [f"result {number}" for number in range(PARTIES)]
    assert is_valid_history(result.messages)


async def test_events_tell_of_tools_as_it_happens() -> None:
    turns = [anyio.Event() for _ in range(3)]
    turns[2].set()

    async def last_first(number: int) -> int:
        """Finish only after the call that comes behind this one."""
        await turns[number + 1].wait()
        turns[number].set()
        return number

    script = [asking_for(("last_first", {"number": 0}), ("last_first", {"number": 1}), ("gone", {})), DONE]
    async with served(script, tools=[last_first]) as (_, agent):
        events, _ = await events_of(agent)
    told = [
        (type(event), event.call.index) for event in events if isinstance(event, ToolStarted | ToolFinished)
    ]

    assert sorted(told[:3], key=str) == sorted(
        [(ToolFinished, 2), (ToolStarted, 0), (ToolStarted, 1)], key=str
    )
    assert told[3:] == [(ToolFinished, 1), (ToolFinished, 0)]


async def test_a_tool_event_can_be_seen_before_the_other_tools_are_done() -> None:
    seen = anyio.Event()

    async def quick() -> str:
        """Finish at once."""
        return "quick"

    async def waiting() -> str:
        """Finish when the reader has seen that the other one is done."""
        await seen.wait()
        return "waited"

    script = [asking_for(("quick", {}), ("waiting", {})), DONE]
    async with served(script, tools=[quick, waiting]) as (server, agent), agent.stream("Hello") as run:
        async for event in run:
            if isinstance(event, ToolFinished) and event.call.name == "quick":
                seen.set()

    assert results_told(server.requests[1]) == ["quick", "waited"]


async def test_a_tool_sees_its_call_its_step_and_the_deps_of_the_run() -> None:
    seen: list[tuple[ToolContext, str]] = []

    @tool
    def look(context: ToolContext, city: str) -> str:
        """Look."""
        seen.append((context, city))
        return "ok"

    script = [
        asking_for(("look", {"city": "Paris"})),
        asking_for(("look", {"city": "Oslo"}), ("look", {"city": "Rome"})),
        DONE,
    ]
    deps = object()
    async with served(script, tools=[look]) as (server, agent):
        await agent.run("Hello", deps=deps)
        declared = server.requests[0].body["tools"][0]["function"]["parameters"]

    assert list(declared["properties"]) == declared["required"] == ["city"]
    assert sorted((context.step, context.call.index, city) for context, city in seen) == [
        (1, 0, "Paris"),
        (2, 0, "Oslo"),
        (2, 1, "Rome"),
    ]
    assert all(context.deps is deps for context, _ in seen)
    assert all(
        context.call.name == "look" and context.call.arguments == {"city": city} for context, city in seen
    )


async def test_runs_of_one_agent_have_deps_of_their_own() -> None:
    async def who(context: ToolContext) -> str:
        """Say whose run it is."""
        await anyio.lowlevel.checkpoint()
        return f"run of {context.deps}"

    async with served(
        lambda request: (DONE if request.body["messages"][-1]["role"] == "tool" else asking_for(("who", {})))(
            request
        ),
        tools=[who],
    ) as (_, agent):
        told: dict[str, str] = {}

        async def one(name: str) -> None:
            told[name] = (await agent.run("Hello", deps=name)).tool_calls[0].result

        async with anyio.create_task_group() as group:
            for name in "abc":
                group.start_soon(one, name)

    assert told == {name: f"run of {name}" for name in "abc"}


async def test_a_tool_may_run_the_agent_again() -> None:
    async def ask_helper(question: str) -> str:
        """Ask another run of the same agent."""
        return (await agent.run(question)).text

    def reply(request: Any) -> Any:
        messages = request.body["messages"]
        if messages[-1]["role"] == "tool":
            return adaptive_reply(f"helper said {messages[-1]['content']}")(request)
        if messages[-1]["content"] == "inner":
            return adaptive_reply("inner answer")(request)
        return asking_for(("ask_helper", {"question": "inner"}))(request)

    async with served(reply, tools=[ask_helper]) as (_, agent):
        result = await agent.run("outer")

    assert result.text == "helper said inner answer"
