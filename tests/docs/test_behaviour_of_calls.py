"""What becomes of calls: the promises B-020 to B-031 of docs/reference/behaviour.md."""

from __future__ import annotations

import anyio
import pytest

from kimi_agent import (
    Approval,
    KimiAgent,
    LoopDetectedError,
    ModelError,
    ModelOptions,
    RunLimits,
    ToolCall,
    ToolFinished,
    ToolStarted,
)
from kimi_agent.testing import KimiServer, adaptive_reply, tool_call
from tests.docs.scene import DONE, Scene, play

pytestmark = pytest.mark.anyio


def weather(city: str, place: int = 0) -> dict[str, object]:
    return tool_call("get_weather", {"city": city}, id=f"functions.get_weather:{place}")


async def test_every_call_gets_one_result_in_the_order_of_the_calls() -> None:
    # B-020
    calls = [
        tool_call("get_moon", {"city": "Oslo"}, id="a"),
        tool_call("get_weather", {"town": "Oslo"}, id="b"),
        tool_call("get_weather", "not json", id="c"),
        tool_call("get_weather", {"city": "Oslo"}, id="d"),
    ]
    scene = await play([adaptive_reply(tool_calls=calls), DONE])

    results = [message for message in scene.result.messages if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in results] == ["a", "b", "c", "d"]
    assert [call.is_error for call in scene.result.tool_calls] == [True, True, True, False]
    assert sum(isinstance(event, ToolFinished) for event in scene.events) == 4


async def test_calls_of_one_reply_run_side_by_side() -> None:
    # B-021
    both_run = anyio.Event()
    running = 0

    async def meet(name: str) -> str:
        """Wait for another call."""
        nonlocal running
        running += 1
        if running == 2:
            both_run.set()
        with anyio.fail_after(5):
            await both_run.wait()
        return name

    calls = [tool_call("meet", {"name": name}, id=name) for name in ("Ada", "Bob")]
    scene = await play([adaptive_reply(tool_calls=calls), DONE], tools=[meet])

    assert [call.result for call in scene.result.tool_calls] == ["Ada", "Bob"]


async def test_no_more_calls_run_at_once_than_allowed() -> None:
    # B-021
    running: set[str] = set()
    most = 0

    async def work(name: str) -> str:
        """Work for a while."""
        nonlocal most
        running.add(name)
        most = max(most, len(running))
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        running.remove(name)
        return name

    calls = [tool_call("work", {"name": str(number)}, id=str(number)) for number in range(6)]
    await play([adaptive_reply(tool_calls=calls), DONE], tools=[work], limits=RunLimits(max_parallel_tools=2))

    assert most == 2


async def test_an_unknown_tool_is_answered_with_the_tools_there_are_and_the_other_call_runs() -> None:
    # B-022
    calls = [tool_call("get_moon", {"city": "Oslo"}, id="functions.get_moon:0"), weather("Oslo", 1)]
    scene = await play([adaptive_reply(tool_calls=calls), DONE])

    assert scene.cities == ["Oslo"]
    assert "get_weather" in scene.result.tool_calls[0].result
    assert "save_note" in scene.result.tool_calls[0].result


async def test_arguments_that_do_not_fit_are_answered_with_place_and_schema() -> None:
    # B-023
    scene = await play([adaptive_reply(tool_calls=[tool_call("get_weather", {"city": 7})]), DONE])

    assert scene.executed == []
    told = scene.result.tool_calls[0].result
    assert "$.city" in told
    assert '"required":["city"]' in told


async def test_three_steps_of_calls_that_cannot_run_are_a_model_error() -> None:
    # B-024
    bad = [adaptive_reply(tool_calls=[tool_call("get_weather", {"number": step})]) for step in range(3)]
    with pytest.raises(ModelError, match="3 steps in a row"):
        await play([*bad, DONE])


@pytest.mark.parametrize("arguments", ["", "{}", "null"])
async def test_empty_arguments_are_an_empty_object(arguments: str) -> None:
    # B-025
    def get_time() -> str:
        """Current time."""
        return "noon"

    scene = await play(
        [adaptive_reply(tool_calls=[tool_call("get_time", arguments)]), DONE], tools=[get_time]
    )

    assert (scene.result.tool_calls[0].arguments, scene.result.tool_calls[0].result) == ({}, "noon")


@pytest.mark.parametrize("arguments", ['"{\\"city\\": \\"Oslo\\"}"', '{"arguments": {"city": "Oslo"}}'])
async def test_wrapped_arguments_are_unwrapped(arguments: str) -> None:
    # B-026
    scene = await play([adaptive_reply(tool_calls=[tool_call("get_weather", arguments)]), DONE])

    assert scene.cities == ["Oslo"]
    assert scene.repair_kinds == ["arguments"]


async def test_a_tool_that_wants_what_looks_like_a_wrapping_gets_it() -> None:
    # B-026
    received: list[object] = []

    def call_api(arguments: dict[str, str]) -> str:
        """Call an API."""
        received.append(arguments)
        return "ok"

    call = tool_call("call_api", {"arguments": {"city": "Oslo"}})
    scene = await play([adaptive_reply(tool_calls=[call]), DONE], tools=[call_api])

    assert received == [{"city": "Oslo"}]
    assert scene.repair_kinds == []


async def test_a_tool_that_raises_is_told_to_the_model_without_ending_the_run() -> None:
    # B-027
    def divide(a: int, b: int) -> float:
        """Divide."""
        return a / b

    call = tool_call("divide", {"a": 1, "b": 0})
    scene = await play([adaptive_reply(tool_calls=[call]), DONE], tools=[divide])

    assert scene.result.text == "Done."
    assert "ZeroDivisionError: division by zero" in scene.result.tool_calls[0].result
    assert "Traceback" not in scene.result.tool_calls[0].result


async def test_a_tool_that_takes_too_long_is_stopped_and_the_model_told() -> None:
    # B-028
    stopped: list[str] = []

    async def wait() -> None:
        """Wait for ever."""
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append("wait")

    with anyio.fail_after(5):
        scene = await play(
            [adaptive_reply(tool_calls=[tool_call("wait")]), DONE],
            tools=[wait],
            limits=RunLimits(tool_timeout_s=0.05),
        )

    assert stopped == ["wait"]
    assert "did not finish within 0.05 s" in scene.result.tool_calls[0].result


async def test_a_denied_call_does_not_run_and_the_model_is_told_why() -> None:
    # B-029
    async def approve(call: ToolCall) -> Approval:
        return Approval.deny("Not today.") if call.name == "save_note" else Approval.allow()

    calls = [tool_call("save_note", {"text": "hello"}), weather("Oslo", 1)]
    scene = await play([adaptive_reply(tool_calls=calls), DONE], approve=approve)

    assert scene.executed == [("get_weather", {"city": "Oslo"})]
    assert "Not today." in scene.result.tool_calls[0].result
    assert [event.call.name for event in scene.events if isinstance(event, ToolStarted)] == ["get_weather"]


@pytest.mark.parametrize("cycle", [["Oslo"], ["Oslo", "Lima"]])
async def test_going_round_in_circles_is_reminded_refused_and_ended(cycle: list[str]) -> None:
    # B-030
    replies = [adaptive_reply(tool_calls=[weather(city)]) for city in cycle * 8]
    scene = Scene()
    with pytest.raises(LoopDetectedError) as caught:
        await play(replies, scene=scene)

    first = [call.result for call in caught.value.result.tool_calls if call.arguments == {"city": "Oslo"}]
    assert len(first) == 8
    assert [("3 times" in text, text.startswith("Not run")) for text in first[:5]] == [
        *[(False, False)] * 2,
        (True, False),
        (False, False),
        (False, True),
    ]
    assert scene.cities.count("Oslo") == 4


async def test_a_forced_choice_holds_for_the_first_step_only() -> None:
    # B-031
    scene = Scene()
    async with (
        KimiServer(replies=[adaptive_reply(tool_calls=[weather("Oslo")]), DONE]) as server,
        KimiAgent(
            "kimi-k2",
            tools=scene.tools(),
            base_url=server.base_url,
            options=ModelOptions(tool_choice="get_weather"),
        ) as agent,
    ):
        await agent.run("Go")

    first, second = (request.body["tool_choice"] for request in server.requests)
    assert first == {"type": "function", "function": {"name": "get_weather"}}
    assert second == "auto"
