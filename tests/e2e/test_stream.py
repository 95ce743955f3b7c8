"""A run as events and as text: their order, what is withdrawn, what adds up to what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kimi_agent import (
    ModelOptions,
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
from kimi_agent.testing import (
    Close,
    Delay,
    Reset,
    adaptive_reply,
    chunk,
    error_reply,
    stream_reply,
    text_reply,
)
from tests.e2e.support import asking_for, events_of, kinds, served, weather
from tests.property.event_grammar import check_event_order

if TYPE_CHECKING:
    from kimi_agent.events import Event
    from kimi_agent.testing import ScriptedReply

pytestmark = pytest.mark.anyio

ROUND = asking_for(("weather", {"city": "Paris"}), ("weather", {"city": "Oslo"}), text="Let me look.")
ANSWER = adaptive_reply("Both are sunny.", reasoning="Easy.")
BROKEN = stream_reply([chunk({"content": "Both "}), chunk({"content": "are"}), Close()])


async def test_the_events_of_a_tool_round_come_in_order() -> None:
    async with served([ROUND, ANSWER], tools=[weather]) as (_, agent):
        events, _ = await events_of(agent)

    assert kinds([event for event in events if not isinstance(event, ToolStarted | ToolFinished)]) == [
        "step_started",
        "text_delta",
        "tool_call_started",
        "tool_call_delta",
        "tool_call_started",
        "tool_call_delta",
        "text_reset",
        "step_finished",
        "step_started",
        "reasoning_delta",
        "text_delta",
        "step_finished",
    ]
    assert [event.text for event in events if isinstance(event, TextReset)] == ["Let me look."]
    assert [event.step for event in events if isinstance(event, StepStarted | StepFinished)] == [1, 1, 2, 2]


SCRIPTS: dict[str, list[ScriptedReply]] = {
    "answer": [adaptive_reply("Hi.")],
    "reasoning": [adaptive_reply("Hi.", reasoning="Hm.")],
    "round": [ROUND, ANSWER],
    "two rounds": [ROUND, ROUND, ANSWER],
    "retry with text": [BROKEN, ANSWER],
    "retry without text": [error_reply(503, "loading", type="server_unavailable"), ANSWER],
    "retries between rounds": [ROUND, BROKEN, BROKEN, ROUND, BROKEN, ANSWER],
    "bad calls": [asking_for(("gone", {}), ("weather", {}), ("weather", {"city": "Oslo"})), ANSWER],
    "raw calls": [
        text_reply(
            "Let me look.<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0"
            '<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>',
            cuts=3,
        ),
        ANSWER,
    ],
    "thought in content": [text_reply("Hm, let me see.</think>Hi.", cuts=2)],
    "empty reply": [adaptive_reply(""), ANSWER],
    "raw calls not allowed": [
        text_reply(
            "A<|tool_call_begin|>functions.gone:0<|tool_call_argument_begin|>{}<|tool_call_end|>B", cuts=3
        ),
        ANSWER,
    ],
}


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_every_run_keeps_to_the_grammar_of_events(name: str, streamed: bool) -> None:
    script = SCRIPTS[name]
    async with (
        served(script, tools=[weather]) as (_, agent),
        agent._new_run("Hello", history=None, deps=None, streamed=streamed) as run,
    ):
        events = [event async for event in run]

    check_event_order(events)
    assert run.text == run.result.text


@pytest.mark.parametrize("name", SCRIPTS)
async def test_the_deltas_of_a_step_joined_are_its_message(name: str) -> None:
    async with served(SCRIPTS[name], tools=[weather]) as (_, agent):
        events, result = await events_of(agent)

    for step in steps_of(events):
        finished = step[-1]
        assert isinstance(finished, StepFinished)
        message = finished.message
        assert joined(step, ReasoningDelta) == message.get("reasoning_content", "")
        assert joined(step, TextDelta) == message.get("content", "")
        arguments: dict[int, str] = {}
        names: dict[int, str] = {}
        for event in step:
            if isinstance(event, ToolCallStarted):
                names[event.index] = event.name
            elif isinstance(event, ToolCallDelta):
                arguments[event.index] = arguments.get(event.index, "") + event.arguments
        made = message.get("tool_calls", [])
        assert [names[place] for place in sorted(names)] == [call["function"]["name"] for call in made]
        assert [arguments.get(place, "{}") for place in sorted(names)] == [
            call["function"]["arguments"] for call in made
        ]
    assert [message for message in result.messages if message["role"] == "assistant"] == [
        event.message for event in events if isinstance(event, StepFinished)
    ]


def steps_of(events: list[Event]) -> list[list[Event]]:
    """The events of each step, without those a retry made void."""
    steps: list[list[Event]] = []
    for event in events:
        if isinstance(event, StepStarted):
            steps.append([])
        elif isinstance(event, RetryScheduled):
            steps[-1].clear()
        elif not isinstance(event, ToolStarted | ToolFinished):
            steps[-1].append(event)
    return steps


def joined(events: list[Event], kind: type[Any]) -> str:
    """The texts of one kind; what was withdrawn from the answer as reasoning does not count."""
    texts: list[str] = []
    for event in events:
        if isinstance(event, TextReset) and event.reason == "reasoning" and kind is TextDelta:
            texts.clear()
        elif isinstance(event, kind) and isinstance(event, TextDelta | ReasoningDelta):
            texts.append(event.text)
    return "".join(texts)


async def test_run_text_follows_the_answer_and_forgets_what_was_withdrawn() -> None:
    seen: list[tuple[str, str]] = []
    async with (
        served([ROUND, BROKEN, ANSWER], tools=[weather]) as (_, agent),
        agent.stream("Hello") as run,
    ):
        assert run.text == ""
        async for event in run:
            if not seen or seen[-1] != (event.type, run.text):
                seen.append((event.type, run.text))

    assert ("text_delta", "Let me look.") in seen
    assert ("text_delta", "Both are") in seen
    for kind, text in seen:
        if kind in ("step_started", "text_reset", "retry_scheduled", "tool_started", "tool_finished"):
            assert text == ""
    assert run.text == run.result.text == "Both are sunny."


async def test_text_deltas_are_the_text_and_on_reset_hears_what_to_wipe() -> None:
    screen, wiped = "", list[str]()

    def wipe(text: str) -> None:
        nonlocal screen
        assert screen.endswith(text)
        screen = screen.removesuffix(text)
        wiped.append(text)

    async with (
        served([ROUND, BROKEN, ANSWER], tools=[weather]) as (_, agent),
        agent.stream("Hello") as run,
    ):
        async for text in run.text_deltas(on_reset=wipe):
            assert text
            screen += text

    assert wiped == ["Let me look.", "Both are"]
    assert screen == run.text == run.result.text == "Both are sunny."


async def test_final_only_shows_nothing_that_is_withdrawn_later() -> None:
    async with (
        served([ROUND, BROKEN, ANSWER], tools=[weather]) as (_, agent),
        agent.stream("Hello") as run,
    ):
        texts = [text async for text in run.text_deltas(final_only=True)]

    assert "".join(texts) == run.result.text == "Both are sunny."


async def test_events_can_be_read_first_and_text_after() -> None:
    async with served([ROUND, ANSWER], tools=[weather]) as (_, agent), agent.stream("Hello") as run:
        async for event in run:
            if isinstance(event, ToolFinished):
                break
        texts = [text async for text in run.text_deltas()]

    assert "".join(texts) == "Both are sunny."


async def test_an_iterator_that_has_ended_stays_ended() -> None:
    async with served([ANSWER]) as (_, agent):
        async with agent.stream("Hello") as run:
            assert [event async for event in run]
            assert [event async for event in run] == []
            assert [text async for text in run.text_deltas()] == []
            first = run.result
        assert run.result is first


async def test_text_is_seen_while_the_reply_is_still_coming() -> None:
    seen = anyio.Event()
    slow = stream_reply(
        [chunk({"content": "early"}), Delay(0.3), chunk({"content": " late"}, finish_reason="stop")]
    )
    async with served([slow]) as (server, agent), agent.stream("Hello") as run:
        async for event in run:
            if isinstance(event, TextDelta) and not seen.is_set():
                assert (event.text, server.requests_open) == ("early", 1)
                seen.set()

    assert run.result.text == "early late"


async def test_reasoning_is_told_apart_and_empty_reasoning_is_told_once() -> None:
    script: list[ScriptedReply] = [
        stream_reply(
            [
                chunk({"reasoning_content": ""}),
                chunk({"reasoning_content": ""}),
                chunk({"content": "Hi.", "reasoning_content": None}),
                chunk({}, finish_reason="stop"),
            ]
        ),
        text_reply("x", field="reasoning"),
    ]
    script[1] = stream_reply(
        [chunk({"reasoning": "Hm."}), chunk({"content": "Hi."}), chunk({}, finish_reason="stop")]
    )
    async with served(script) as (_, agent):
        empty, first = await events_of(agent)
        newer, second = await events_of(agent)

    assert [event.text for event in empty if isinstance(event, ReasoningDelta)] == [""]
    assert [event.text for event in newer if isinstance(event, ReasoningDelta)] == ["Hm."]
    assert (first.reasoning, second.reasoning) == ("", "Hm.")
    assert first.messages[-1] == {"role": "assistant", "content": "Hi.", "reasoning_content": ""}


async def test_a_retry_names_its_attempt_its_delay_and_its_error() -> None:
    script = [
        stream_reply([chunk({"content": "x"}), Delay(0.3), Reset()]),
        error_reply(502, "bad gateway"),
        ANSWER,
    ]
    async with served(script) as (_, agent):
        events, result = await events_of(agent)

    retries = [event for event in events if isinstance(event, RetryScheduled)]
    assert [event.attempt for event in retries] == [1, 2]
    assert all(0 <= event.delay_s <= 0.005 for event in retries)
    assert [type(event.error).__name__ for event in retries] == [
        "TransportConnectionError",
        "TransportStatusError",
    ]
    assert kinds(events)[:4] == ["step_started", "text_delta", "text_reset", "retry_scheduled"]
    assert [step.step for step in result.steps] == [1]


async def test_markers_are_never_shown_even_when_raw_calls_are_off() -> None:
    options = ModelOptions(raw_tool_calls=False)
    async with served(SCRIPTS["raw calls"], tools=[weather], options=options) as (_, agent):
        events, result = await events_of(agent)

    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert "<|" not in shown
    assert "<|" not in result.text
    assert result.tool_calls == []
