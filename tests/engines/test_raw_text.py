"""What an engine's parser makes of a reply, and what this library makes of the same reply as raw text."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.engines.weather import (
    CHAIN,
    CLOCK,
    NOTE,
    ONE_CITY,
    RAW_CALLS,
    RAW_TEXT,
    TWO_CITIES,
    WHO,
    Answer,
    Served,
    Weather,
    ask,
    engine_calls,
    raw_reply,
    weather_agent,
)

CITIES = ["London", "Berlin", "Beijing", "Rome", "Madrid", "Cairo", "Sydney", "Toronto", "New York", "Moscow"]
PROMPTS = [
    ONE_CITY,
    TWO_CITIES,
    CHAIN,
    CLOCK,
    "Convert 18 Celsius to Fahrenheit.",
    *[f"What is the weather in {city}?" for city in CITIES],
    *[f"What is the weather in {one} and {other}?" for one, other in pairwise(CITIES)],
]


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here: text is read without waiting."""
    return "asyncio"


@pytest.mark.anyio
@pytest.mark.parametrize("prompt", [WHO, ONE_CITY, TWO_CITIES, CHAIN, CLOCK])
async def test_raw_calls_lead_to_the_same_calls_and_the_same_answer(
    served: Served, streamed: bool, prompt: str
) -> None:
    parsed = await ask(served, prompt, streamed=streamed)
    recovered = await ask(served, prompt, streamed=streamed, raw=RAW_CALLS)

    check_same(recovered, parsed)


@pytest.mark.anyio
@pytest.mark.parametrize("prompt", [WHO, ONE_CITY, TWO_CITIES, CHAIN, CLOCK])
async def test_raw_thoughts_and_calls_lead_to_the_same_answer(
    thinking: Served, streamed: bool, prompt: str
) -> None:
    parsed = await ask(thinking, prompt, streamed=streamed)
    recovered = await ask(thinking, prompt, streamed=streamed, raw=RAW_TEXT)

    assert raw_reply(thinking, prompt, thoughts=True).startswith("<think>")
    check_same(recovered, parsed)


def check_same(recovered: Answer, parsed: Answer) -> None:
    """Compare all that a user gets, and what the next request will say."""
    assert recovered.calls == parsed.calls
    assert recovered.result.text == parsed.result.text
    assert recovered.result.reasoning == parsed.result.reasoning
    assert with_decoded_arguments(recovered.result.messages) == with_decoded_arguments(parsed.result.messages)
    for ours, engines in zip(recovered.result.steps, parsed.result.steps, strict=True):
        assert ours.finish_reason == engines.finish_reason
        assert ours.usage.output_tokens == engines.usage.output_tokens


@pytest.mark.anyio
@pytest.mark.parametrize("prompt", [ONE_CITY, NOTE])
async def test_recovered_calls_are_reported(plain: Served, streamed: bool, prompt: str) -> None:
    parsed = await ask(plain, prompt, streamed=streamed)
    recovered = await ask(plain, prompt, streamed=streamed, raw=RAW_CALLS)

    assert [repair.kind for repair in recovered.result.repairs] == ["missing_parser", "raw_tool_calls"]
    assert [len(step.repairs) for step in recovered.result.steps] == [1, 0]
    assert [step.raw_finish_reason for step in recovered.result.steps] == ["stop", "stop"]
    assert parsed.result.repairs == []


@pytest.mark.parametrize("prompt", PROMPTS)
def test_calls_are_those_the_engine_itself_finds(served: Served, prompt: str) -> None:
    wanted = engine_calls(served, prompt)
    assert raw_reply(served, prompt).count("<|tool_call_begin|>") == len(wanted) > 0

    result = weather_agent(served, raw=RAW_CALLS).run_sync(prompt, deps=Weather())

    ours = [(call.name, call.arguments) for call in result.tool_calls if call.step == 1]
    assert as_bytes(ours) == as_bytes(wanted)


def as_bytes(calls: list[tuple[str, Any]]) -> bytes:
    """Names and decoded arguments, in their order, keys too."""
    return json.dumps(calls, ensure_ascii=False).encode()


def with_decoded_arguments(messages: list[dict[str, Any]]) -> list[Any]:
    """Messages whose arguments are decoded: engines write the same JSON with other white space."""
    decoded: list[Any] = json.loads(json.dumps(messages))
    for message in decoded:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return decoded
