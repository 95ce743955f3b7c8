"""Requests compared whole, so that a field nobody meant shows up."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from kimi_agent import ModelOptions
from kimi_agent.testing import ReceivedRequest, adaptive_reply, tool_call
from tests.e2e.support import asking_for, result_of, served

pytestmark = pytest.mark.anyio

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
PREFIX = b'{"model":"kimi-k2","messages":['


def get_weather(city: str, days: int = 1) -> dict[str, Any]:
    """Weather of a city.

    Args:
        city: Name of the city.
        days: How many days to look ahead.
    """
    return {"city": city, "days": days}


DECLARED: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city."},
                "days": {"type": "integer", "description": "How many days to look ahead.", "default": 1},
            },
            "required": ["city"],
        },
    },
}
STREAM_FIELDS: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
USER = {"role": "user", "content": "Paris and Oslo? ü€"}


def sent_messages(request: ReceivedRequest) -> bytes:
    """The bytes of a body's messages, from the first to the end of the last."""
    assert request.raw.startswith(PREFIX)
    _, end = json.JSONDecoder().raw_decode(request.raw.decode(), len(PREFIX) - 1)
    return request.raw.decode()[len(PREFIX) : end - 1].encode()


@STREAMED
async def test_both_requests_of_a_tool_round_are_exactly_these(streamed: bool) -> None:
    calls = [
        tool_call("get_weather", {"city": "Paris"}, id="functions.get_weather:0"),
        tool_call("get_weather", '{"city": "Oslo",  "days": 2}', id="functions.get_weather:1"),
    ]
    script = [
        adaptive_reply("Let me look.", reasoning="Two cities.", tool_calls=calls),
        adaptive_reply("Fine."),
    ]
    options = ModelOptions(temperature=0.6, max_output_tokens=500, parallel_tool_calls=True)
    async with served(script, tools=[get_weather], instructions="Be brief.", options=options) as (
        server,
        agent,
    ):
        await result_of(agent, streamed=streamed, prompt=USER["content"])
    first, second = server.requests

    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, USER]
    fields: dict[str, Any] = {
        "model": "kimi-k2",
        "temperature": 0.6,
        "max_tokens": 500,
        "parallel_tool_calls": True,
        "tools": [DECLARED],
        **(STREAM_FIELDS if streamed else {}),
    }
    assert first.body == {**fields, "messages": messages}
    assert second.body == {
        **fields,
        "messages": [
            *messages,
            {
                "role": "assistant",
                "content": "Let me look.",
                "reasoning_content": "Two cities.",
                "reasoning": "Two cities.",
                "tool_calls": calls,
            },
            {
                "role": "tool",
                "tool_call_id": "functions.get_weather:0",
                "content": '{"city": "Paris", "days": 1}',
            },
            {
                "role": "tool",
                "tool_call_id": "functions.get_weather:1",
                "content": '{"city": "Oslo", "days": 2}',
            },
        ],
    }


@STREAMED
async def test_a_request_without_tools_and_options_holds_model_and_messages_alone(streamed: bool) -> None:
    async with served([adaptive_reply("Fine.")]) as (server, agent):
        await result_of(agent, streamed=streamed)
    [request] = server.requests

    assert request.body == {
        "model": "kimi-k2",
        "messages": [{"role": "user", "content": "Hello"}],
        "temperature": 0.6,  # recommended for this generation
        **(STREAM_FIELDS if streamed else {}),
    }
    assert request.headers["content-type"] == "application/json"
    assert (request.method, request.path, request.query) == ("POST", "/v1/chat/completions", "")


async def test_calls_without_text_are_sent_back_without_content() -> None:
    async with served(
        [asking_for(("get_weather", {"city": "Paris"})), adaptive_reply("Fine.")], tools=[get_weather]
    ) as (
        server,
        agent,
    ):
        await agent.run("Hello")

    message = server.requests[1].body["messages"][1]
    assert set(message) == {"role", "tool_calls"}


@pytest.mark.parametrize(
    ("engine", "keys"),
    [
        ("vllm", {"reasoning", "reasoning_content"}),
        ("sglang", {"reasoning", "reasoning_content"}),
        ("moonshot", {"reasoning_content"}),
        ("openrouter", {"reasoning"}),
        ("generic", {"reasoning", "reasoning_content"}),
    ],
)
async def test_reasoning_goes_back_under_the_names_the_engine_reads(engine: str, keys: set[str]) -> None:
    script = [
        adaptive_reply(reasoning="Hm.", tool_calls=[tool_call("get_weather", {"city": "Paris"})]),
        adaptive_reply("Fine."),
    ]
    async with served(script, tools=[get_weather], engine=engine) as (server, agent):
        await agent.run("Hello")

    message = server.requests[1].body["messages"][1]
    assert {key for key in message if "reasoning" in key} == keys
    assert all(message[key] == "Hm." for key in keys)


async def test_moonshot_is_told_the_output_limit_by_its_new_name() -> None:
    options = ModelOptions(max_output_tokens=10)
    async with served([adaptive_reply("x")], engine="moonshot", options=options) as (server, agent):
        await agent.run("Hello")

    assert {key for key in server.requests[0].body if "max" in key} == {"max_completion_tokens"}


@STREAMED
async def test_the_messages_of_each_request_are_a_byte_prefix_of_the_next(streamed: bool) -> None:
    script = [
        *(
            adaptive_reply(
                f'Step {number}: ü€\n"',
                reasoning="Hm." * number,
                tool_calls=[tool_call("get_weather", f'{{"city":  "{number} \\u00fc", "days": {number}}}')],
            )
            for number in range(4)
        ),
        adaptive_reply("Fine."),
    ]
    async with served(script, tools=[get_weather]) as (server, agent):
        first = await result_of(agent, streamed=streamed, prompt=USER["content"])
    sent = [sent_messages(request) for request in server.requests]

    assert len(sent) == 5
    for before, after in itertools.pairwise(sent):
        assert after.startswith(before + b",")
    ends = [body.raw[len(PREFIX + said) :] for body, said in zip(server.requests, sent, strict=True)]
    assert ends == [ends[0]] * 5
    assert "ü€".encode() in sent[0]

    async with served([adaptive_reply("Fine.")], tools=[get_weather]) as (server, agent):
        await result_of(agent, streamed=streamed, prompt="And now?", history=first.messages)

    [request] = server.requests
    assert sent_messages(request).startswith(sent[-1] + b",")


async def test_a_history_read_from_json_is_sent_as_the_same_bytes() -> None:
    async with served(
        [asking_for(("get_weather", {"city": "Paris"})), adaptive_reply("Fine.", reasoning="Hm.")],
        tools=[get_weather],
    ) as (
        _,
        agent,
    ):
        first = await agent.run("Hello ü")
    stored = json.loads(json.dumps(first.messages))
    async with served([adaptive_reply("x"), adaptive_reply("x")], tools=[get_weather]) as (server, agent):
        await agent.run("And?", history=first.messages)
        await agent.run("And?", history=stored)

    assert server.requests[0].raw == server.requests[1].raw


async def test_a_forced_tool_is_forced_at_the_first_step_only() -> None:
    options = ModelOptions(tool_choice="get_weather")
    script = [asking_for(("get_weather", {"city": "Paris"})), adaptive_reply("Fine.")]
    async with served(script, tools=[get_weather], options=options) as (server, agent):
        await agent.run("Hello")

    assert [request.body["tool_choice"] for request in server.requests] == [
        {"type": "function", "function": {"name": "get_weather"}},
        "auto",
    ]


async def test_extra_body_fields_are_sent_and_win() -> None:
    options = ModelOptions(
        temperature=0.6, extra_body={"temperature": 1.0, "chat_template_kwargs": {"thinking": False}}
    )
    async with served([adaptive_reply("x")], options=options) as (server, agent):
        await agent.run("Hello")

    assert server.requests[0].body == {
        "model": "kimi-k2",
        "messages": [{"role": "user", "content": "Hello"}],
        "temperature": 1.0,
        "chat_template_kwargs": {"thinking": False},
    }


async def test_no_key_and_no_field_of_ours_alone_reaches_the_server() -> None:
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi", "id": 7, "created_at": "now"},
        {
            "role": "assistant",
            "content": "Hello",
            "refusal": None,
            "annotations": [],
            "reasoning_content": None,
        },
    ]
    async with served([adaptive_reply("x")]) as (server, agent):
        await agent.run("And?", history=history)

    assert server.requests[0].body["messages"] == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "And?"},
    ]
