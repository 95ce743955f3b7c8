"""`approve`: asked for every call that could run, before it runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kimi_agent import Approval, ToolFinished, ToolStarted
from kimi_agent.testing import adaptive_reply
from tests.e2e.support import asking_for, events_of, is_valid_history, results_told, served, weather

if TYPE_CHECKING:
    from kimi_agent import ToolCall

pytestmark = pytest.mark.anyio

DONE = adaptive_reply("done")
CITIES = [asking_for(("weather", {"city": "Paris"}), ("weather", {"city": "Oslo"})), DONE]


async def test_allowed_calls_run_and_denied_ones_are_told_why() -> None:
    asked: list[ToolCall] = []

    async def approve(call: ToolCall) -> Approval:
        await anyio.lowlevel.checkpoint()
        asked.append(call)
        return Approval.allow() if call.arguments["city"] == "Paris" else Approval.deny("Oslo is secret")

    async with served(CITIES, tools=[weather], approve=approve) as (server, agent):
        events, result = await events_of(agent)

    assert sorted((call.index, call.name, call.id, call.step) for call in asked) == [
        (0, "weather", "functions.weather:0", 1),
        (1, "weather", "functions.weather:1", 1),
    ]
    told = results_told(server.requests[1])
    assert "Sunny" in told[0]
    assert told[1] == "The call was not allowed: Oslo is secret"
    assert [call.is_error for call in result.tool_calls] == [False, True]
    assert [event.call.index for event in events if isinstance(event, ToolStarted)] == [0]
    assert sorted(event.call.index for event in events if isinstance(event, ToolFinished)) == [0, 1]
    assert is_valid_history(result.messages)


async def test_a_denial_without_a_reason_is_told_too() -> None:
    async def approve(_: ToolCall) -> Approval:
        return Approval.deny()

    async with served(CITIES, tools=[weather], approve=approve) as (server, agent):
        await agent.run("Hello")

    assert results_told(server.requests[1]) == ["The call was not allowed."] * 2


async def test_a_call_can_be_run_with_other_arguments() -> None:
    async def approve(call: ToolCall) -> Approval:
        return Approval.allow(arguments={"city": call.arguments["city"].upper()})

    async with served(CITIES, tools=[weather], approve=approve) as (server, agent):
        events, _ = await events_of(agent)

    assert ['"PARIS"' in results_told(server.requests[1])[0], '"OSLO"' in results_told(server.requests[1])[1]]
    started = [event.call.arguments for event in events if isinstance(event, ToolStarted)]
    assert sorted(started, key=str) == [{"city": "OSLO"}, {"city": "PARIS"}]


async def test_other_arguments_are_checked_like_the_models() -> None:
    async def approve(_: ToolCall) -> Approval:
        return Approval.allow(arguments={"town": "Paris"})

    async with served(CITIES, tools=[weather], approve=approve) as (server, agent):
        result = await agent.run("Hello")

    assert all("do not fit" in told for told in results_told(server.requests[1]))
    assert all(call.is_error for call in result.tool_calls)


async def test_an_approval_that_fails_runs_nothing_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ran: list[str] = []

    async def spend(city: str) -> str:
        """Spend."""
        ran.append(city)
        return "spent"

    async def approve(_: ToolCall) -> Approval:
        raise ConnectionError("the approval service is down")

    script: list[Any] = [asking_for(("spend", {"city": "Paris"})), DONE]
    with caplog.at_level(logging.ERROR, "kimi_agent"):
        async with served(script, tools=[spend], approve=approve) as (server, agent):
            result = await agent.run("Hello")

    assert ran == []
    assert result.tool_calls[0].is_error
    assert results_told(server.requests[1]) == ["The call could not be approved, so it was not run."]
    assert any("approval service is down" in str(record.exc_info) for record in caplog.records)


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_plain_yes_or_no_and_a_plain_function_are_understood(answer: bool, is_async: bool) -> None:
    def approve(_: ToolCall) -> Any:
        return answer

    async def approve_async(_: ToolCall) -> Any:
        return answer

    async with served(CITIES, tools=[weather], approve=approve_async if is_async else approve) as (_, agent):
        result = await agent.run("Hello")

    assert [call.is_error for call in result.tool_calls] == [not answer] * 2


async def test_an_answer_that_is_no_approval_approves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def approve(_: ToolCall) -> Any:
        return None

    async with served(CITIES, tools=[weather], approve=approve) as (server, agent):
        await agent.run("Hello")

    assert all("could not be approved" in told for told in results_told(server.requests[1]))
    assert any(record.exc_info for record in caplog.records)


async def test_approvals_of_one_reply_are_asked_for_at_the_same_time() -> None:
    waiting, both = 0, anyio.Event()

    async def approve(_: ToolCall) -> Approval:
        nonlocal waiting
        waiting += 1
        if waiting == 2:
            both.set()
        await both.wait()
        return Approval.allow()

    async with served(CITIES, tools=[weather], approve=approve) as (_, agent):
        assert (await agent.run("Hello")).text == "done"


async def test_calls_that_cannot_run_are_not_asked_about() -> None:
    asked: list[str] = []

    async def approve(call: ToolCall) -> Approval:
        asked.append(call.name)
        return Approval.allow()

    script = [asking_for(("no_such_tool", {}), ("weather", {"city": "Paris"})), DONE]
    async with served(script, tools=[weather], approve=approve) as (_, agent):
        await agent.run("Hello")

    assert asked == ["weather"]


async def test_waiting_for_an_approval_does_not_count_as_tool_time() -> None:
    decided = anyio.Event()

    async def approve(call: ToolCall) -> Approval:
        if call.index == 0:
            await decided.wait()
        else:
            decided.set()
        return Approval.allow()

    async with served(CITIES, tools=[weather], approve=approve) as (_, agent):
        result = await agent.run("Hello")

    assert not any(call.is_error for call in result.tool_calls)
