"""Where a run ends by itself: limits of the caller, and loops."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent import (
    KimiAgentError,
    LimitError,
    LoopDetectedError,
    RunLimits,
    StepLimitError,
    TokenLimitError,
    Usage,
)
from kimi_agent.testing import ReceivedRequest, Reply, adaptive_reply, tool_call
from tests.e2e.support import (
    asking_for,
    chat_requests,
    is_valid_history,
    result_of,
    results_told,
    served,
    weather,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimi_agent.testing import ScriptedReply

pytestmark = pytest.mark.anyio

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
ANSWER = adaptive_reply("Done.")


def cities(request: ReceivedRequest) -> Reply:
    """Ask for another city at every step."""
    number = sum(message["role"] == "tool" for message in request.body["messages"])
    return asking_for(("weather", {"city": f"city {number}"}))(request)


async def failure(
    script: Any, kind: type[KimiAgentError], *, streamed: bool = False, **options: Any
) -> tuple[Any, list[ReceivedRequest]]:
    """The error a run ends with, and the requests it made."""
    options.setdefault("tools", [weather])
    async with served(script, **options) as (server, agent):
        with pytest.raises(kind) as caught:
            await result_of(agent, streamed=streamed)
    assert type(caught.value) is kind
    assert is_valid_history(caught.value.result.messages)
    return caught.value, chat_requests(server)


@STREAMED
@pytest.mark.parametrize("max_steps", [1, 3])
async def test_the_step_limit_ends_a_run_with_all_results_in_its_history(
    max_steps: int, streamed: bool
) -> None:
    limits = RunLimits(max_steps=max_steps)
    error, requests = await failure(cities, StepLimitError, streamed=streamed, limits=limits)

    assert isinstance(error, LimitError)
    assert len(requests) == max_steps
    assert "max_steps" in str(error)
    assert len(error.result.tool_calls) == len(error.result.steps) == max_steps
    assert error.result.messages[-1]["role"] == "tool"
    assert error.result.finish_reason == "error"


async def test_an_answer_at_the_last_step_is_in_time() -> None:
    script = [asking_for(("weather", {"city": "Paris"})), ANSWER]
    async with served(script, tools=[weather], limits=RunLimits(max_steps=2)) as (_, agent):
        assert (await agent.run("Hello")).text == "Done."


async def test_a_run_ended_by_a_limit_can_be_gone_on_from() -> None:
    script = [asking_for(("weather", {"city": "Paris"})), ANSWER]
    async with served(script, tools=[weather], limits=RunLimits(max_steps=1)) as (_, agent):
        with pytest.raises(StepLimitError) as caught:
            await agent.run("Hello")
        result = await agent.run(None, history=caught.value.result.messages)

    assert result.text == "Done."


@STREAMED
async def test_the_token_limit_ends_a_run_before_the_next_request(streamed: bool) -> None:
    spent = {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}
    round_: Callable[[ReceivedRequest], Reply] = adaptive_reply(
        tool_calls=[tool_call("weather", {"city": "Paris"})], usage=spent
    )
    limits = RunLimits(max_total_tokens=100)
    error, requests = await failure(
        [round_, round_, ANSWER], TokenLimitError, streamed=streamed, limits=limits
    )

    assert len(requests) == 2
    assert error.result.usage == Usage(requests=2, input_tokens=80, output_tokens=20)
    assert "100" in str(error)
    assert "max_total_tokens" in str(error)


async def test_an_answer_that_goes_over_the_token_limit_is_still_an_answer() -> None:
    spent = {"prompt_tokens": 400, "completion_tokens": 10}
    limits = RunLimits(max_total_tokens=100)
    async with served([adaptive_reply("Done.", usage=spent)], limits=limits) as (_, agent):
        assert (await agent.run("Hello")).text == "Done."


# --- loops ----------------------------------------------------------------------------------------


@STREAMED
async def test_the_same_call_with_the_same_result_is_reminded_then_refused_then_the_run_ends(
    streamed: bool,
) -> None:
    ran = 0

    def look(place: str) -> str:
        """Look."""
        nonlocal ran
        ran += 1
        return "nothing"

    again = asking_for(("look", {"place": "here"}))
    error, requests = await failure(
        itertools.repeat(again), LoopDetectedError, streamed=streamed, tools=[look]
    )

    told = [call.result for call in error.result.tool_calls]
    assert len(requests) == len(told) == 8
    assert ran == 4
    assert told[:2] == ["nothing", "nothing"]
    assert all(text.startswith("nothing\n\n[This same call") for text in told[2:4])
    assert all(text.startswith("Not run: 'look' was called again") for text in told[4:])
    assert results_told(requests[-1]) == told[:-1]
    assert "'look'" in str(error)
    assert "max_repeats" in str(error)


async def test_a_cycle_of_calls_is_a_loop_too() -> None:
    def in_turns(request: ReceivedRequest) -> Reply:
        number = sum(message["role"] == "tool" for message in request.body["messages"])
        return asking_for(("weather", {"city": ("Paris", "Oslo", "Rome")[number % 3]}))(request)

    error, requests = await failure(in_turns, LoopDetectedError)

    assert 3 * 7 < len(requests) <= 3 * 8
    assert error.result.usage.requests == len(requests)


async def test_a_loop_of_parallel_calls_ends_too() -> None:
    round_ = asking_for(("weather", {"city": "Paris"}), ("weather", {"city": "Oslo"}))
    _, requests = await failure(itertools.repeat(round_), LoopDetectedError)

    assert len(requests) == 8


async def test_the_same_call_with_new_results_is_no_loop() -> None:
    count = 0

    def poll(job: str) -> str:
        """Poll."""
        nonlocal count
        count += 1
        return f"{count} %"

    script: list[ScriptedReply] = [*[asking_for(("poll", {"job": "a"}))] * 20, ANSWER]
    async with served(script, tools=[poll]) as (_, agent):
        result = await agent.run("Hello")

    assert result.text == "Done."
    assert [call.result for call in result.tool_calls] == [f"{number} %" for number in range(1, 21)]


async def test_the_loop_guard_can_be_switched_off() -> None:
    script: list[ScriptedReply] = [*[asking_for(("weather", {"city": "Paris"}))] * 12, ANSWER]
    limits = RunLimits(max_repeats=None)
    async with served(script, tools=[weather], limits=limits) as (_, agent):
        result = await agent.run("Hello")

    assert len(result.tool_calls) == 12
    assert len({call.result for call in result.tool_calls}) == 1


async def test_a_reminder_is_enough_for_a_model_that_listens() -> None:
    def reply(request: ReceivedRequest) -> Reply:
        last = request.body["messages"][-1]["content"]
        return (
            ANSWER(request)
            if "Repeating it will not" in last
            else asking_for(("weather", {"city": "Paris"}))(request)
        )

    async with served(reply, tools=[weather]) as (_, agent):
        result = await agent.run("Hello")

    assert result.text == "Done."
    assert len(result.tool_calls) == 3
