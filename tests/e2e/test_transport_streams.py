"""Streams as servers, proxies and networks really send them: what is read, and when it is over."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kimi_agent import RunLimits, TextDelta, Usage
from kimi_agent.testing import (
    Close,
    Delay,
    Hang,
    Reply,
    Reset,
    adaptive_reply,
    chunk,
    message_reply,
    sse_reply,
    stream_reply,
    text_reply,
)
from kimi_agent.testing.replies import event
from tests.e2e.support import asking_for, chat_requests, drained, events_of, result_of, served, weather

if TYPE_CHECKING:
    from kimi_agent.testing import ScriptedReply

pytestmark = pytest.mark.anyio

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
HI = event(chunk({"content": "Hi "}))
THERE = event(chunk({"content": "thére €"}))
STOP = event(chunk({}, finish_reason="stop"))
DONE = "data: [DONE]\n\n"
EVERYTHING = (HI + THERE + STOP + DONE).encode()
INSIDE_A_CHARACTER = EVERYTHING.index("€".encode()) + 1
OTHER_CHOICE = event({"choices": [{"index": 1, "delta": {"content": "no"}}]})
FILTER = event({"choices": [], "prompt_filter_results": [1]})

SPELLINGS: dict[str, list[Any]] = {
    "plain": [HI, THERE, STOP, DONE],
    "one write": [EVERYTHING],
    "byte by byte": [EVERYTHING[place : place + 1] for place in range(len(EVERYTHING))],
    "cut inside a character": [EVERYTHING[:INSIDE_A_CHARACTER], EVERYTHING[INSIDE_A_CHARACTER:]],
    "windows line ends": [EVERYTHING.replace(b"\n", b"\r\n")],
    "windows line ends, cut between": EVERYTHING.replace(b"\n", b"\r|\n").split(b"|"),
    "no space after the colon": [EVERYTHING.replace(b"data: ", b"data:")],
    "keep-alive comments": [": ping\n\n", HI, ": OPENROUTER PROCESSING\n\n", THERE, ":\n\n", STOP, DONE],
    "named events and ids": [f"event: message\nid: 7\nretry: 10\n{HI}", THERE, STOP, DONE],
    "no blank line at the end": [HI, THERE, STOP, "data: [DONE]"],
    "no [DONE]": [HI, THERE, STOP],
    "no [DONE] and no blank line": [HI, THERE, STOP.rstrip()],
    "no finish reason": [HI, THERE, DONE],
    "an event over several data lines": [HI, THERE.replace('"choices"', '\ndata: "choices"'), STOP, DONE],
    "empty data": ["data:\n\n", HI, "data: \n\n", THERE, STOP, DONE],
    "words after [DONE]": [HI, THERE, STOP, DONE, event(chunk({"content": "never"}))],
    "choices of other requests": [HI, OTHER_CHOICE, THERE, STOP, DONE],
    "odd fields": [HI, FILTER, event({"timings": {}}), THERE, STOP, DONE],
}


@pytest.mark.parametrize("name", SPELLINGS)
async def test_a_stream_is_read_however_it_is_spelled(name: str) -> None:
    async with served([sse_reply(SPELLINGS[name])]) as (server, agent):
        _, result = await events_of(agent)

    assert result.text == "Hi thére €"
    assert result.finish_reason == "stop"
    assert len(server.requests) == 1


@pytest.mark.parametrize("framing", ["chunked", "close"])
async def test_a_body_may_be_framed_in_either_way(framing: Any) -> None:
    reply = Reply(
        headers={"content-type": "text/event-stream; charset=utf-8"}, body=[EVERYTHING], framing=framing
    )
    async with served([reply]) as (_, agent):
        _, result = await events_of(agent)

    assert result.text == "Hi thére €"


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/octet-stream"])
async def test_a_stream_that_is_not_announced_as_one_is_read_all_the_same(content_type: str) -> None:
    reply = Reply(headers={"content-type": content_type} if content_type else {}, body=[EVERYTHING])
    async with served([reply]) as (_, agent):
        _, result = await events_of(agent)

    assert result.text == "Hi thére €"


async def test_a_compressed_stream_is_read() -> None:
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    async with served([Reply(headers=headers, body=[gzip.compress(EVERYTHING)])]) as (_, agent):
        _, result = await events_of(agent)

    assert result.text == "Hi thére €"


async def test_a_server_that_does_not_stream_is_understood_when_a_stream_was_asked_for() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    calls: ScriptedReply = message_reply(
        {"role": "assistant", "content": None, "tool_calls": call_of("weather", {"city": "Paris"})},
        finish_reason="tool_calls",
    )
    async with served(
        [calls, message_reply({"role": "assistant", "content": "Sunny."}, usage=usage)], tools=[weather]
    ) as (_, agent):
        events, result = await events_of(agent)

    assert result.text == "Sunny."
    assert [each.text for each in events if isinstance(each, TextDelta)] == ["Sunny."]
    assert result.usage == Usage(requests=2, input_tokens=3, output_tokens=2)


def call_of(name: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"id": "a", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}]


async def test_a_server_that_always_streams_is_understood_when_no_stream_was_asked_for() -> None:
    script: list[ScriptedReply] = [
        stream_reply(
            [
                chunk({"tool_calls": [{"index": 0, **call_of("weather", {"city": "Paris"})[0]}]}),
                chunk({}, finish_reason="tool_calls"),
            ]
        ),
        text_reply("Sunny.", cuts=2),
    ]
    async with served(script, tools=[weather]) as (_, agent):
        result = await agent.run("Hello")

    assert result.text == "Sunny."


USAGE = {"prompt_tokens": 30, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 20}}
USAGE_PLACES: dict[str, list[Any]] = {
    "last chunk without choices": [
        chunk({"content": "Hi"}),
        chunk({}, finish_reason="stop"),
        chunk(usage=USAGE),
    ],
    "finish chunk": [chunk({"content": "Hi"}), chunk({}, finish_reason="stop", usage=USAGE)],
    "every chunk, growing": [
        chunk({"content": "Hi"}, usage={"prompt_tokens": 30, "completion_tokens": 1}),
        chunk({}, finish_reason="stop", usage=USAGE),
    ],
    "inside the choice": [
        chunk({"content": "Hi"}),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}]},
    ],
    "null before": [
        {**chunk({"content": "Hi"}), "usage": None},
        chunk({}, finish_reason="stop"),
        chunk(usage=USAGE),
    ],
    "cached at the top level": [
        chunk({"content": "Hi"}),
        chunk(
            {}, finish_reason="stop", usage={"prompt_tokens": 30, "completion_tokens": 5, "cached_tokens": 20}
        ),
    ],
}


@pytest.mark.parametrize("name", USAGE_PLACES)
async def test_usage_is_found_wherever_it_is_put_and_counted_once(name: str) -> None:
    async with served([stream_reply(USAGE_PLACES[name])]) as (_, agent):
        _, result = await events_of(agent)

    assert result.usage == Usage(requests=1, input_tokens=30, output_tokens=5, cached_tokens=20)


# --- when a reply is over -------------------------------------------------------------------------


async def test_a_server_that_keeps_the_connection_after_done_does_not_keep_the_run() -> None:
    script = [sse_reply([HI, THERE, STOP, DONE, Hang()]), adaptive_reply("Next.")]
    async with served(script, limits=RunLimits()) as (server, agent):
        with anyio.fail_after(5):
            _, result = await events_of(agent)
            following = await agent.run("Hello")
        await server.wait_for_async(lambda: server.disconnects == 1, 2)

    assert (result.text, following.text) == ("Hi thére €", "Next.")


AFTER_THE_END: dict[str, list[Any]] = {
    "closed": [Close()],
    "reset": [Delay(0.3), Reset()],
    "silence": [Hang()],
}


@pytest.mark.parametrize("name", AFTER_THE_END)
async def test_what_goes_wrong_after_the_finish_reason_does_not_cost_the_reply(name: str) -> None:
    limits = RunLimits(request_timeout_s=0.5, max_retries=1, max_retry_delay_s=0.001)
    script = [sse_reply([HI, THERE, STOP, *AFTER_THE_END[name]]), adaptive_reply("Asked again.")]
    async with served(script, limits=limits) as (server, agent):
        _, result = await events_of(agent)

    assert result.text == "Hi thére €"
    assert len(server.requests) == 1


async def test_what_goes_wrong_after_done_does_not_cost_the_reply() -> None:
    script = [sse_reply([HI, THERE, STOP, DONE, Delay(0.3), Reset()]), adaptive_reply("Asked again.")]
    async with served(script) as (server, agent):
        _, result = await events_of(agent)

    assert result.text == "Hi thére €"
    assert len(server.requests) == 1


async def test_a_connection_the_server_closed_meanwhile_is_opened_anew() -> None:
    closing = Reply(headers={"content-type": "text/event-stream"}, body=[EVERYTHING], framing="close")
    script: list[ScriptedReply] = [closing, asking_for(("weather", {"city": "Paris"})), closing]
    async with served(script, tools=[weather], limits=RunLimits(max_retries=0)) as (server, agent):
        await events_of(agent)
        await events_of(agent)

    assert len(chat_requests(server)) == 3


@STREAMED
async def test_a_long_reply_arrives_whole(streamed: bool) -> None:
    text = "".join(f"{number} ü\n" for number in range(20_000))
    async with served([adaptive_reply(text, cuts=64)]) as (_, agent):
        result = await result_of(agent, streamed=streamed)

    assert result.text == text


async def test_two_streams_of_one_agent_do_not_mix() -> None:
    meeting = [anyio.Event(), anyio.Event()]
    async with served(lambda request: text_reply(request.body["messages"][0]["content"] * 50, cuts=1)) as (
        _,
        agent,
    ):

        async def read(text: str, mine: int) -> str:
            async with agent.stream(text) as run:
                async for each in run:
                    if isinstance(each, TextDelta) and not meeting[mine].is_set():
                        meeting[mine].set()
                        await meeting[1 - mine].wait()
            return run.result.text

        texts: dict[str, str] = {}

        async def keep(text: str, mine: int) -> None:
            texts[text] = await read(text, mine)

        async with anyio.create_task_group() as group:
            group.start_soon(keep, "a", 0)
            group.start_soon(keep, "b", 1)

    assert texts == {"a": "a" * 50, "b": "b" * 50}


async def test_nothing_is_lost_when_a_stream_is_read_to_its_end_and_left() -> None:
    async with served([text_reply("Hi.")]) as (_, agent):
        run = agent.stream("Hello")
        events = await drained(run)

    assert events[-1].type == "step_finished"
    assert run.result.finish_reason == "stop"
