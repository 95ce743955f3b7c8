"""The weather agent the engines are tested with, and what a user saw of one run of it."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest
import regex

from kimi_agent import KimiAgent, KimiAgentError, ModelOptions, RunLimits, ToolContext, tool
from kimi_agent.events import ReasoningDelta, TextDelta, ToolCallStarted
from tests.engines.event_grammar import check_events

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimi_agent import RunResult
    from kimi_agent.events import Event
    from kimi_agent.messages import Message

RUN_S: Final = 30.0
MAX_OUTPUT_TOKENS: Final = 90

ONE_CITY: Final = "What is the weather in Paris?"
TWO_CITIES: Final = "What is the weather in Paris and Tokyo?"
CHAIN: Final = "What is the weather in Paris in Fahrenheit?"
CLOCK: Final = "What time is it?"
NOTE: Final = "Save a note: buy milk"
WHO: Final = "Who are you?"

REPORTS: Final[Mapping[str, dict[str, Any]]] = {
    "Paris": {"temp_c": 18, "sky": "cloudy"},
    "Tokyo": {"temp_c": 25, "sky": "sunny"},
}

RAW_CALLS: Final[Mapping[str, str]] = {"tool_choice": "none"}
"""Fields that make an engine leave calls in the content, unknown to the agent, which still expects them."""

RAW_TEXT: Final[Mapping[str, str]] = {**RAW_CALLS, "reasoning_format": "none"}
"""The same for reasoning, where the engine knows the field (llama.cpp does)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A model on an engine."""

    base_url: str
    raw_base_url: str | None
    """Where the engine leaves calls as raw text if `RAW_CALLS` say so; `None` if there is no such server."""


@dataclass(slots=True)
class Weather:
    """What the tools of one run know, given to them as `deps`: what was really run."""

    together: int = 0
    """How many calls of `get_weather` must be under way at once before any returns."""
    executed: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    under_way: int = 0
    all_there: anyio.Event = field(default_factory=anyio.Event)

    async def meet(self) -> None:
        """Wait for the other calls."""
        self.under_way += 1
        if self.under_way >= self.together:
            self.all_there.set()
        await self.all_there.wait()


@tool
async def get_weather(context: ToolContext, city: str) -> dict[str, Any]:
    """Get the weather in a city.

    Args:
        context: What the run knows.
        city: City name
    """
    weather = note(context, city=city)
    await weather.meet()
    return REPORTS.get(city, {"temp_c": 10 + len(city), "sky": "sunny"})


@tool
async def convert_temperature(context: ToolContext, celsius: float) -> dict[str, float]:
    """Convert Celsius to Fahrenheit."""
    note(context, celsius=celsius)
    return {"fahrenheit": round(celsius * 9 / 5 + 32, 1)}


@tool
def get_time(context: ToolContext) -> dict[str, str]:
    """Get the current time."""
    note(context)
    return {"time": "12:30"}


@tool
def save_note(context: ToolContext, text: str) -> dict[str, bool]:
    """Save a note."""
    note(context, text=text)
    return {"saved": True}


TOOLS: Final = (get_weather, convert_temperature, get_time, save_note)
"""The four tools the models know."""


def note(context: ToolContext, **arguments: Any) -> Weather:
    """Keep in the run's `Weather` that this call really ran."""
    weather: Weather = context.deps
    weather.executed.append((context.call.name, arguments))
    return weather


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a user saw of one run."""

    result: RunResult
    events: Sequence[Event]
    """Empty if the replies were not streamed."""
    executed: Sequence[tuple[str, dict[str, Any]]]
    error: KimiAgentError | None = None
    """How the run ended, if not by an answer; `result` is what was done until then."""

    @property
    def calls(self) -> list[tuple[str, str, Any, str]]:
        """Id, name, arguments and result of every call."""
        return [(call.id, call.name, call.arguments, call.result) for call in self.result.tool_calls]


def weather_agent(
    served: Served,
    *,
    raw: Mapping[str, str] | None = None,
    max_output_tokens: int = MAX_OUTPUT_TOKENS,
    max_steps: int = 6,
) -> KimiAgent:
    """The agent; it asks the server for its model's name. `raw` is `RAW_CALLS`, `RAW_TEXT` or nothing."""
    return KimiAgent(
        tools=TOOLS,
        base_url=raw_base_url(served) if raw else served.base_url,
        options=ModelOptions(temperature=0, max_output_tokens=max_output_tokens, extra_body=raw or {}),
        limits=RunLimits(max_steps=max_steps, tool_timeout_s=10),
    )


async def ask(
    served: Served,
    prompt: str,
    *,
    streamed: bool = False,
    history: Sequence[Message] | None = None,
    together: int = 0,
    may_fail: bool = False,
    **options: Any,
) -> Answer:
    """One run, checked for what holds for every run; `options` are those of `weather_agent`.

    With `may_fail` an error of the run is part of the answer.
    """
    weather = Weather(together)
    events: list[Event] = []
    error: KimiAgentError | None = None
    with anyio.fail_after(RUN_S):
        async with weather_agent(served, **options) as agent:
            try:
                if streamed:
                    async with agent.stream(prompt, history=history, deps=weather) as run:
                        async for event in run:
                            events.append(event)  # noqa: PERF401 - what came before an error is kept
                    result = run.result
                    assert run.text == result.text
                else:
                    result = await agent.run(prompt, history=history, deps=weather)
            except KimiAgentError as raised:
                if not may_fail or raised.result is None:
                    raise
                error, result = raised, raised.result
    answer = Answer(result=result, events=events, executed=weather.executed, error=error)
    check_answer(answer)
    return answer


def check_answer(answer: Answer) -> None:
    """What holds for every run: the events' order, no marker anywhere, and every good call ran once."""
    if answer.events:
        check_events(answer.events, ended=answer.error is None)
    for text in seen_by_user(answer):
        assert "<|" not in text, text
        assert "think>" not in text, text
    ran = [(call.name, call.arguments) for call in answer.result.tool_calls if not call.is_error]
    assert in_order(answer.executed) == in_order(ran)
    json.dumps(answer.result.messages)


def seen_by_user(answer: Answer) -> list[str]:
    """Every text that is shown or kept, one entry for each whole text."""
    result = answer.result
    texts = [result.text, result.reasoning or ""]
    texts += [str(message.get("content") or "") for message in result.messages]
    texts += [str(message.get("reasoning_content") or "") for message in result.messages]
    for kind in (TextDelta, ReasoningDelta):
        texts.append("".join(event.text for event in answer.events if isinstance(event, kind)))
    texts += [event.name for event in answer.events if isinstance(event, ToolCallStarted)]
    texts += [record.name for record in result.tool_calls]
    return texts


def in_order(calls: Sequence[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """Calls in an order of their own: tools run side by side."""
    return sorted(calls, key=str)


def raw_base_url(served: Served) -> str:
    """Where raw text stays raw; skips the test if there is no such place."""
    if served.raw_base_url is None:
        pytest.skip("this server parses calls whatever is asked; see tests/engines/README.md")
    return served.raw_base_url


def engine_calls(served: Served, prompt: str) -> list[tuple[str, Any]]:
    """Name and decoded arguments of the calls the engine's own parser finds in the reply to `prompt`."""
    calls = _message(served.base_url, prompt, max_tokens=MAX_OUTPUT_TOKENS)["tool_calls"]
    functions = [call["function"] for call in calls]
    return [(each["name"], json.loads(each["arguments"] or "{}")) for each in functions]


def raw_reply(
    served: Served, prompt: str, *, max_tokens: int = MAX_OUTPUT_TOKENS, thoughts: bool = False
) -> str:
    """The reply to `prompt` as the model wrote it, not read by this library; with its `thoughts` if asked."""
    content = _message(raw_base_url(served), prompt, max_tokens=max_tokens, **RAW_TEXT)["content"] or ""
    return content if thoughts else regex.sub(r"(?s)<think>.*?(</think>|\Z)", "", content)


@cache
def _message(base_url: str, prompt: str, **fields: str | int) -> dict[str, Any]:
    body = {
        "model": _json_from(f"{base_url}/models")["data"][0]["id"],
        "messages": [{"role": "user", "content": prompt}],
        "tools": [each.spec.to_json() for each in TOOLS],
        "temperature": 0,
        **fields,
    }
    message: dict[str, Any] = _json_from(f"{base_url}/chat/completions", body)["choices"][0]["message"]
    return message


def _json_from(url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})  # noqa: S310 - http only
    with urllib.request.urlopen(request, timeout=RUN_S) as reply:  # noqa: S310 - as above
        return json.load(reply)
