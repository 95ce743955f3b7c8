"""Scripted replies: what the builders make, to the byte."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kimi_agent.testing import (
    Delay,
    ReceivedRequest,
    Reply,
    adaptive_reply,
    chunk,
    error_reply,
    message_reply,
    sse_reply,
    stream_reply,
    text_reply,
    tool_call,
)
from kimi_agent.testing.replies import cut_text


def text_of(reply: Reply) -> str:
    body = reply.body
    assert not isinstance(body, bytes)
    return body if isinstance(body, str) else "".join(piece for piece in body if isinstance(piece, str))


def events_of(reply: Reply) -> list[dict[str, Any]]:
    lines = text_of(reply).split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def asked(*, stream: bool) -> ReceivedRequest:
    return ReceivedRequest(method="POST", path="/v1/chat/completions", body={"stream": stream})


def test_a_stream_reply_holds_exactly_the_given_chunks() -> None:
    reply = stream_reply([{"odd": 1}, Delay(0.5), "raw\n\n"], done=False)

    assert reply.body == ('data: {"odd":1}\n\n', Delay(0.5), "raw\n\n")
    assert reply.headers == {"content-type": "text/event-stream"}


def test_an_sse_reply_adds_nothing() -> None:
    assert sse_reply(["data: x\n\n", b"\xff"]).body == ("data: x\n\n", b"\xff")


def test_a_message_reply_is_one_whole_completion() -> None:
    value = json.loads(
        text_of(message_reply({"role": "assistant", "content": "hi"}, usage={"total_tokens": 3}))
    )

    assert value["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    ]
    assert value["usage"] == {"total_tokens": 3}


def test_errors_come_wrapped_or_flat() -> None:
    wrapped = error_reply(429, "slow down", type="rate_limit_reached_error", retry_after_s=0.5)
    flat = error_reply(400, "no", shape="flat", code=400)

    assert json.loads(text_of(wrapped)) == {
        "error": {"message": "slow down", "type": "rate_limit_reached_error"}
    }
    assert (wrapped.status, wrapped.headers["retry-after"]) == (429, "0.5")
    assert json.loads(text_of(flat)) == {
        "object": "error",
        "message": "no",
        "type": "invalid_request_error",
        "code": 400,
    }


def test_an_adaptive_reply_says_the_same_streamed_and_whole() -> None:
    answer = adaptive_reply(
        "some text", reasoning="because", tool_calls=[tool_call("add", {"a": 1})], usage={"total_tokens": 9}
    )

    whole = json.loads(text_of(answer(asked(stream=False))))
    streamed = events_of(answer(asked(stream=True)))
    deltas: list[dict[str, Any]] = [each["choices"][0]["delta"] for each in streamed if each["choices"]]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]

    message = whole["choices"][0]["message"]
    assert "".join(delta.get("content", "") for delta in deltas) == message["content"] == "some text"
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == message["reasoning_content"]
    assert calls[0]["id"] == message["tool_calls"][0]["id"] == "functions.add:0"
    assert "".join(call["function"]["arguments"] for call in calls) == '{"a": 1}'
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    assert streamed[-1] == chunk(usage={"total_tokens": 9})


def test_a_text_reply_is_cut_where_it_was_asked() -> None:
    events = events_of(text_reply("abcdef", field="reasoning", cuts=[1, 4]))
    deltas: list[dict[str, Any]] = [each["choices"][0]["delta"] for each in events]

    assert deltas == [
        {"role": "assistant", "content": ""},
        {"reasoning": "a"},
        {"reasoning": "bcd"},
        {"reasoning": "ef"},
        {},
    ]


@given(st.text(max_size=50), st.one_of(st.integers(-1, 60), st.lists(st.integers(-5, 60))))
def test_pieces_of_a_cut_text_joined_are_the_text(text: str, cuts: int | list[int]) -> None:
    assert "".join(cut_text(text, cuts)) == text
    assert "" not in cut_text(text, cuts)
