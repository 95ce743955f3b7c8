"""Whatever becomes of a call, the model gets exactly one result for it."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from typing_extensions import override

from kimi_agent import RunLimits, Tool, ToolError, ToolFinished, ToolStarted, tool
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

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
DONE = adaptive_reply("done")


def built_from(function: Callable[[], Any]) -> Callable[[dict[str, Any]], Any]:
    """A plain function as `Tool` wants it, that gives what `function` gives, be it a coroutine."""
    return lambda _: function()


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
    tools = [weather, replace(tool(slow), timeout_s=0.05), failing, refusing]
    script = [adaptive_reply(tool_calls=wanted), DONE]
    async with served(script, tools=tools) as (server, agent):
        result = await result_of(agent, streamed=streamed)
        told = results_told(server.requests[1])

    expected = [
        '{"city": "Paris", "weather": "Sunny", "unit": "C"}',
        "The tool 'slow' did not finish within 0.05 s and is waited for no longer.",
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

    made = Tool(name="failing", function=built_from(failing_async if is_async else failing))
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


async def test_a_nasty_error_that_cannot_even_be_printed_is_told_by_its_name() -> None:
    class NastyError(Exception):
        @override
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def nasty() -> str:
        """Fail."""
        raise NastyError

    async with served([asking_for(("nasty", {})), DONE], tools=[nasty]) as (server, agent):
        result = await agent.run("Hello")

    assert results_told(server.requests[1]) == ["The tool 'nasty' failed: NastyError"]
    assert result.text == "done"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_tool_leaving_by_sys_exit_does_not_end_the_program(is_async: bool) -> None:
    def leaving() -> str:
        """Leave."""
        sys.exit(2)

    async def leaving_async() -> str:
        """Leave."""
        sys.exit(2)

    made = Tool(name="leaving", function=built_from(leaving_async if is_async else leaving))
    async with served([asking_for(("leaving", {})), DONE], tools=[made]) as (server, agent):
        result = await agent.run("Hello")

    assert results_told(server.requests[1]) == ["The tool 'leaving' failed: SystemExit: 2"]
    assert result.text == "done"


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

    tools = [Tool(name="slow", function=built_from(slow), timeout_s=0.02), tool(impatient)]
    async with served([asking_for(("slow", {}), ("impatient", {})), DONE], tools=tools) as (server, agent):
        await agent.run("Hello")

    assert results_told(server.requests[1]) == [
        "The tool 'slow' did not finish within 0.02 s and is waited for no longer.",
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
        "The tool 'slow' did not finish within 0.02 s and is waited for no longer."
    ]
    assert result.text == "done"


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
