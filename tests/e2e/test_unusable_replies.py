"""Replies that make no sense, hold nothing, or were cut: what runs, what is told, when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent import (
    KimiAgentError,
    ModelError,
    ModelOptions,
    RetryScheduled,
    RunLimits,
)
from kimi_agent.testing import ReceivedRequest, Reply, adaptive_reply, chunk, stream_reply, tool_call
from tests.e2e.support import (
    FAST,
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

    from kimi_agent.testing import ScriptedReply

pytestmark = pytest.mark.anyio

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
ANSWER = adaptive_reply("Done.")


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


# --- malformed calls ------------------------------------------------------------------------------

BAD_CALLS: dict[str, list[dict[str, Any]]] = {
    "broken json": [tool_call("weather", '{"city": ')],
    "wrong type": [tool_call("weather", '{"city": 7}')],
    "unknown tool": [tool_call("gone", "{}")],
    "two bad ones": [tool_call("gone", "{}", id="a"), tool_call("weather", "[]", id="b")],
}


@STREAMED
@pytest.mark.parametrize("name", BAD_CALLS)
async def test_three_steps_of_nothing_but_malformed_calls_end_the_run(name: str, streamed: bool) -> None:
    # Not the same call thrice, or the loop guard might have its say.
    script = [adaptive_reply(f"Try {number}.", tool_calls=BAD_CALLS[name]) for number in range(4)]
    error, requests = await failure(script, ModelError, streamed=streamed)

    assert len(requests) == 3
    assert len(error.result.tool_calls) == 3 * len(BAD_CALLS[name])
    assert all(call.is_error for call in error.result.tool_calls)
    assert error.result.tool_calls[-1].result[:40] in str(error)


async def test_two_malformed_steps_then_a_good_one_start_the_count_anew() -> None:
    bad = adaptive_reply(tool_calls=BAD_CALLS["broken json"])
    good = asking_for(("weather", {"city": "Paris"}))
    async with served([bad, bad, good, bad, bad, ANSWER], tools=[weather]) as (_, agent):
        result = await agent.run("Hello")

    assert result.text == "Done."
    assert [call.is_error for call in result.tool_calls] == [True, True, False, True, True]


async def test_a_good_call_beside_a_malformed_one_is_no_malformed_step() -> None:
    mixed = [
        adaptive_reply(
            tool_calls=[tool_call("gone", "{}", id="a"), tool_call("weather", {"city": f"{number}"}, id="b")]
        )
        for number in range(4)
    ]
    async with served([*mixed, ANSWER], tools=[weather]) as (_, agent):
        assert (await agent.run("Hello")).text == "Done."


async def test_a_failing_tool_is_not_a_malformed_call() -> None:
    def failing(number: int) -> str:
        """Fail."""
        raise ValueError(number)

    script = [*(asking_for(("failing", {"number": number})) for number in range(5)), ANSWER]
    async with served(script, tools=[failing]) as (_, agent):
        assert (await agent.run("Hello")).text == "Done."


# --- replies that hold nothing --------------------------------------------------------------------

NOTHING: dict[str, Callable[[ReceivedRequest], Reply]] = {
    "nothing": adaptive_reply(""),
    "blank": adaptive_reply(" \n "),
    "reasoning only": adaptive_reply(None, reasoning="I could call a tool."),
    "tool_calls without calls": adaptive_reply("", finish_reason="tool_calls"),
    "odd word": adaptive_reply("", finish_reason="unexpected_state"),
}


@STREAMED
@pytest.mark.parametrize("name", NOTHING)
async def test_a_reply_that_holds_nothing_is_asked_for_once_more(name: str, streamed: bool) -> None:
    async with served([NOTHING[name], ANSWER], tools=[weather]) as (server, agent):
        result = await result_of(agent, streamed=streamed)

    assert result.text == "Done."
    assert [message["role"] for message in result.messages] == ["user", "assistant"]
    assert result.messages[-1]["content"] == "Done."
    assert len(server.requests) == 2
    assert server.requests[0].body["messages"] == server.requests[1].body["messages"]
    assert result.usage.requests == 2


@STREAMED
@pytest.mark.parametrize("name", NOTHING)
async def test_nothing_twice_is_a_model_error(name: str, streamed: bool) -> None:
    limits = RunLimits(max_retries=0)
    error, requests = await failure([NOTHING[name]] * 3, ModelError, streamed=streamed, limits=limits)

    assert len(requests) == 2
    assert "parser" in str(error)
    assert "twice" in str(error)
    assert error.result.messages == [{"role": "user", "content": "Hello"}]
    assert error.result.usage.requests == 2


async def test_each_step_may_hold_nothing_once() -> None:
    nothing, round_ = NOTHING["nothing"], asking_for(("weather", {"city": "Paris"}))
    async with served([nothing, round_, nothing, ANSWER], tools=[weather]) as (_, agent):
        assert (await agent.run("Hello")).text == "Done."


async def test_the_repeat_of_an_empty_reply_is_an_event() -> None:
    async with served([NOTHING["reasoning only"], ANSWER]) as (_, agent):
        events, _ = await events_of(agent)

    [retry] = [event for event in events if isinstance(event, RetryScheduled)]
    assert isinstance(retry.error, ModelError)
    assert retry.error.retryable
    assert "reasoning only" in str(retry.error)
    assert retry.delay_s == 0


@STREAMED
@pytest.mark.parametrize("reasoning", ["I think, and think", None])
async def test_a_reply_cut_before_the_answer_began_names_the_limit_to_raise(
    reasoning: str | None, streamed: bool
) -> None:
    cut = adaptive_reply(None, reasoning=reasoning, finish_reason="length")
    error, requests = await failure([cut, ANSWER], ModelError, streamed=streamed)

    assert len(requests) == 1
    assert "max_output_tokens" in str(error)
    assert not error.retryable


@STREAMED
async def test_a_cut_answer_is_an_answer_that_says_so(streamed: bool) -> None:
    async with served([adaptive_reply("It is su", finish_reason="length")]) as (_, agent):
        result = await result_of(agent, streamed=streamed)

    assert (result.text, result.finish_reason) == ("It is su", "length")
    assert result.messages[-1]["content"] == "It is su"


@STREAMED
@pytest.mark.parametrize("text", ["I cannot", ""])
async def test_filtered_content_is_told_by_the_finish_reason(text: str, streamed: bool) -> None:
    async with served([adaptive_reply(text, finish_reason="content_filter")]) as (_, agent):
        result = await result_of(agent, streamed=streamed)

    assert (result.text, result.finish_reason) == (text, "content_filter")
    assert result.steps[0].finish_reason == result.steps[0].raw_finish_reason == "content_filter"


# --- calls at the output limit ----------------------------------------------------------------------


@STREAMED
async def test_a_call_cut_at_the_limit_never_runs_and_the_model_is_told(streamed: bool) -> None:
    ran: list[str] = []

    def note(text: str) -> str:
        """Note."""
        ran.append(text)
        return "noted"

    cut = adaptive_reply(tool_calls=[tool_call("note", '{"text": "half of')], finish_reason="length")
    async with served([cut, ANSWER], tools=[note], limits=FAST) as (server, agent):
        result = await result_of(agent, streamed=streamed)

    assert ran == []
    [told] = results_told(server.requests[1])
    assert "cut off at the output limit" in told
    assert result.tool_calls[0].is_error
    assert any(repair.kind == "truncated_call" for repair in result.repairs)
    sent = server.requests[1].body["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert sent == "{}"


@STREAMED
async def test_whole_calls_before_a_cut_one_run_and_the_cut_one_is_dropped(streamed: bool) -> None:
    calls = [
        tool_call("weather", {"city": "Paris"}, id="functions.weather:0"),
        tool_call("weather", '{"city": "Os', id="functions.weather:1"),
    ]
    cut = adaptive_reply(tool_calls=calls, finish_reason="length")
    async with served([cut, ANSWER], tools=[weather]) as (server, agent):
        result = await result_of(agent, streamed=streamed)

    assert [call.id for call in result.tool_calls] == ["functions.weather:0"]
    assert len(results_told(server.requests[1])) == 1
    assert any(repair.kind == "truncated_call" for repair in result.repairs)


async def test_tool_choice_none_drops_calls_and_says_so() -> None:
    script: list[ScriptedReply] = [asking_for(("weather", {"city": "Paris"}), text="No need."), ANSWER]
    async with served(script, tools=[weather], options=ModelOptions(tool_choice="none")) as (server, agent):
        result = await agent.run("Hello")

    assert len(server.requests) == 1
    assert (result.text, result.tool_calls) == ("No need.", [])
    assert any(repair.kind == "call_dropped" for repair in result.repairs)


async def test_an_unknown_finish_word_is_carried_along() -> None:
    script = [stream_reply([chunk({"content": "Hi."}), chunk({}, finish_reason="unexpected_state")])]
    async with served(script) as (_, agent):
        _, result = await events_of(agent)

    assert (result.text, result.finish_reason) == ("Hi.", "unexpected_state")
    assert (result.steps[0].finish_reason, result.steps[0].raw_finish_reason) == ("other", "unexpected_state")
