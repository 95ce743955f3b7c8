"""What real engines sent means the same however it is cut."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent._core.sse import SseDecoder
from kimi_agent.messages import ToolSpec
from tests.property.understanding import understood
from tests.recordings import Recording, load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimi_agent.json_types import JsonObject

REPLIES = [one for one in load() if one.status == 200 and one.method == "POST"]
STREAMS = [one for one in REPLIES if one.is_stream]
WHOLE = [one for one in REPLIES if not one.is_stream]


def tools_of(recording: Recording) -> dict[str, ToolSpec]:
    functions: list[JsonObject] = [tool["function"] for tool in recording.request.get("tools") or ()]
    return {
        one["name"]: ToolSpec(name=one["name"], parameters=one.get("parameters") or {}) for one in functions
    }


def chunks_of(recording: Recording, *, piece_bytes: int | None = None) -> list[JsonObject]:
    """The chunks of a stream, its bytes fed at once or in pieces."""
    body = recording.body.encode()
    size = piece_bytes or len(body)
    decoder = SseDecoder(max_event_bytes=len(body) + 1)
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    data = [event for piece in pieces for event in decoder.feed(piece)] + decoder.close()
    return [json.loads(event) for event in data if event != b"[DONE]"]


def in_characters(chunk: JsonObject) -> Iterator[JsonObject]:
    """The same said in chunks that carry one character each."""
    for choice in chunk.get("choices") or ():
        if "text" in choice:
            for character in choice["text"]:
                yield {"choices": [{"index": choice["index"], "text": character}]}
        else:
            for delta in deltas_in_characters(choice["delta"]):
                yield {"choices": [{"index": choice["index"], "delta": delta}]}
        yield {"choices": [{**choice, "text": "", "delta": {}}]}
    yield {**chunk, "choices": []}


def deltas_in_characters(delta: JsonObject) -> Iterator[JsonObject]:
    for field in ("reasoning", "reasoning_content", "content"):
        text: Any = delta.get(field)
        for character in text or ():
            yield {field: character}
        if text == "":
            yield {field: text}
    for call in delta.get("tool_calls") or ():
        function: JsonObject = call.get("function") or {}
        arguments: str = function.get("arguments") or ""
        yield {"tool_calls": [{**call, "function": {**function, "arguments": arguments[:1]}}]}
        for character in arguments[1:]:
            yield {"tool_calls": [{"index": call["index"], "function": {"arguments": character}}]}


def as_stream(message: JsonObject) -> JsonObject:
    """A whole message as the one delta of a stream."""
    calls: list[JsonObject] = message.get("tool_calls") or []
    return {**message, "tool_calls": [{**call, "index": place} for place, call in enumerate(calls)]}


def test_there_is_something_to_cut() -> None:
    assert len(STREAMS) > 100
    assert len(WHOLE) > 100


@pytest.mark.parametrize("piece_bytes", [7, 64])
def test_the_bytes_of_a_recorded_stream_may_be_cut_anywhere(piece_bytes: int) -> None:
    for recording in STREAMS:
        assert chunks_of(recording, piece_bytes=piece_bytes) == chunks_of(recording), recording.id


def test_the_texts_of_a_recorded_stream_may_come_in_single_characters() -> None:
    for recording in STREAMS:
        chunks = chunks_of(recording)
        if any("error" in chunk for chunk in chunks):
            continue
        tools = tools_of(recording)
        cut = [piece for chunk in chunks for piece in in_characters(chunk)]

        assert understood(cut, tools) == understood(chunks, tools), recording.id


def test_a_recorded_reply_means_the_same_streamed_in_single_characters() -> None:
    for recording in WHOLE:
        reply: JsonObject = json.loads(recording.body)
        tools = tools_of(recording)
        streamed = {
            **reply,
            "choices": [
                choice if "text" in choice else {**choice, "delta": as_stream(choice["message"])}
                for choice in reply.get("choices") or ()
            ],
        }

        cut = understood(in_characters(streamed), tools)
        assert cut.reply == understood([reply], tools).reply, recording.id
