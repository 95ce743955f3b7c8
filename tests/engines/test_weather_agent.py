"""The weather agent end to end, on engines that run a real model."""

from __future__ import annotations

import copy
import json

import anyio
import pytest

from kimi_agent import ContextTooLongError, RunResult
from kimi_agent.events import (
    ReasoningDelta,
    StepFinished,
    TextDelta,
    TextReset,
    ToolCallDelta,
    ToolCallStarted,
    ToolFinished,
)
from tests.engines.weather import (
    CHAIN,
    CLOCK,
    NOTE,
    ONE_CITY,
    RUN_S,
    TWO_CITIES,
    WHO,
    Served,
    Weather,
    ask,
    weather_agent,
)

pytestmark = pytest.mark.anyio


# --- questions ---------------------------------------------------------------------------------------


async def test_a_question_that_needs_no_tool_is_answered_at_once(served: Served, streamed: bool) -> None:
    answer = await ask(served, WHO, streamed=streamed)

    assert "Kimi" in answer.result.text
    assert answer.result.finish_reason == "stop"
    assert answer.calls == []
    assert [message["role"] for message in answer.result.messages] == ["user", "assistant"]


async def test_the_weather_of_one_city_is_looked_up_and_quoted(served: Served, streamed: bool) -> None:
    answer = await ask(served, ONE_CITY, streamed=streamed)

    report = '{"temp_c": 18, "sky": "cloudy"}'
    assert answer.calls == [("functions.get_weather:0", "get_weather", {"city": "Paris"}, report)]
    assert "Paris" in answer.result.text
    assert "18" in answer.result.text
    assert [message["role"] for message in answer.result.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


async def test_two_cities_are_looked_up_side_by_side(served: Served, streamed: bool) -> None:
    # Neither call returns before the other is under way.
    answer = await ask(served, TWO_CITIES, streamed=streamed, together=2)

    assert answer.calls == [
        ("functions.get_weather:0", "get_weather", {"city": "Paris"}, '{"temp_c": 18, "sky": "cloudy"}'),
        ("functions.get_weather:1", "get_weather", {"city": "Tokyo"}, '{"temp_c": 25, "sky": "sunny"}'),
    ]
    assert [call.step for call in answer.result.tool_calls] == [1, 1]
    assert [message["role"] for message in answer.result.messages][2:4] == ["tool", "tool"]
    # Models this small may quote one report twice.
    assert all(city in answer.result.text for city in ("Paris", "Tokyo"))
    assert any(degrees in answer.result.text for degrees in ("18", "25"))


async def test_a_chain_of_tools_feeds_each_with_the_result_before(served: Served, streamed: bool) -> None:
    answer = await ask(served, CHAIN, streamed=streamed)

    assert answer.calls == [
        ("functions.get_weather:0", "get_weather", {"city": "Paris"}, '{"temp_c": 18, "sky": "cloudy"}'),
        ("functions.convert_temperature:1", "convert_temperature", {"celsius": 18}, '{"fahrenheit": 64.4}'),
    ]
    assert [call.step for call in answer.result.tool_calls] == [1, 2]
    assert "64.4" in answer.result.text


async def test_a_tool_without_arguments_is_called_with_none(served: Served, streamed: bool) -> None:
    answer = await ask(served, CLOCK, streamed=streamed)

    assert answer.calls == [("functions.get_time:0", "get_time", {}, '{"time": "12:30"}')]
    assert "12:30" in answer.result.text


async def test_a_call_without_text_before_it_withdraws_nothing(plain: Served, streamed: bool) -> None:
    answer = await ask(plain, NOTE, streamed=streamed)

    assert [(call.id, call.result) for call in answer.result.tool_calls] == [
        ("functions.save_note:0", '{"saved": true}')
    ]
    assert [name for name, _ in answer.executed] == ["save_note"]
    assert "content" not in answer.result.messages[1]
    assert not [event for event in answer.events if isinstance(event, TextReset)]


# --- what a stream shows -------------------------------------------------------------------------------


async def test_text_before_a_tool_round_is_shown_and_then_withdrawn(served: Served) -> None:
    shown_before_reset: list[str] = []
    resets: list[str] = []

    with anyio.fail_after(RUN_S):
        async with weather_agent(served) as agent, agent.stream(ONE_CITY, deps=Weather()) as run:
            before = ""
            async for event in run:
                if isinstance(event, TextReset):
                    shown_before_reset.append(before)
                    resets.append(event.text)
                    assert event.reason == "tool_calls"
                    assert run.text == ""
                before = run.text

    said = run.result.messages[1]["content"]
    assert resets == shown_before_reset == [said]
    assert said not in run.result.text
    assert run.text == run.result.text


async def test_a_call_is_seen_before_its_result(served: Served) -> None:
    answer = await ask(served, TWO_CITIES, streamed=True)

    kinds = [type(event) for event in answer.events]
    started = [event for event in answer.events if isinstance(event, ToolCallStarted)]
    assert [(event.index, event.name) for event in started] == [(0, "get_weather"), (1, "get_weather")]
    assert kinds.index(ToolCallStarted) < kinds.index(ToolCallDelta) < kinds.index(StepFinished)
    assert kinds.index(StepFinished) < kinds.index(ToolFinished)


async def test_an_answer_comes_in_many_pieces(plain: Served) -> None:
    answer = await ask(plain, WHO, streamed=True)

    assert len([event for event in answer.events if isinstance(event, TextDelta)]) > 5


async def test_text_deltas_tell_what_to_wipe(served: Served) -> None:
    screen: list[str] = []
    wiped: list[str] = []

    def wipe(text: str) -> None:
        wiped.append(text)
        screen.clear()

    with anyio.fail_after(RUN_S):
        async with weather_agent(served) as agent, agent.stream(CHAIN, deps=Weather()) as run:
            async for text in run.text_deltas(on_reset=wipe):
                screen.append(text)  # noqa: PERF401 - it is wiped in between

    assert "".join(screen) == run.result.text
    assert wiped == [m["content"] for m in run.result.messages if m.get("content") and m.get("tool_calls")]


async def test_text_deltas_can_be_held_back_until_they_are_the_answer(served: Served) -> None:
    with anyio.fail_after(RUN_S):
        async with weather_agent(served) as agent, agent.stream(CHAIN, deps=Weather()) as run:
            texts = [text async for text in run.text_deltas(final_only=True)]

    assert texts == [run.result.text]


async def test_a_stream_can_be_left_and_the_agent_used_again(served: Served) -> None:
    with anyio.fail_after(RUN_S):
        async with weather_agent(served) as agent:
            async with agent.stream(ONE_CITY, deps=Weather()) as left:
                async for event in left:
                    if isinstance(event, TextDelta):
                        break
            result = await agent.run(WHO)

    assert left.result.finish_reason == "cancelled"
    assert left.result.tool_calls == []
    assert "Kimi" in result.text


# --- more than one turn, more than one run ---------------------------------------------------------------


async def test_a_second_turn_goes_on_from_the_messages_of_the_first(served: Served, streamed: bool) -> None:
    first = await ask(served, CLOCK, streamed=streamed)
    history = json.loads(json.dumps(first.result.messages))
    kept = copy.deepcopy(history)

    second = await ask(served, "What is the weather in Tokyo?", streamed=streamed, history=history)

    assert history == kept
    assert second.result.messages[: len(kept)] == kept
    assert second.result.messages[len(kept) :] == second.result.new_messages
    assert [(call.id, call.name, call.arguments) for call in second.result.tool_calls] == [
        ("functions.get_weather:1", "get_weather", {"city": "Tokyo"})
    ]
    assert "25" in second.result.text


async def test_the_prompt_may_already_stand_in_the_history(plain: Served) -> None:
    with anyio.fail_after(RUN_S):
        async with weather_agent(plain) as agent:
            result = await agent.run(None, history=[{"role": "user", "content": ONE_CITY}], deps=Weather())

    assert "18" in result.text


async def test_one_agent_serves_several_runs_at_once(plain: Served) -> None:
    results: dict[str, RunResult] = {}
    weather = Weather(together=2)

    with anyio.fail_after(RUN_S):
        async with weather_agent(plain) as agent, anyio.create_task_group() as group:

            async def carry_out(city: str) -> None:
                results[city] = await agent.run(f"What is the weather in {city}?", deps=weather)

            group.start_soon(carry_out, "Paris")
            group.start_soon(carry_out, "Tokyo")

    assert "18" in results["Paris"].text
    assert "25" in results["Tokyo"].text


# --- reasoning -----------------------------------------------------------------------------------------


async def test_reasoning_is_apart_from_the_answer_and_kept_in_the_history(
    thinking: Served, streamed: bool
) -> None:
    answer = await ask(thinking, CHAIN, streamed=streamed)

    thoughts = [m["reasoning_content"] for m in answer.result.messages if m["role"] == "assistant"]
    assert len(thoughts) == 3
    assert all(thought.strip() for thought in thoughts)
    assert answer.result.reasoning == thoughts[-1]
    assert not [m for m in answer.result.messages if m["role"] != "assistant" and "reasoning_content" in m]
    assert all(thought not in answer.result.text for thought in thoughts)


async def test_reasoning_arrives_before_the_text(thinking: Served) -> None:
    answer = await ask(thinking, WHO, streamed=True)

    kinds = [type(event) for event in answer.events]
    assert kinds.count(ReasoningDelta) > 3
    assert kinds.index(ReasoningDelta) < kinds.index(TextDelta)


async def test_a_model_that_does_not_think_has_no_reasoning(plain: Served, streamed: bool) -> None:
    answer = await ask(plain, ONE_CITY, streamed=streamed)

    assert answer.result.reasoning is None
    assert not [m for m in answer.result.messages if "reasoning_content" in m]


# --- counts and errors -----------------------------------------------------------------------------------


async def test_tokens_are_counted_for_each_step_and_in_all(served: Served, streamed: bool) -> None:
    answer = await ask(served, CHAIN, streamed=streamed)

    steps, usage = answer.result.steps, answer.result.usage
    assert [step.step for step in steps] == [1, 2, 3]
    assert all(step.usage.input_tokens > 0 and step.usage.output_tokens > 0 for step in steps)
    assert steps[0].usage.input_tokens < steps[1].usage.input_tokens < steps[2].usage.input_tokens
    # A reply that had to be asked for twice counts twice, but is one step.
    assert usage.requests >= 3
    assert usage.input_tokens >= sum(step.usage.input_tokens for step in steps)
    assert usage.output_tokens >= sum(step.usage.output_tokens for step in steps)
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


async def test_each_step_says_how_it_ended_and_how_long_it_took(served: Served, streamed: bool) -> None:
    answer = await ask(served, ONE_CITY, streamed=streamed)

    assert [step.finish_reason for step in answer.result.steps] == ["tool_calls", "stop"]
    assert [step.raw_finish_reason for step in answer.result.steps] == ["tool_calls", "stop"]
    for step in answer.result.steps:
        assert step.ttft_s is not None
        assert 0 < step.ttft_s <= step.duration_s


async def test_a_prompt_that_does_not_fit_says_how_long_it_may_be(plain: Served, streamed: bool) -> None:
    with pytest.raises(ContextTooLongError) as caught:
        await ask(plain, "weather " * 3000, streamed=streamed)

    assert caught.value.limit_tokens == 2048
    assert caught.value.result is not None
