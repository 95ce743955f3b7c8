"""Chunks → model events, and the reply as it was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent._core.call_assembler import StructuredCall
from kimi_agent._core.reply_reader import Reply, ReplyReader, check_chunk
from kimi_agent._core.transcript import NO_TEXT
from kimi_agent.errors import IncompleteStreamError, ProtocolError
from kimi_agent.events import ModelEvent, ReasoningDelta, TextDelta, TextReset, ToolCallDelta, ToolCallStarted
from tests.property.corpus import THOUGHT, call

if TYPE_CHECKING:
    from kimi_agent.json_types import JsonObject


def choice(**fields: Any) -> JsonObject:
    return {"choices": [{"index": 0, **fields}]}


def delta(**fields: Any) -> JsonObject:
    return choice(delta=fields)


STOP = choice(delta={}, finish_reason="stop")


def read(*chunks: JsonObject, tools: tuple[str, ...] = ("f",)) -> tuple[list[ModelEvent], Reply]:
    reader = ReplyReader(tools)
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    closing, reply = reader.close()
    return [*events, *closing], reply


def test_text_is_shown_as_it_comes() -> None:
    events, reply = read(delta(role="assistant", content="It is "), delta(content="sunny."), STOP)

    assert events == [TextDelta(text="It is "), TextDelta(text="sunny.")]
    assert reply.content.content == reply.shown == "It is sunny."
    assert reply.finish_reason == "stop"


def test_a_whole_reply_is_read_like_a_stream() -> None:
    message = {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "hm",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    events, reply = read(
        {**choice(message=message, finish_reason="tool_calls"), "usage": {"total_tokens": 3}}
    )

    assert events == [
        ReasoningDelta(text="hm"),
        TextDelta(text="I look."),
        ToolCallStarted(index=0, id="a", name="f"),
        ToolCallDelta(index=0, arguments="{}"),
    ]
    assert reply.calls == (StructuredCall(id="a", name="f", arguments="{}"),)
    assert reply.usage == {"total_tokens": 3}


def test_a_completion_s_text_is_read_like_content() -> None:
    events, reply = read(choice(text="Oslo."), choice(text="", finish_reason="stop"))

    assert events == [TextDelta(text="Oslo.")]
    assert reply.content.content == "Oslo."


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_has_two_names(field: str) -> None:
    events, reply = read(delta(**{field: "hm"}), STOP)

    assert events == [ReasoningDelta(text="hm")]
    assert reply.thought.reasoning == "hm"
    assert reply.has_reasoning_field


def test_reasoning_under_both_names_counts_once() -> None:
    events, _ = read(delta(reasoning="hm", reasoning_content="hm"), STOP)

    assert events == [ReasoningDelta(text="hm")]


def test_empty_reasoning_is_told_once() -> None:
    events, reply = read(delta(reasoning_content=""), delta(reasoning_content=""), STOP)

    assert events == [ReasoningDelta(text="")]
    assert reply.has_reasoning_field


def test_the_content_may_be_a_list_of_parts() -> None:
    events, _ = read(delta(content=[{"type": "text", "text": "Oslo"}, {"type": "image_url"}]), STOP)

    assert events == [TextDelta(text="Oslo")]


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"choices": []},
        {"choices": None},
        {"choices": [None, 3]},
        {"choices": {"index": 0}},
        {"choices": [{"index": 0, "delta": None}]},
        {"choices": [{"index": 1, "delta": {"content": "another choice"}}]},
        delta(content=None, tool_calls=None, reasoning_content=None),
        delta(content=7, tool_calls=[], reasoning_content=3),
        delta(tool_calls={"index": 0}),
        choice(message={"tool_calls": 3}),
        choice(text=3, finish_reason=7, usage=2),
        {"usage": None},
    ],
)
def test_a_chunk_without_anything_useful_does_no_harm(odd: JsonObject) -> None:
    events, reply = read(odd, delta(content="Oslo"), odd, STOP, odd)

    assert events == [TextDelta(text="Oslo")]
    assert reply.finish_reason == "stop"
    assert reply.usage is None
    assert reply.thought == NO_TEXT or reply.thought.reasoning == ""


def test_usage_may_stand_in_the_choice_or_beside_it() -> None:
    inside = choice(delta={}, finish_reason="stop", usage={"prompt_tokens": 1})
    beside: JsonObject = {"choices": [], "usage": {"prompt_tokens": 2}}

    assert read(inside)[1].usage == {"prompt_tokens": 1}
    assert read(inside, beside)[1].usage == {"prompt_tokens": 2}
    assert read(beside, inside)[1].usage == {"prompt_tokens": 2}


def test_a_reply_is_complete_with_a_finish_reason_or_a_word_of_the_transport() -> None:
    assert read(STOP)[1].finish_reason == "stop"

    reader = ReplyReader()
    reader.feed(delta(content="Oslo"))
    reader.end()

    assert reader.close()[1].finish_reason is None


def test_a_reply_is_finished_once_its_finish_reason_has_come() -> None:
    reader = ReplyReader()
    reader.feed(delta(content="Oslo"))
    assert not reader.is_finished
    reader.feed(STOP)

    assert reader.is_finished


def test_a_stream_that_just_stops_is_incomplete() -> None:
    reader = ReplyReader()
    reader.feed(delta(content="It is "))
    with pytest.raises(IncompleteStreamError, match=r"finish reason.*\[DONE\]") as caught:
        reader.close()

    assert caught.value.partial_text == "It is "
    assert caught.value.raw == "It is "
    assert caught.value.retryable


def test_calls_left_in_the_text_are_taken_out_of_it() -> None:
    events, reply = read(delta(content=f"I look.{call()}"), STOP)

    assert events == [TextDelta(text="I look.")]
    assert [one.header for one in reply.content.calls] == ["functions.get_weather:0"]


def test_calls_left_in_the_reasoning_are_calls_if_nothing_follows() -> None:
    _, reply = read(delta(reasoning_content=f"hm{call()}"), STOP)

    assert len(reply.thought.calls) == 1
    assert reply.thought.reasoning == "hm"


@pytest.mark.parametrize(
    "later", [{"content": "Oslo."}, {"tool_calls": [{"index": 0, "function": {"name": "f"}}]}]
)
def test_calls_left_in_the_reasoning_are_thoughts_if_the_server_saw_its_end(later: JsonObject) -> None:
    _, reply = read(delta(reasoning_content=f"hm{call()}"), delta(**later), STOP)

    assert reply.thought.calls == ()
    assert len(reply.thought.thought_calls) == 1


def test_a_thought_s_end_in_the_answer_withdraws_what_was_shown() -> None:
    events, reply = read(delta(content="hm"), delta(content=f"{THOUGHT}Oslo"), STOP)

    assert events == [
        TextDelta(text="hm"),
        TextReset(text="hm", reason="reasoning"),
        ReasoningDelta(text="hm"),
        TextDelta(text="Oslo"),
    ]
    assert reply.shown == "Oslo"


def test_a_thought_s_end_after_withdrawn_text_only_withdraws_nothing() -> None:
    reader = ReplyReader(starts_in_thought=True)
    events = [*reader.feed(delta(content=f"hm{THOUGHT}")), *reader.feed(STOP)]

    assert events == [ReasoningDelta(text="hm")]
    assert reader.shown == ""


def test_a_call_without_arguments_is_told_at_the_end() -> None:
    events, _ = read(delta(tool_calls=[{"index": 0, "function": {"name": "g"}}]), STOP)

    assert events == [ToolCallStarted(index=0, id="", name="g")]


def test_a_chunk_has_to_be_an_object() -> None:
    value = {"a": 1}
    url = "http://127.0.0.1:8000/v1"

    assert check_chunk(value, b"", url=url) is value
    with pytest.raises(ProtocolError, match="type list, not an object") as caught:
        check_chunk([1], b"[1]\xff" * 400, url=url)
    assert url in str(caught.value)
    assert caught.value.raw.startswith("[1]\ufffd")
    assert len(caught.value.raw) <= 500
