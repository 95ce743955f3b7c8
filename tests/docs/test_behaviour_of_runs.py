"""Requests and runs: the promises B-040 to B-054 of docs/reference/behaviour.md."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from kimi_agent import (
    AuthenticationError,
    ConfigurationError,
    IncompleteStreamError,
    InvalidHistoryError,
    InvalidRequestError,
    KimiAgent,
    KimiAgentError,
    ModelNotFoundError,
    QuotaExhaustedError,
    RetryScheduled,
    RunLimits,
    StepLimitError,
    TextDelta,
    TextReset,
    ToolStarted,
    tool,
)
from kimi_agent.testing import (
    Close,
    Hang,
    KimiServer,
    adaptive_reply,
    chunk,
    error_reply,
    json_reply,
    stream_reply,
    tool_call,
)
from tests.docs.scene import DONE, Scene, play

pytestmark = pytest.mark.anyio

BROKEN = stream_reply([chunk({"content": "Half an"}), Close()], done=False)
ENDED_EARLY = stream_reply([chunk({"content": "Half an"})], done=False)
SOON = RunLimits(max_retry_delay_s=0)


async def test_a_broken_stream_is_sent_again_after_its_text_is_withdrawn() -> None:
    # B-040
    scene = await play([BROKEN, DONE], limits=SOON)

    kinds = [event.type for event in scene.events if not isinstance(event, TextDelta)]
    assert kinds == ["step_started", "text_reset", "retry_scheduled", "step_finished"]
    assert scene.withdrawn == ["Half an"]
    assert scene.result.text == "Done."


async def test_an_overloaded_server_is_asked_again_as_often_as_allowed() -> None:
    # B-040
    busy = error_reply(429, "The engine is currently overloaded", type="engine_overloaded_error")
    scene = Scene()
    with pytest.raises(KimiAgentError, match="overloaded"):
        await play([busy] * 3, scene=scene, limits=SOON)

    assert [event.attempt for event in scene.events if isinstance(event, RetryScheduled)] == [1, 2]
    assert len(scene.requests) == 3


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (error_reply(429, "You exceeded your current quota"), QuotaExhaustedError),
        (error_reply(401, "Incorrect API key provided"), AuthenticationError),
        (error_reply(400, "messages must not be empty"), InvalidRequestError),
    ],
)
async def test_what_will_not_pass_is_raised_at_once(refusal: Any, error: type[KimiAgentError]) -> None:
    # B-041
    scene = Scene()
    with pytest.raises(error):
        await play([refusal, DONE], scene=scene)

    assert len(scene.requests) == 1


async def test_a_stream_without_an_end_is_raised_with_the_text_that_had_come() -> None:
    # B-042
    with pytest.raises(IncompleteStreamError) as caught:
        await play([ENDED_EARLY] * 3, limits=SOON)

    assert caught.value.partial_text == "Half an"


async def test_a_wrong_model_name_is_answered_with_the_right_one() -> None:
    # B-043
    async with (
        KimiServer(model="moonshotai/Kimi-K2-Instruct") as server,
        KimiAgent("kimi-k2-instruct", base_url=server.base_url) as agent,
    ):
        with pytest.raises(ModelNotFoundError, match="moonshotai/Kimi-K2-Instruct") as caught:
            await agent.run("Go")

    assert caught.value.available == ("moonshotai/Kimi-K2-Instruct",)
    assert caught.value.suggestion == "moonshotai/Kimi-K2-Instruct"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_what_cannot_work_is_refused_before_anything_is_sent() -> None:
    # B-044
    with pytest.raises(ConfigurationError, match="KIMI_BASE_URL"):
        await KimiAgent("kimi-k2").run("Go")
    with pytest.raises(ConfigurationError, match="two tools are called 'add'"):
        KimiAgent("kimi-k2", tools=[add, add])
    unanswered = [{"role": "assistant", "tool_calls": [tool_call("add", {"a": 1, "b": 2})]}]
    async with KimiServer() as server, KimiAgent("kimi-k2", base_url=server.base_url) as agent:
        with pytest.raises(InvalidHistoryError, match=r"functions\.add:0"):
            await agent.run(None, history=unanswered)

        assert server.requests == []


async def test_without_a_model_the_only_one_of_the_server_is_used() -> None:
    # B-045
    async with KimiServer(model="kimi-only") as server, KimiAgent(base_url=server.base_url) as agent:
        await agent.run("Who are you?")

        assert server.requests[-1].body["model"] == "kimi-only"


async def test_without_a_model_several_are_listed_to_choose_from() -> None:
    # B-045
    models = json_reply({"object": "list", "data": [{"id": "kimi-a"}, {"id": "kimi-b"}]})
    async with (
        KimiServer(replies={"/v1/models": models}) as server,
        KimiAgent(base_url=server.base_url) as agent,
    ):
        with pytest.raises(ConfigurationError, match="kimi-a, kimi-b"):
            await agent.run("Go")


async def test_a_history_is_not_changed_and_messages_are_the_next_history() -> None:
    # B-050
    scene = Scene()
    call = adaptive_reply(tool_calls=[tool_call("get_weather", {"city": "Oslo"})])
    history = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello!"}]
    before = json.dumps(history)
    async with (
        KimiServer(replies=[call, DONE, DONE]) as server,
        KimiAgent("kimi-k2", tools=scene.tools(), base_url=server.base_url) as agent,
    ):
        first = await agent.run("Weather?", history=history)
        second = await agent.run("Thanks.", history=json.loads(json.dumps(first.messages)))

    assert json.dumps(history) == before
    assert first.messages == history + first.new_messages
    assert second.messages[: len(first.messages)] == first.messages


async def test_a_limit_leaves_a_history_to_go_on_from() -> None:
    # B-051
    scene = Scene()
    call = adaptive_reply(tool_calls=[tool_call("get_weather", {"city": "Oslo"})])
    async with (
        KimiServer(replies=[call, DONE]) as server,
        KimiAgent(
            "kimi-k2", tools=scene.tools(), base_url=server.base_url, limits=RunLimits(max_steps=1)
        ) as agent,
    ):
        with pytest.raises(StepLimitError) as caught:
            await agent.run("Go")
        result = await agent.run(None, history=caught.value.result.messages)

    assert [call.arguments for call in caught.value.result.tool_calls] == [{"city": "Oslo"}]
    assert result.text == "Done."


async def test_leaving_early_ends_the_tools_and_answers_every_call() -> None:
    # B-052
    ended: list[str] = []

    async def wait(name: str) -> None:
        """Wait for ever."""
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(name)

    calls = [tool_call("wait", {"name": name}, id=name) for name in ("a", "b")]
    async with (
        KimiServer(replies=[adaptive_reply(tool_calls=calls)]) as server,
        KimiAgent("kimi-k2", tools=[wait], base_url=server.base_url) as agent,
    ):
        with anyio.fail_after(5):
            async with agent.stream("Go") as run:
                started = 0
                async for event in run:
                    started += isinstance(event, ToolStarted)
                    if started == 2:
                        break
                await anyio.lowlevel.checkpoint()

        assert sorted(ended) == ["a", "b"]
        assert [message["role"] for message in run.result.messages] == ["user", "assistant", "tool", "tool"]


async def test_leaving_early_ends_the_request() -> None:
    # B-052
    endless = stream_reply([chunk({"content": "Well"}), Hang()], done=False)
    async with (
        KimiServer(replies=[endless]) as server,
        KimiAgent("kimi-k2", base_url=server.base_url) as agent,
    ):
        with anyio.fail_after(5):
            async with agent.stream("Go") as run:
                async for event in run:
                    if isinstance(event, TextDelta):
                        break
            await server.wait_for_async(lambda: server.disconnects == 1)

        assert run.result.finish_reason == "cancelled"


async def test_an_exception_in_the_block_comes_out_as_itself() -> None:
    # B-053
    async with KimiServer() as server, KimiAgent(base_url=server.base_url) as agent:
        with pytest.raises(KeyError, match="mine"):
            await leave_with(KeyError("mine"), agent)


async def leave_with(error: Exception, agent: KimiAgent) -> None:
    async with agent.stream("Who are you?") as run:
        async for _ in run:
            raise error


async def test_runs_of_one_agent_do_not_disturb_each_other() -> None:
    # B-054
    scene = Scene()
    cities = ["Paris", "Tokyo", "Oslo", "Lima"]
    answers: dict[str, str] = {}
    async with KimiServer() as server, KimiAgent(tools=scene.tools()[:1], base_url=server.base_url) as agent:

        async def ask(city: str) -> None:
            async with agent.stream(f"What is the weather in {city}?") as run:
                async for event in run:
                    if isinstance(event, TextReset):
                        assert city in event.text
            answers[city] = run.result.text

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                for city in cities:
                    group.start_soon(ask, city)

    assert {city: f"Sunny in {city}" in answer for city, answer in answers.items()} == dict.fromkeys(
        cities, True
    )
