"""The events of any run follow the grammar that `kimi_agent.events` writes down."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_agent import KimiAgent, Run, RunLimits, ToolError
from kimi_agent.errors import (
    EngineOverloadedError,
    IncompleteStreamError,
    KimiAgentError,
    TransportConnectionError,
)
from kimi_agent.events import (
    Event,
    ReasoningDelta,
    RetryScheduled,
    StepFinished,
    StepStarted,
    TextDelta,
    TextReset,
    ToolCallDelta,
    ToolCallStarted,
    ToolFinished,
    ToolStarted,
)
from kimi_agent.messages import ToolCall
from kimi_agent.results import Usage
from kimi_agent.testing import ScriptedTransport
from tests.property.corpus import CLOSE, THOUGHT, any_texts, call, cuts, section
from tests.property.event_grammar import check_event_order

if TYPE_CHECKING:
    from kimi_agent.json_types import JsonObject
    from kimi_agent.results import RunResult
    from kimi_agent.transport import Transport

LIMITS = RunLimits(max_steps=6, max_retries=2, max_retry_delay_s=0)
TROUBLES = ("connection", "cut", "overload")
ARGUMENT_TEXTS = (
    *('{"city":"Oslo"}', '{"city":"Atlantis"}', "{}", '{"ci', ""),
    f'{{"city":"Oslo"}}{CLOSE}{call("functions.f:1", "{}")}',  # what a parser leaves that lost its place
)

Script = list[list["JsonObject | str"]]
"""For each request its chunks; a word of `TROUBLES` among them breaks the stream there."""


async def get_weather(city: str) -> str:
    """Weather of a city."""
    await anyio.lowlevel.checkpoint()
    if city == "Atlantis":
        raise ToolError("no such city")
    return "sunny"


def f(count: int = 0) -> int:
    """Nothing of note."""
    return count


def delta(**fields: Any) -> JsonObject:
    return {"choices": [{"index": 0, "delta": fields}]}


def finish(reason: str) -> JsonObject:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def entry(index: int, name: str | None, arguments: str) -> JsonObject:
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"index": index, "id": f"functions.{name}:{index}" if name else None, "function": function}


def trouble(word: str) -> KimiAgentError:
    match word:
        case "connection":
            return TransportConnectionError("lost")
        case "cut":
            return IncompleteStreamError("cut")
        case _:
            return EngineOverloadedError("busy", status_code=429, retryable=True)


# --- scripts at random -------------------------------------------------------------------------------


@st.composite
def replies(draw: st.DrawFn) -> list[JsonObject | str]:
    """The chunks of one reply: thoughts, text, structured and raw calls, in any order, broken perhaps."""
    chunks: list[JsonObject | str] = []
    calls = 0
    kinds = st.sampled_from(("text", "text", "reasoning", "structured", "raw", "odd", "thought end"))
    for kind in draw(st.lists(kinds, max_size=4)):
        match kind:
            case "text":
                chunks += [delta(content=piece) for piece in draw(cuts("It is sunny there. <"))]
            case "reasoning":
                chunks.append(
                    delta(reasoning_content=draw(st.sampled_from(("", "hm", "hm " + section(call())))))
                )
            case "structured":
                name = draw(st.sampled_from(("get_weather", "f", "functions.f:0", "nobody", "")))
                arguments = draw(st.sampled_from(ARGUMENT_TEXTS))
                pieces = draw(cuts(arguments))
                chunks += [
                    delta(tool_calls=[entry(calls, name if place == 0 else None, piece)])
                    for place, piece in enumerate(pieces)
                ]
                calls += 1
            case "raw":
                text = draw(st.sampled_from((section(call()), call("functions.f:1", "{}"), call("nobody:0"))))
                chunks += [delta(content=piece) for piece in draw(cuts(text))]
            case "odd":
                chunks.append(delta(content=draw(any_texts())))
            case _:
                chunks.append(delta(content=THOUGHT))
    end = draw(st.sampled_from(("stop", "tool_calls", "length", *TROUBLES)))
    chunks.append(end if end in TROUBLES else finish(end))
    return chunks


def scripts() -> st.SearchStrategy[Script]:
    """A few replies; after them the model answers."""
    return st.lists(replies(), max_size=5)


# --- running them ------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Seen:
    """What a user saw of a run."""

    events: list[Event] = field(default_factory=list[Event])
    text: str = ""
    """What the events leave on a screen."""
    result: RunResult | None = None
    error: KimiAgentError | None = None


def played(script: Script) -> Transport:
    """A server that plays `script` and then answers."""
    answer = [delta(content="Done."), finish("stop")]
    broken = [[trouble(chunk) if isinstance(chunk, str) else chunk for chunk in reply] for reply in script]
    return ScriptedTransport([*broken, *[answer] * 20])


async def watch(run: Run) -> Seen:
    """Everything that happens in a run."""
    seen = Seen()
    try:
        async with run:
            async for event in run:
                seen.events.append(event)
                match event:
                    case TextDelta():
                        seen.text += event.text
                    case TextReset() | StepStarted():
                        seen.text = ""
                    case _:
                        pass
                assert run.text == seen.text
            seen.result = run.result
    except KimiAgentError as error:
        seen.error = error
        seen.result = error.result
    return seen


def run_script(script: Script, *, backend: str = "asyncio") -> Seen:
    agent = KimiAgent("kimi-k2", tools=[get_weather, f], transport=played(script), limits=LIMITS)
    return anyio.run(lambda: watch(agent.stream("And in Oslo?")), backend=backend)


def check_run(seen: Seen) -> None:
    """The grammar, and that the events tell the same story as the result."""
    check_event_order(seen.events, whole=seen.error is None)
    assert seen.result is not None
    finished = [event for event in seen.events if isinstance(event, StepFinished)]
    assert [event.message for event in finished] == [
        message for message in seen.result.new_messages if message["role"] == "assistant"
    ]
    # A run that failed may have read a last reply that nobody can use.
    steps = [step.step for step in seen.result.steps]
    assert steps[: len(finished)] == [event.step for event in finished]
    assert len(steps) == len(finished) or seen.error is not None
    answered = [event.call.id for event in seen.events if isinstance(event, ToolFinished)]
    assert sorted(answered) == sorted(record.id for record in seen.result.tool_calls)
    if seen.error is None:
        assert seen.text == seen.result.text


@settings(max_examples=150)
@given(scripts())
def test_the_events_of_any_run_follow_the_grammar(script: Script) -> None:
    check_run(run_script(script))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@settings(max_examples=20_000)
@given(scripts(), st.sampled_from(("asyncio", "trio")))
def test_the_events_of_any_run_of_a_whole_night_follow_the_grammar(script: Script, backend: str) -> None:
    check_run(run_script(script, backend=backend))


TRICKY: dict[str, Script] = {
    "glued arguments before another call": [
        [
            delta(tool_calls=[entry(0, "get_weather", ARGUMENT_TEXTS[-1])]),
            delta(tool_calls=[entry(1, "get_weather", '{"city":"Rome"}')]),
            finish("tool_calls"),
        ]
    ],
    "a cut structured call beside a raw one": [
        [delta(content=call(), tool_calls=[entry(0, "get_weather", '{"ci')]), finish("length")]
    ],
    "text, then a thought's end, then calls": [
        [delta(content="Hm"), delta(content=THOUGHT), delta(content=f"So.{section(call())}"), finish("stop")]
    ],
    "text, then trouble, then a call": [
        [delta(content="It is"), "connection"],
        [delta(content="I look."), delta(tool_calls=[entry(0, "f", "{}")]), "cut"],
        [delta(content="I look."), delta(tool_calls=[entry(0, "f", "{}")]), finish("tool_calls")],
    ],
    "nothing, then an answer": [[finish("stop")]],
    "nothing twice": [[finish("stop")], [finish("stop")]],
    "nothing at the output limit": [[finish("length")]],
    "trouble without end": [["connection"]] * 3,
    "calls without end": [
        [delta(tool_calls=[entry(0, "f", f'{{"count":{n}}}')]), finish("stop")] for n in range(6)
    ],
}


@pytest.mark.parametrize("name", TRICKY)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_events_of_a_tricky_run_follow_the_grammar(name: str, backend: str) -> None:
    check_run(run_script(TRICKY[name], backend=backend))


# --- the grammar itself ------------------------------------------------------------------------------

BEGIN = StepStarted(step=1)
TEXT = TextDelta(text="Oslo")
CALL = ToolCall(index=0, id="a", name="f", arguments={}, step=1)
ANNOUNCED = ToolCallStarted(index=0, id="a", name="f")
RETRY = RetryScheduled(attempt=1, delay_s=0.0, error=KimiAgentError("lost"))
RETRY_AGAIN = replace(RETRY, attempt=2)
RAN = (
    ToolStarted(call=CALL),
    ToolFinished(call=CALL, result="", is_error=False, duration_s=0.0),
)


def finished(content: str | None = None) -> StepFinished:
    message: JsonObject = {"content": content} if content is not None else {"tool_calls": [{"id": "a"}]}
    return StepFinished(
        step=1, message=message, finish_reason="stop", raw_finish_reason="stop", usage=Usage()
    )


def reset(reason: Literal["tool_calls", "retry", "reasoning"], text: str = "Oslo") -> TextReset:
    return TextReset(text=text, reason=reason)


GOOD: list[list[Event]] = [
    [BEGIN, finished("")],
    [BEGIN, ReasoningDelta(text=""), TEXT, TEXT, finished("OsloOslo")],
    [BEGIN, TEXT, reset("reasoning"), TEXT, finished("Oslo")],
    [BEGIN, TEXT, reset("retry"), RETRY, TEXT, finished("Oslo")],
    [BEGIN, ANNOUNCED, RETRY, ANNOUNCED, RETRY_AGAIN, TEXT, finished("Oslo")],
    [BEGIN, ANNOUNCED, finished(), *RAN, StepStarted(step=2), TEXT, replace(finished("Oslo"), step=2)],
    [BEGIN, TEXT, ANNOUNCED, ToolCallDelta(index=0, arguments="{}"), reset("tool_calls"), finished(), *RAN],
]

BAD: list[list[Event]] = [
    [TEXT],
    [StepStarted(step=2)],
    [BEGIN, BEGIN],
    [BEGIN, TextDelta(text="")],
    [BEGIN, TEXT, finished("Rome")],
    [BEGIN, TEXT, RETRY],
    [BEGIN, RETRY_AGAIN],
    [BEGIN, reset("retry", "")],
    [BEGIN, TEXT, reset("retry", "Rome")],
    [BEGIN, TEXT, reset("retry"), TEXT],
    [BEGIN, TEXT, reset("tool_calls"), finished("")],
    [BEGIN, TEXT, ANNOUNCED, finished()],
    [BEGIN, ToolCallDelta(index=0, arguments="{}")],
    [BEGIN, ANNOUNCED, ANNOUNCED],
    [BEGIN, finished()],
    [BEGIN, replace(finished(""), step=2)],
    [BEGIN, finished(""), TEXT],
    [BEGIN, RAN[0]],
    [BEGIN, ANNOUNCED, finished(), RAN[1]],
    [BEGIN, ANNOUNCED, finished(), RAN[0], RAN[0]],
    [BEGIN, ANNOUNCED, finished(), *RAN, RAN[1]],
    [BEGIN, ANNOUNCED, finished(), RAN[0], StepStarted(step=2)],
]


@pytest.mark.parametrize("events", GOOD)
def test_events_in_order_pass(events: list[Event]) -> None:
    check_event_order(events, whole=not isinstance(events[-1], ToolFinished))


@pytest.mark.parametrize("events", BAD)
def test_events_out_of_order_are_refused(events: list[Event]) -> None:
    check_event_order(events[:-1], whole=False)
    with pytest.raises(AssertionError, match=f"event {len(events) - 1}"):
        check_event_order(events, whole=False)


def test_a_run_that_just_stops_is_not_whole() -> None:
    check_event_order([BEGIN, TEXT], whole=False)
    with pytest.raises(AssertionError, match="ended after event 1"):
        check_event_order([BEGIN, TEXT])
