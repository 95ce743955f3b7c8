"""Tool names that servers refuse: sent under another name, and known by their own everywhere else."""

from __future__ import annotations

from typing import Any

import pytest

from kimi_agent import KimiAgent, ModelOptions, RunLimits
from kimi_agent.errors import ModelError
from kimi_agent.testing import adaptive_reply, json_reply, tool_call
from tests.e2e.dialects import (
    ANSWER,
    FAST,
    Row,
    agent_on,
    answering,
    call,
    calling,
    exchange,
    run_of,
    told,
    tool_named,
)

pytestmark = pytest.mark.anyio

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
BEGIN, ARGUMENTS, END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
LONG = "a_very_long_name_" * 9
NAMES = {
    "fs/read": "fs_read",
    "calendar.respondToEvent": "calendar_respondToEvent",
    "get weather": "get_weather",
    "7zip": "_7zip",
    "-x": "_-x",
    LONG: LONG[:64],
}
TWINS = {"a.b": "a_b_2", "a/b": "a_b_3", "a_b": "a_b"}


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here: what is sent does not depend on it."""
    return "asyncio"


def raw(*headers: str) -> str:
    """A section of raw calls."""
    return f"{SECTION}{''.join(f'{BEGIN}{each}{ARGUMENTS}{{}}{END}' for each in headers)}{SECTION_END}"


@STREAMED
@pytest.mark.parametrize(("own", "sent"), NAMES.items())
async def test_a_tool_is_sent_by_its_alias_and_known_by_its_own_name(
    own: str, sent: str, streamed: bool
) -> None:
    script = [adaptive_reply(tool_calls=[tool_call(sent, {"a": 1})]), adaptive_reply(ANSWER)]

    seen = await exchange((), script, tools=[own], streamed=streamed)

    assert [tool["function"]["name"] for tool in seen.bodies[0]["tools"]] == [sent]
    assert seen.executed == [(own, {"a": 1})]
    assert [(record.name, record.is_error) for record in seen.result.tool_calls] == [(own, False)]
    assert seen.result.messages[1]["tool_calls"][0]["function"]["name"] == own
    asked, answered = seen.bodies[1]["messages"][1:]
    assert (asked["tool_calls"][0]["id"], answered["tool_call_id"]) == (f"functions.{sent}:0",) * 2
    assert asked["tool_calls"][0]["function"]["name"] == sent
    assert seen.repairs == [("tool_name", "request")]
    assert repr(own) in seen.details
    assert repr(sent) in seen.details


@STREAMED
async def test_names_that_would_become_one_stay_apart(streamed: bool) -> None:
    calls = [
        tool_call(sent, {"own": own}, id=f"functions.{sent}:{place}")
        for place, (own, sent) in enumerate(TWINS.items())
    ]

    seen = await exchange(
        (), [adaptive_reply(tool_calls=calls), adaptive_reply(ANSWER)], tools=list(TWINS), streamed=streamed
    )

    assert [tool["function"]["name"] for tool in seen.bodies[0]["tools"]] == list(TWINS.values())
    assert sorted(seen.executed) == sorted((own, {"own": own}) for own in TWINS)
    again = seen.bodies[1]["messages"][1]["tool_calls"]
    assert [each["function"]["name"] for each in again] == list(TWINS.values())
    assert [each["id"] for each in again] == [
        f"functions.{sent}:{n}" for n, sent in enumerate(TWINS.values())
    ]


@STREAMED
@pytest.mark.parametrize("names", [NAMES, TWINS], ids=["names", "twins"])
async def test_raw_calls_are_known_by_their_aliases(names: dict[str, str], streamed: bool) -> None:
    text = raw(*[f"functions.{sent}:{place}" for place, sent in enumerate(names.values())])

    seen = await exchange(
        (), [adaptive_reply(text), adaptive_reply(ANSWER)], tools=list(names), streamed=streamed
    )

    assert sorted(name for name, _ in seen.executed) == sorted(names)


@STREAMED
async def test_k3s_raw_calls_are_known_by_their_aliases(streamed: bool) -> None:
    text = "<|open|>tools<|sep|>"
    for place, sent in enumerate(TWINS.values(), 1):
        text += f'<|open|>call tool="{sent}" index="{place}"<|sep|><|close|>call<|sep|>'
    text += "<|close|>tools<|sep|>"

    seen = await exchange(
        (),
        [adaptive_reply(text), adaptive_reply(ANSWER)],
        tools=list(TWINS),
        model="kimi-k3",
        streamed=streamed,
    )

    assert sorted(name for name, _ in seen.executed) == sorted(TWINS)


async def test_a_model_may_still_say_the_tools_own_name() -> None:
    script = [adaptive_reply(tool_calls=[tool_call("fs/read", {})]), adaptive_reply(ANSWER)]

    seen = await exchange((), script, tools=["fs/read", "7zip"])

    assert [name for name, _ in seen.executed] == ["fs/read"]


@pytest.mark.parametrize("choice", ["7zip", {"type": "function", "function": {"name": "7zip"}}])
async def test_a_tool_is_chosen_by_its_alias(choice: Any) -> None:
    seen = await exchange((), tools=["7zip"], options=ModelOptions(tool_choice=choice))

    assert seen.body["tool_choice"] == {"type": "function", "function": {"name": "_7zip"}}


async def test_a_history_has_the_aliases_too() -> None:
    seen = await exchange([calling(call("x", "7zip")), told("x")], tools=["7zip"])

    assert seen.messages == [calling(call("functions._7zip:0", "_7zip")), told("functions._7zip:0")]


async def test_a_tool_of_the_history_that_is_no_longer_there_has_a_name_servers_take() -> None:
    for engine in ("generic", "moonshot"):
        seen = await exchange([calling(call("x", "old/tool")), told("x")], tools=["f"], engine=engine)

        assert seen.messages[0]["tool_calls"][0]["function"]["name"] == "old_tool"


async def test_the_model_is_told_of_tools_by_the_names_it_knows() -> None:
    script = [adaptive_reply(tool_calls=[tool_call("nonsense", {})]), adaptive_reply(ANSWER)]

    seen = await exchange((), script, tools=["7zip", "fs/read"])

    (result,) = [message for message in seen.bodies[1]["messages"] if message["role"] == "tool"]
    assert "_7zip" in result["content"]
    assert "fs_read" in result["content"]
    assert "fs/read" not in result["content"]


async def test_the_model_is_told_of_bad_arguments_by_the_name_it_knows() -> None:
    schema: Row = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    executed: list[Any] = []
    script = [adaptive_reply(tool_calls=[tool_call("fs_read", {})]), adaptive_reply(ANSWER)]

    async with agent_on(script) as (server, _):
        tool = tool_named("fs/read", executed, schema)
        async with KimiAgent("kimi-k2", base_url=server.base_url, tools=[tool], limits=FAST) as agent:
            await run_of(agent)
        told_back = server.requests[1].body["messages"][-1]["content"]

    assert executed == []
    assert "path" in told_back
    assert "fs/read" not in told_back


@STREAMED
async def test_events_tell_the_tools_own_name(streamed: bool) -> None:
    script = [adaptive_reply(tool_calls=[tool_call("_7zip", {})]), adaptive_reply(ANSWER)]

    async with agent_on(script, tools=["7zip"]) as (_, agent), agent.stream("Hi") as run:
        events = [event async for event in run]

    named = [event.call.name for event in events if event.type == "tool_started"]
    assert named == ["7zip"]
    finished = [event for event in events if event.type == "step_finished"]
    assert finished[0].message["tool_calls"][0]["function"]["name"] == "7zip"


async def test_a_loop_of_an_aliased_tool_is_noticed() -> None:
    script = adaptive_reply(tool_calls=[tool_call("_7zip", {"a": 1})])
    limits = RunLimits(max_retry_delay_s=0.005, max_repeats=3)

    seen = await exchange((), script, tools=["7zip"], limits=limits)

    assert "'7zip'" in str(seen.error)
    assert not isinstance(seen.error, ModelError)


async def test_completions_have_the_aliases_in_the_prompt() -> None:
    text = raw("functions._7zip:0")
    replies = iter([text, ANSWER])

    def complete(_: Any) -> Any:
        choice = {"index": 0, "text": next(replies), "finish_reason": "stop"}
        return json_reply({"object": "text_completion", "choices": [choice]})

    scripts = {"/v1/completions": complete, "/v1/models": answering}
    seen = await exchange((), scripts, tools=["7zip"], api="completions")

    assert seen.executed == [("7zip", {})]
    assert '"name":"_7zip"' in seen.bodies[0]["prompt"]
    assert "functions._7zip:0" in seen.bodies[1]["prompt"]
