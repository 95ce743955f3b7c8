"""Raw completions on a real engine: what is rendered and read here agrees with its chat path."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kimi_agent import KimiAgent, ModelOptions, RunLimits
from kimi_agent.events import ReasoningDelta, TextDelta, ToolCallStarted
from tests.engines.event_grammar import check_events
from tests.engines.weather import (
    CHAIN,
    CLOCK,
    MAX_OUTPUT_TOKENS,
    NOTE,
    ONE_CITY,
    RUN_S,
    TOOLS,
    TWO_CITIES,
    WHO,
    Answer,
    Served,
    Weather,
    ask,
    check_answer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_agent.events import Event
    from kimi_agent.messages import Message

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here: text is read without waiting."""
    return "asyncio"


def completing(served: Served, generation: str, *, max_output_tokens: int = MAX_OUTPUT_TOKENS) -> KimiAgent:
    """The weather agent without the engine's chat template and parsers."""
    return KimiAgent(
        tools=TOOLS,
        base_url=served.base_url,
        api="completions",
        generation=generation,
        options=ModelOptions(temperature=0, max_output_tokens=max_output_tokens),
        limits=RunLimits(max_steps=6, tool_timeout_s=10),
    )


async def complete(
    served: Served,
    generation: str,
    prompt: str,
    *,
    streamed: bool,
    history: Sequence[Message] | None = None,
    together: int = 0,
) -> Answer:
    """One run by raw completions, checked for what holds for every run."""
    weather = Weather(together)
    events: list[Event] = []
    with anyio.fail_after(RUN_S):
        async with completing(served, generation) as agent:
            if streamed:
                async with agent.stream(prompt, history=history, deps=weather) as run:
                    events = [event async for event in run]
                result = run.result
                assert run.text == result.text
            else:
                result = await agent.run(prompt, history=history, deps=weather)
    answer = Answer(result=result, events=events, executed=weather.executed)
    check_answer(answer)
    if events:
        check_events(events)
    return answer


def messages_of(answer: Answer) -> list[Any]:
    """The messages with decoded arguments: engines write the same JSON with other white space."""
    decoded: list[Any] = json.loads(json.dumps(answer.result.messages))
    for message in decoded:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        for key in ("content", "reasoning_content"):
            if key in message:
                message[key] = message[key].strip()
    return decoded


@pytest.mark.parametrize("prompt", [WHO, ONE_CITY, TWO_CITIES, CHAIN, NOTE])
async def test_the_plain_model_answers_as_it_does_by_chat(plain: Served, streamed: bool, prompt: str) -> None:
    chat = await ask(plain, prompt, streamed=streamed)
    raw = await complete(plain, "k2", prompt, streamed=streamed)

    assert raw.calls == chat.calls
    assert raw.result.text == chat.result.text
    assert messages_of(raw) == messages_of(chat)
    assert raw.result.repairs == []


@pytest.mark.parametrize("prompt", [WHO, ONE_CITY, TWO_CITIES, CHAIN])
async def test_the_thinking_model_answers_as_it_does_by_chat(
    thinking: Served, streamed: bool, prompt: str
) -> None:
    chat = await ask(thinking, prompt, streamed=streamed)
    raw = await complete(thinking, "k2-thinking", prompt, streamed=streamed)

    assert raw.calls == chat.calls
    assert raw.result.text.strip() == chat.result.text.strip()
    assert messages_of(raw) == messages_of(chat)
    assert raw.result.reasoning
    assert raw.result.repairs == []


async def test_two_cities_are_looked_up_side_by_side(plain: Served, streamed: bool) -> None:
    answer = await complete(plain, "k2", TWO_CITIES, streamed=streamed, together=2)

    assert [(call.id, call.name, call.arguments) for call in answer.result.tool_calls] == [
        ("functions.get_weather:0", "get_weather", {"city": "Paris"}),
        ("functions.get_weather:1", "get_weather", {"city": "Tokyo"}),
    ]


async def test_a_chain_of_tools_feeds_each_with_the_result_before(plain: Served, streamed: bool) -> None:
    answer = await complete(plain, "k2", CHAIN, streamed=streamed)

    assert [call.name for call in answer.result.tool_calls] == ["get_weather", "convert_temperature"]
    assert "64.4" in answer.result.text
    assert [step.finish_reason for step in answer.result.steps] == ["tool_calls", "tool_calls", "stop"]


async def test_a_stream_shows_reasoning_text_and_calls_as_they_come(thinking: Served) -> None:
    answer = await complete(thinking, "k2-thinking", ONE_CITY, streamed=True)

    kinds = [type(event) for event in answer.events]
    assert kinds.count(ReasoningDelta) > 3
    assert kinds.index(ReasoningDelta) < kinds.index(TextDelta) < kinds.index(ToolCallStarted)


async def test_a_second_turn_goes_on_from_the_messages_of_the_first(plain: Served, streamed: bool) -> None:
    first = await complete(plain, "k2", CLOCK, streamed=streamed)
    history = json.loads(json.dumps(first.result.messages))

    second = await complete(plain, "k2", "What is the weather in Tokyo?", streamed=streamed, history=history)

    assert [(call.id, call.arguments) for call in second.result.tool_calls] == [
        ("functions.get_weather:1", {"city": "Tokyo"})
    ]
    assert "25" in second.result.text


async def test_a_history_of_the_chat_can_be_gone_on_from_by_completions(plain: Served) -> None:
    first = await ask(plain, CLOCK)
    second = await complete(plain, "k2", ONE_CITY, streamed=False, history=first.result.messages)

    assert "18" in second.result.text
    assert second.result.tool_calls[0].id == "functions.get_weather:1"


async def test_without_a_limit_a_reply_is_not_cut_at_the_servers_default(plain: Served) -> None:
    with anyio.fail_after(RUN_S):
        async with KimiAgent(
            tools=TOOLS,
            base_url=plain.base_url,
            api="completions",
            generation="k2",
            options=ModelOptions(temperature=0),
        ) as agent:
            result = await agent.run(TWO_CITIES, deps=Weather())

    assert result.finish_reason == "stop"
    assert [call.arguments for call in result.tool_calls] == [{"city": "Paris"}, {"city": "Tokyo"}]
