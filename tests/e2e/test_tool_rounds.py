"""Tool rounds: side by side, bounded, in order, and one result for each call whatever becomes of it."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import anyio
import pytest

from kimi_agent import RunLimits, Tool, ToolContext, ToolError, ToolFinished, ToolStarted, tool
from kimi_agent.testing import adaptive_reply, tool_call
from tests.e2e.support import (
    FAST,
    LONGEST_S,
    asking_for,
    chat_requests,
    events_of,
    is_valid_history,
    result_of,
    results_told,
    served,
    weather,
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
    async with served(script, tools=[meet]) as (server, agent):
        async with anyio.create_task_group() as group:

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
    async with served(script, tools=[quick, waiting]) as (server, agent):
        async with agent.stream("Hello") as run:
            async for event in run:
                if isinstance(event, ToolFinished) and event.call.name == "quick":
                    seen.set()

    assert results_told(server.requests[1]) == ["quick", "waited"]


@STREAMED
async def test_each_call_gets_exactly_one_result_and_good_ones_run_beside_bad_ones(streamed: bool) -> None:
    async def slow() -> str:
        """Never finish."""
        await anyio.sleep_forever()
        return "never"

    def failing() -> str:
        """Fail."""
        raise ValueError("disk full\nsecond line")

    async def refusing() -> str:
        """Speak to the model."""
        raise ToolError("Ask for a city in Europe.")

    wanted = [
        tool_call("weather", {"city": "Paris"}, id="good"),
        tool_call("slow", {}, id="slow"),
        tool_call("failing", {}, id="failing"),
        tool_call("refusing", {}, id="refusing"),
        tool_call("no_such_tool", {"a": 1}, id="unknown"),
        tool_call("weather", '{"city": ', id="malformed"),
        tool_call("weather", '{"city": 7, "x": 1}', id="unfit"),
        tool_call("weather", "[1]", id="array"),
        tool_call("weather", {"city": "Oslo"}, id="good too"),
    ]
    limits = RunLimits(tool_timeout_s=0.05, max_retry_delay_s=0.01)
    script = [adaptive_reply(tool_calls=wanted), DONE]
    async with served(script, tools=[weather, slow, failing, refusing], limits=limits) as (server, agent):
        result = await result_of(agent, streamed=streamed)
        told = results_told(server.requests[1])

    expected = [
        '{"city": "Paris", "weather": "Sunny", "unit": "C"}',
        "The tool 'slow' did not finish within 0.05 seconds and was stopped.",
        "The tool 'failing' failed: ValueError: disk full",
        "Ask for a city in Europe.",
        "There is no tool 'no_such_tool'. The tools are: weather, slow, failing, refusing.",
        None,
        None,
        None,
        '{"city": "Oslo", "weather": "Sunny", "unit": "C"}',
    ]
    assert len(told) == len(expected)
    for seen, wished in zip(told, expected, strict=True):
        assert wished is None or seen == wished
    assert "not valid JSON" in told[5]
    assert "$.city" in told[6]
    assert "must be one JSON object" in told[7]
    assert all('"required":["city"]' in told[place] for place in (5, 6, 7))
    assert [call.id for call in result.tool_calls] == [call["id"] for call in wanted]
    assert [call.is_error for call in result.tool_calls] == [False, *[True] * 7, False]
    assert [call.result for call in result.tool_calls] == told
    assert result.tool_calls[5].arguments == '{"city": '
    assert result.tool_calls[4].arguments == {"a": 1}
    assert is_valid_history(result.messages)
    assert result.text == "done"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_failing_tool_is_logged_with_its_traceback_and_told_in_one_line_without_secrets(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def failing() -> str:
        """Fail."""
        raise RuntimeError(
            "GET https://me:hunter22@db/x?api_key=abcdef123 failed, sk-abcdefghijklmnop1234\nmore"
        )

    async def failing_async() -> str:
        """Fail."""
        return failing()

    made = Tool(name="failing", function=(lambda _: failing_async()) if is_async else (lambda _: failing()))
    script = [asking_for(("failing", {})), DONE]
    with caplog.at_level(logging.ERROR, "kimi_agent"):
        async with served(script, tools=[made]) as (server, agent):
            await agent.run("Hello")

    [told] = results_told(server.requests[1])
    assert told.startswith("The tool 'failing' failed: RuntimeError: GET https://[hidden]@db/x")
    assert "\n" not in told
    for secret in ("hunter22", "abcdef123", "sk-abc"):
        assert secret not in told
    [record] = [record for record in caplog.records if record.name.startswith("kimi_agent")]
    assert "'failing'" in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], RuntimeError)


async def test_a_tool_error_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    def refusing() -> str:
        """Speak to the model."""
        raise ToolError("Not today.")

    async with served([asking_for(("refusing", {})), DONE], tools=[refusing]) as (server, agent):
        await agent.run("Hello")

    assert results_told(server.requests[1]) == ["Not today."]
    assert caplog.records == []


async def test_an_error_without_words_is_told_by_its_name() -> None:
    def failing() -> str:
        """Fail."""
        raise KeyError

    async with served([asking_for(("failing", {})), DONE], tools=[failing]) as (server, agent):
        await agent.run("Hello")

    assert results_told(server.requests[1]) == ["The tool 'failing' failed: KeyError"]


async def test_a_group_of_errors_raised_by_a_tool_is_one_result() -> None:
    async def grouping() -> str:
        """Fail in a task group."""
        async with anyio.create_task_group() as group:

            async def fail() -> None:
                raise ValueError("inner")

            group.start_soon(fail)
        return "never"

    async with served([asking_for(("grouping", {})), DONE], tools=[grouping]) as (server, agent):
        await agent.run("Hello")

    [told] = results_told(server.requests[1])
    assert told.startswith("The tool 'grouping' failed: ExceptionGroup")


async def test_a_tool_that_was_cancelled_from_inside_is_told_as_cancelled_and_the_run_goes_on(
    anyio_backend_name: str,
) -> None:
    async def given_up() -> str:
        """Cancel itself."""
        if anyio_backend_name == "asyncio":
            raise asyncio.CancelledError
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.sleep_forever()
        raise ToolError("The tool 'given_up' was cancelled.")

    script = [asking_for(("given_up", {}), ("weather", {"city": "Paris"})), DONE]
    async with served(script, tools=[given_up, weather]) as (server, agent):
        result = await agent.run("Hello")

    told = results_told(server.requests[1])
    assert told[0] == "The tool 'given_up' was cancelled."
    assert "Sunny" in told[1]
    assert [call.is_error for call in result.tool_calls] == [True, False]


async def test_a_tools_own_timeout_wins_and_its_own_timeout_errors_are_its_own() -> None:
    async def slow() -> str:
        """Never finish."""
        await anyio.sleep_forever()
        return "never"

    async def impatient() -> str:
        """Raise the builtin error."""
        raise TimeoutError("the database did not answer")

    tools = [Tool(name="slow", function=lambda _: slow(), timeout_s=0.02), tool(impatient)]
    async with served([asking_for(("slow", {}), ("impatient", {})), DONE], tools=tools) as (server, agent):
        await agent.run("Hello")

    assert results_told(server.requests[1]) == [
        "The tool 'slow' did not finish within 0.02 seconds and was stopped.",
        "The tool 'impatient' failed: TimeoutError: the database did not answer",
    ]


async def test_a_sync_tool_that_is_too_slow_is_left_to_itself() -> None:
    release = threading.Event()

    def slow() -> str:
        """Block a thread."""
        release.wait(LONGEST_S)
        return "late"

    try:
        limits = RunLimits(tool_timeout_s=0.02)
        async with served([asking_for(("slow", {})), DONE], tools=[slow], limits=limits) as (server, agent):
            result = await agent.run("Hello")
    finally:
        release.set()

    assert results_told(server.requests[1]) == [
        "The tool 'slow' did not finish within 0.02 seconds and was stopped."
    ]
    assert result.text == "done"


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


async def test_calls_that_must_not_run_cause_no_tool_started() -> None:
    script = [asking_for(("no_such_tool", {}), ("weather", {"town": "Paris"})), DONE]
    async with served(script, tools=[weather], limits=FAST) as (server, agent):
        events, _ = await events_of(agent)

    assert [event for event in events if isinstance(event, ToolStarted)] == []
    finished = [event for event in events if isinstance(event, ToolFinished)]
    assert [(event.call.name, event.is_error) for event in finished] == [
        ("no_such_tool", True),
        ("weather", True),
    ]
    assert [event.result for event in finished] == results_told(chat_requests(server)[1])
