"""One run from the prompt to its result, over HTTP."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kimi_agent import ConfigurationError, KimiAgent, ModelOptions, Usage
from kimi_agent.testing import KimiServer, Reply, adaptive_reply, tool_call
from tests.e2e.support import (
    asking_for,
    chat_requests,
    events_of,
    is_valid_history,
    result_of,
    served,
    untimed,
    weather,
)

if TYPE_CHECKING:
    from kimi_agent.testing import ReceivedRequest

pytestmark = pytest.mark.anyio

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
TWO_CITIES = (("weather", {"city": "Paris"}), ("weather", {"city": "Oslo", "unit": "F"}))


def usage(prompt: int, completion: int, cached: int = 0) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }


@STREAMED
async def test_a_question_gets_its_answer(streamed: bool) -> None:
    async with served([adaptive_reply("It is sunny.")]) as (_, agent):
        result = await result_of(agent, streamed=streamed, prompt="How is it?")

    assert result.text == result.output == "It is sunny."
    assert (result.finish_reason, result.reasoning, result.tool_calls, result.repairs) == (
        "stop",
        None,
        [],
        [],
    )
    assert result.messages == result.new_messages
    assert result.messages == [
        {"role": "user", "content": "How is it?"},
        {"role": "assistant", "content": "It is sunny."},
    ]


@STREAMED
async def test_a_tool_round_is_told_in_full(streamed: bool) -> None:
    script = [
        asking_for(*TWO_CITIES, text="Let me look."),
        adaptive_reply("Both are sunny.", reasoning="Easy.", usage=usage(30, 5, 20)),
    ]
    async with served(script, tools=[weather]) as (_, agent):
        result = await result_of(agent, streamed=streamed, prompt="Paris and Oslo?")

    assert (result.text, result.reasoning, result.finish_reason) == ("Both are sunny.", "Easy.", "stop")
    assert [
        (call.step, call.index, call.id, call.name, call.arguments, call.result, call.is_error)
        for call in result.tool_calls
    ] == [
        (1, 0, "functions.weather:0", "weather", {"city": "Paris"},
         '{"city": "Paris", "weather": "Sunny", "unit": "C"}', False),
        (1, 1, "functions.weather:1", "weather", {"city": "Oslo", "unit": "F"},
         '{"city": "Oslo", "weather": "Sunny", "unit": "F"}', False),
    ]  # fmt: skip
    assert [(step.step, step.finish_reason, step.raw_finish_reason) for step in result.steps] == [
        (1, "tool_calls", "tool_calls"),
        (2, "stop", "stop"),
    ]
    assert [message["role"] for message in result.messages] == [
        "user", "assistant", "tool", "tool", "assistant",
    ]  # fmt: skip
    assert result.messages[1]["content"] == "Let me look."
    assert is_valid_history(result.messages)
    assert json.loads(json.dumps(result.messages)) == result.messages


@STREAMED
async def test_usage_and_times_are_summed_over_the_steps(streamed: bool) -> None:
    script = [
        adaptive_reply(tool_calls=[tool_call("weather", {"city": "Paris"})], usage=usage(100, 10)),
        adaptive_reply("Sunny.", usage=usage(120, 4, 100)),
    ]
    async with served(script, tools=[weather]) as (_, agent):
        result = await result_of(agent, streamed=streamed)

    assert result.usage == Usage(
        requests=2, input_tokens=220, output_tokens=14, cached_tokens=100, reasoning_tokens=4
    )
    assert [step.usage.input_tokens for step in result.steps] == [100, 120]
    for step in result.steps:
        assert step.ttft_s is not None
        assert 0 < step.ttft_s <= step.duration_s < 10
    assert all(call.duration_s >= 0 for call in result.tool_calls)


async def test_run_and_stream_come_to_the_same_result() -> None:
    script = [
        asking_for(*TWO_CITIES, text="Let me look."),
        adaptive_reply("Sunny.", reasoning="Hm.", usage=usage(9, 9)),
    ]
    async with served([*script, *script], tools=[weather]) as (_, agent):
        whole = await agent.run("Weather?")
        _, streamed = await events_of(agent, "Weather?")

    assert untimed(whole) == untimed(streamed)


@STREAMED
async def test_a_run_goes_on_from_the_messages_of_the_one_before(streamed: bool) -> None:
    script = [
        asking_for(("weather", {"city": "Paris"})),
        adaptive_reply("Sunny.", reasoning="Hm."),
        adaptive_reply("You asked about Paris."),
    ]
    async with served(script, tools=[weather]) as (server, agent):
        first = await result_of(agent, streamed=streamed, prompt="Paris?")
        second = await result_of(agent, streamed=streamed, prompt="What did I ask?", history=first.messages)
        sent = chat_requests(server)[-1].body["messages"]

    assert second.text == "You asked about Paris."
    assert second.messages[: len(first.messages)] == first.messages
    assert second.new_messages == second.messages[len(first.messages) :]
    assert second.new_messages == [
        {"role": "user", "content": "What did I ask?"},
        {"role": "assistant", "content": "You asked about Paris."},
    ]
    assert [message["role"] for message in sent] == [
        "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    assert second.usage.requests == 1


@STREAMED
async def test_the_history_given_is_never_changed(streamed: bool) -> None:
    history: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Paris?"}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning": "Hm.",
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "weather", "arguments": {"city": "Paris"}},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "Sunny", "own_field": [1]},
        {"role": "assistant", "content": "Sunny."},
    ]
    before = copy.deepcopy(history)
    parts: list[dict[str, Any]] = [{"type": "text", "text": "And Oslo?"}]
    script = [asking_for(("weather", {"city": "Oslo"})), adaptive_reply("Sunny too.")]
    async with served(script, tools=[weather]) as (_, agent):
        result = await result_of(agent, streamed=streamed, prompt=parts, history=history)
        result.messages.append({"role": "user", "content": "mine"})
        parts.append({"type": "text", "text": "changed by the caller"})

    assert history == before
    assert result.new_messages[0] == {"role": "user", "content": [{"type": "text", "text": "And Oslo?"}]}


async def test_a_prompt_may_be_content_parts() -> None:
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    async with served([adaptive_reply("A picture.")]) as (server, agent):
        result = await agent.run(parts)
        [request] = server.requests

    assert request.body["messages"] == [{"role": "user", "content": parts}]
    assert result.messages[0] == {"role": "user", "content": parts}


async def test_without_a_prompt_the_run_goes_on_from_the_history() -> None:
    history = [{"role": "user", "content": "Hello?"}]
    async with served([adaptive_reply("Hi.")], instructions="Be kind.") as (server, agent):
        result = await agent.run(None, history=history)
        [request] = server.requests

    assert request.body["messages"] == [{"role": "system", "content": "Be kind."}, *history]
    assert result.new_messages == [{"role": "assistant", "content": "Hi."}]


async def test_instructions_are_the_first_message_and_are_sent_once() -> None:
    script = [adaptive_reply("Hi."), adaptive_reply("Hi again.")]
    async with served(script, instructions="Be kind.") as (server, agent):
        first = await agent.run("Hello")
        second = await agent.run("Hello again", history=first.messages)
        sent = [request.body["messages"] for request in server.requests]

    assert sent[0] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
    assert [message["role"] for message in sent[1]] == ["system", "user", "assistant", "user"]
    assert second.messages[: len(first.messages)] == first.messages
    assert [message["role"] for message in second.new_messages] == ["user", "assistant"]


async def test_a_system_message_of_the_history_wins_over_the_instructions() -> None:
    history = [{"role": "system", "content": "Be rude."}, {"role": "user", "content": "Hello"}]
    async with served([adaptive_reply("Go away.")], instructions="Be kind.") as (server, agent):
        await agent.run(None, history=history)
        [request] = server.requests

    assert request.body["messages"] == history


@pytest.mark.parametrize("prompt", ["", [], None])
async def test_an_empty_prompt_is_refused_before_anything_is_sent(prompt: Any) -> None:
    async with served([adaptive_reply("x")]) as (server, agent):
        with pytest.raises(ConfigurationError, match="prompt is"):
            await agent.run(prompt)
        with pytest.raises(ConfigurationError, match="prompt is"):
            agent.stream(prompt)

    assert server.requests == []


async def test_fifty_runs_of_one_agent_are_under_way_at_once() -> None:
    count, arrived, met = 50, set[str](), anyio.Event()

    async def meet(name: str) -> str:
        """Wait for everybody."""
        arrived.add(name)
        if len(arrived) == count:
            met.set()
        await met.wait()
        return f"{name} met all"

    def reply(request: ReceivedRequest) -> Reply:
        messages = request.body["messages"]
        asked, last = messages[0], messages[-1]
        if last["role"] == "tool":
            return adaptive_reply(f"{asked['content']}: {last['content']}")(request)
        return asking_for(("meet", {"name": asked["content"]}))(request)

    results: dict[str, str] = {}
    async with served(reply, tools=[meet]) as (server, agent):

        async def one(name: str, streamed: bool) -> None:
            results[name] = (await result_of(agent, streamed=streamed, prompt=name)).text

        async with anyio.create_task_group() as group:
            for number in range(count):
                group.start_soon(one, f"guest {number}", number % 2 == 0)

    assert len(server.requests) == 2 * count
    assert results == {
        f"guest {number}": f"guest {number}: guest {number} met all" for number in range(count)
    }


async def test_options_are_sent_under_the_engines_names() -> None:
    options = ModelOptions(temperature=0.6, max_output_tokens=100, stop=("END",), extra_body={"top_k": 5})
    async with served([adaptive_reply("x")], options=options) as (server, agent):
        await agent.run("Hello")
        [request] = server.requests

    assert request.body == {
        "model": "kimi-k2",
        "messages": [{"role": "user", "content": "Hello"}],
        "temperature": 0.6,
        "max_tokens": 100,
        "stop": ["END"],
        "top_k": 5,
    }


async def test_the_simulated_engine_answers_a_two_city_question() -> None:
    with anyio.fail_after(15):
        async with (
            KimiServer() as server,
            KimiAgent(tools=[weather], base_url=server.base_url) as agent,
        ):
            result = await agent.run("What is the weather in Paris and Tokyo?")

    assert [call.arguments["city"] for call in result.tool_calls] == ["Paris", "Tokyo"]
    assert "Sunny" in result.text
