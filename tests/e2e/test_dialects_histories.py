"""Histories from elsewhere, and how each is sent: whole bodies, compared as the server received them."""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent import ModelOptions
from kimi_agent._core.mending import INTERRUPTED
from kimi_agent.errors import ConfigurationError, InvalidHistoryError
from kimi_agent.testing import adaptive_reply, error_reply, tool_call
from tests.e2e.dialects import (
    ANSWER,
    ASKED,
    USER,
    Row,
    agent_on,
    call,
    calling,
    exchange,
    holds_no_null,
    messages_bytes,
    run_of,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.anyio

SAID: Row = {"role": "assistant", "content": "Hello"}
SYSTEM: Row = {"role": "system", "content": "Be brief."}
IMAGE: Row = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here: what is sent does not depend on it."""
    return "asyncio"


def n(number: int, name: str = "get_weather") -> str:
    """An id as the model was trained on it."""
    return f"functions.{name}:{number}"


@dataclass(frozen=True, kw_only=True)
class History:
    """A history, what is sent of it to an engine with a K2 model, and what is reported."""

    given: Sequence[Row]
    sent: Sequence[Row]
    repairs: Sequence[tuple[str, str]] = ()
    agent: dict[str, Any] = field(default_factory=dict[str, Any])


THINKING = {"model": "kimi-k2-thinking"}
BOTH = {"reasoning_content": "hm", "reasoning": "hm"}

HISTORIES = {
    # --- ids
    "ids of OpenAI": History(
        given=[USER, calling("call_9xYz"), told("call_9xYz")],
        sent=[USER, calling(n(0)), told(n(0))],
    ),
    "ids of Anthropic": History(
        given=[USER, calling("toolu_01A09q90qw90lq917835lq9"), told("toolu_01A09q90qw90lq917835lq9")],
        sent=[USER, calling(n(0)), told(n(0))],
    ),
    "ids of K3": History(
        given=[
            USER,
            calling("get_weather_0"),
            told("get_weather_0"),
            calling("get_weather_1"),
            told("get_weather_1"),
        ],
        sent=[USER, calling(n(0)), told(n(0)), calling(n(1)), told(n(1))],
    ),
    "ids cut to safe characters": History(
        given=[calling(call("functions_Read_0", "Read")), told("functions_Read_0")],
        sent=[calling(call(n(0, "Read"), "Read")), told(n(0, "Read"))],
    ),
    "ids of a typing mistake": History(
        given=[calling(call("serach:0", "search")), told("serach:0")],
        sent=[calling(call(n(0, "search"), "search")), told(n(0, "search"))],
    ),
    "ids that count every message anew": History(
        given=[
            calling("get_weather:0"),
            told("get_weather:0"),
            calling("get_weather:0"),
            told("get_weather:0"),
        ],
        sent=[calling(n(0)), told(n(0)), calling(n(1)), told(n(1))],
    ),
    "ids that are right already": History(
        given=[calling(n(0), n(1)), told(n(0)), told(n(1)), calling(n(2)), told(n(2))],
        sent=[calling(n(0), n(1)), told(n(0)), told(n(1)), calling(n(2)), told(n(2))],
    ),
    "ids that begin late after a cut history": History(
        given=[calling(n(7)), told(n(7))],
        sent=[calling(n(0)), told(n(0))],
    ),
    "one id for two calls of a message": History(
        given=[calling("x", "x"), told("x", "1"), told("x", "2")],
        sent=[calling(n(0), n(1)), told(n(0), "1"), told(n(1), "2")],
    ),
    "no ids": History(
        given=[calling(call(None), call(None)), told("a", "1"), told("b", "2")],
        sent=[calling(n(0), n(1)), told(n(0), "1"), told(n(1), "2")],
        repairs=[("result_id", "messages[0]")],
    ),
    "ids that results do not know": History(
        given=[calling("call_1", "call_2"), told("toolu_1", "1"), told("toolu_2", "2")],
        sent=[calling(n(0), n(1)), told(n(0), "1"), told(n(1), "2")],
        repairs=[("result_id", "messages[0]")],
    ),
    # --- order
    "results out of order": History(
        given=[USER, calling("a", "b"), told("b", "2"), told("a", "1")],
        sent=[USER, calling(n(0), n(1)), told(n(0), "1"), told(n(1), "2")],
        repairs=[("result_order", "messages[1]")],
    ),
    "a call never answered": History(
        given=[USER, calling("a"), USER],
        sent=[USER, calling(n(0)), told(n(0), INTERRUPTED), USER],
        repairs=[("missing_result", "messages[1]")],
    ),
    "a call never answered at the end": History(
        given=[USER, calling("a")],
        sent=[USER, calling(n(0)), told(n(0), INTERRUPTED)],
        repairs=[("missing_result", "messages[1]")],
    ),
    "one of two calls never answered": History(
        given=[calling("a", "b"), told("b", "2")],
        sent=[calling(n(0), n(1)), told(n(0), INTERRUPTED), told(n(1), "2")],
        repairs=[("missing_result", "messages[0]")],
    ),
    "a result of no call": History(
        given=[USER, told("gone"), SAID],
        sent=[USER, SAID],
        repairs=[("orphan_result", "messages[1]")],
    ),
    "a history cut at the front": History(
        given=[told("call_1"), SAID, USER],
        sent=[told("call_1"), SAID, USER],
    ),
    "a second result of one call": History(
        given=[calling("a"), told("a", "1"), told("a", "2")],
        sent=[calling(n(0)), told(n(0), "1")],
        repairs=[("orphan_result", "messages[2]")],
    ),
    "a result behind the next reply": History(
        given=[calling("a"), SAID, told("a")],
        sent=[calling(n(0)), told(n(0), INTERRUPTED), SAID],
        repairs=[("missing_result", "messages[0]"), ("orphan_result", "messages[2]")],
    ),
    "a numbering that goes over repaired rounds": History(
        given=[calling("a"), USER, calling("b"), told("b")],
        sent=[calling(n(0)), told(n(0), INTERRUPTED), USER, calling(n(1)), told(n(1))],
        repairs=[("missing_result", "messages[0]")],
    ),
    # --- empty
    "an empty reply": History(
        given=[USER, {"role": "assistant", "content": ""}, USER],
        sent=[USER, USER],
        repairs=[("empty_message", "messages[1]")],
    ),
    "a reply of null": History(
        given=[USER, {"role": "assistant", "content": None}, USER],
        sent=[USER, USER],
        repairs=[("empty_message", "messages[1]")],
    ),
    "a reply of blanks": History(
        given=[USER, {"role": "assistant", "content": " \n"}],
        sent=[USER],
        repairs=[("empty_message", "messages[1]")],
    ),
    "an empty prompt from before": History(
        given=[{"role": "user", "content": ""}, USER],
        sent=[USER],
        repairs=[("empty_message", "messages[0]")],
    ),
    "an empty system message": History(
        given=[{"role": "system", "content": ""}, USER],
        sent=[USER],
        repairs=[("empty_message", "messages[0]")],
    ),
    "empty content beside calls": History(
        given=[calling("a", content=""), told("a")],
        sent=[calling(n(0)), told(n(0))],
    ),
    "null content beside calls": History(
        given=[calling("a", content=None), told("a")],
        sent=[calling(n(0)), told(n(0))],
    ),
    "an empty part": History(
        given=[{"role": "user", "content": [{"type": "text", "text": ""}, IMAGE]}],
        sent=[{"role": "user", "content": [IMAGE]}],
        repairs=[("empty_part", "messages[0]")],
    ),
    "parts that are all empty": History(
        given=[USER, {"role": "user", "content": [{"type": "text", "text": " "}]}],
        sent=[USER],
        repairs=[("empty_message", "messages[1]")],
    ),
    "an empty list of calls": History(
        given=[{**SAID, "tool_calls": []}],
        sent=[SAID],
    ),
    "a result without content": History(
        given=[calling("a"), {"role": "tool", "tool_call_id": "a"}],
        sent=[calling(n(0)), told(n(0), "")],
    ),
    "a result of null": History(
        given=[calling("a"), told("a", None)],
        sent=[calling(n(0)), told(n(0), "")],
    ),
    "a result of an empty list": History(
        given=[calling("a"), told("a", [])],
        sent=[calling(n(0)), told(n(0), "")],
    ),
    # --- arguments
    "arguments cut by a crash": History(
        given=[calling(call("a", arguments='{"city":"Os')), told("a", "error")],
        sent=[calling(call(n(0), arguments="{}")), told(n(0), "error")],
        repairs=[("history_arguments", "messages[0]")],
    ),
    "arguments cut by a crash and no result": History(
        given=[USER, calling(call("a", arguments='{"city":"Os'))],
        sent=[USER, calling(call(n(0), arguments="{}")), told(n(0), INTERRUPTED)],
        repairs=[("history_arguments", "messages[1]"), ("missing_result", "messages[1]")],
    ),
    "empty arguments": History(
        given=[calling(call("a", arguments="")), told("a")],
        sent=[calling(call(n(0), arguments="{}")), told(n(0))],
    ),
    "arguments of null": History(
        given=[calling(call("a", arguments=None)), told("a")],
        sent=[calling(call(n(0), arguments="{}")), told(n(0))],
    ),
    "arguments that are a list": History(
        given=[calling(call("a", arguments=["Oslo"])), told("a")],
        sent=[calling(call(n(0), arguments="{}")), told(n(0))],
        repairs=[("history_arguments", "messages[0]")],
    ),
    "arguments with white space": History(
        given=[calling(call("a", arguments='{ "city" : "Oslo" }')), told("a")],
        sent=[calling(call(n(0), arguments='{ "city" : "Oslo" }')), told(n(0))],
    ),
    # --- keys
    "keys of other clients": History(
        given=[{**USER, "id": "msg_1", "created_at": 3, "cache_control": {"type": "ephemeral"}}],
        sent=[USER],
        repairs=[("unknown_keys", "messages[0]")],
    ),
    "nulls of OpenAI's client": History(
        given=[
            {**SAID, "refusal": None, "audio": None, "function_call": None, "tool_calls": None, "name": None}
        ],
        sent=[SAID],
    ),
    "keys in calls": History(
        given=[calling({**call("a"), "index": 0, "extra_content": {"google": {}}}), told("a")],
        sent=[calling(n(0)), told(n(0))],
    ),
    "names on results": History(
        given=[calling("a"), told("a", name="get_weather")],
        sent=[calling(n(0)), told(n(0))],
    ),
    "names of people": History(
        given=[{**USER, "name": "Ann"}, SAID],
        sent=[{**USER, "name": "Ann"}, SAID],
    ),
    "a result with parts": History(
        given=[calling("a"), told("a", [{"type": "text", "text": "4 C"}])],
        sent=[calling(n(0)), told(n(0), [{"type": "text", "text": "4 C"}])],
    ),
    "a tool that is no longer there": History(
        given=[calling(call("a", "old_tool")), told("a")],
        sent=[calling(call(n(0, "old_tool"), "old_tool")), told(n(0, "old_tool"))],
    ),
    # --- reasoning
    "reasoning of Moonshot": History(
        given=[USER, {**SAID, "reasoning_content": "hm"}],
        sent=[USER, {**SAID, **BOTH}],
        agent=THINKING,
    ),
    "reasoning of vLLM": History(
        given=[USER, {**SAID, "reasoning": "hm"}],
        sent=[USER, {**SAID, **BOTH}],
        agent=THINKING,
    ),
    "reasoning under both names": History(
        given=[USER, {**SAID, **BOTH}],
        sent=[USER, {**SAID, **BOTH}],
        agent=THINKING,
    ),
    "reasoning under both names, one empty": History(
        given=[USER, {**SAID, "reasoning_content": "", "reasoning": "hm"}],
        sent=[USER, {**SAID, **BOTH}],
        agent=THINKING,
    ),
    "empty reasoning": History(
        given=[calling("a", reasoning_content=""), told("a")],
        sent=[calling(n(0), reasoning_content="", reasoning=""), told(n(0))],
        agent=THINKING,
    ),
    "no reasoning": History(
        given=[calling("a"), told("a"), SAID],
        sent=[calling(n(0)), told(n(0)), SAID],
        agent=THINKING,
    ),
    "reasoning of null": History(
        given=[calling("a", reasoning_content=None, reasoning=None), told("a")],
        sent=[calling(n(0)), told(n(0))],
        agent=THINKING,
    ),
    "reasoning that is no text": History(
        given=[{**SAID, "reasoning": {"text": "hm"}}],
        sent=[SAID],
        agent=THINKING,
    ),
    "reasoning and nothing else": History(
        given=[USER, {"role": "assistant", "content": "", "reasoning_content": "hm"}, USER],
        sent=[USER, USER],
        repairs=[("empty_message", "messages[1]")],
        agent=THINKING,
    ),
    "reasoning for Moonshot": History(
        given=[{**SAID, "reasoning": "hm"}],
        sent=[{**SAID, "reasoning_content": "hm"}],
        agent={"model": "kimi-k2.6", "engine": "moonshot"},
    ),
    "reasoning for OpenRouter": History(
        given=[{**SAID, "reasoning_content": "hm"}],
        sent=[{**SAID, "reasoning": "hm"}],
        agent={"model": "moonshotai/kimi-k2-thinking", "engine": "openrouter"},
    ),
    # --- where ids are not read
    "ids for Moonshot": History(
        given=[calling("call_1"), told("call_1"), calling("toolu_2"), told("toolu_2")],
        sent=[calling("call_1"), told("call_1"), calling("toolu_2"), told("toolu_2")],
        agent={"engine": "moonshot", "model": "kimi-k2.6"},
    ),
    "ids for K3": History(
        given=[calling("call_1"), told("call_1"), calling("call_1"), told("call_1")],
        sent=[calling("call_1"), told("call_1"), calling("call_1"), told("call_1")],
        agent={"engine": "vllm", "model": "kimi-k3"},
    ),
    "results out of order for K3": History(
        given=[calling("a", "b"), told("b", "2"), told("a", "1")],
        sent=[calling("a", "b"), told("a", "1"), told("b", "2")],
        repairs=[("result_order", "messages[0]")],
        agent={"engine": "moonshot", "model": "kimi-k3"},
    ),
    "empty ids for Moonshot": History(
        given=[calling(""), told("gone")],
        sent=[calling(n(0)), told(n(0))],
        repairs=[("result_id", "messages[0]")],
        agent={"engine": "moonshot", "model": "kimi-k2.6"},
    ),
}


@STREAMED
@pytest.mark.parametrize("name", HISTORIES)
async def test_a_history_from_elsewhere_is_sent_right_and_reported_and_kept_as_it_is(
    name: str, streamed: bool
) -> None:
    history = HISTORIES[name]

    seen = await exchange(history.given, tools=["get_weather"], streamed=streamed, **history.agent)

    assert seen.messages == [*history.sent]
    assert seen.repairs == [*history.repairs]
    assert holds_no_null(seen.body["messages"])
    assert seen.result.messages == [*history.given, ASKED, seen.result.messages[-1]]
    assert seen.result.new_messages[0] == ASKED
    json.dumps(seen.result.messages)


def test_there_are_many_histories() -> None:
    assert len(HISTORIES) >= 55


async def test_a_result_behind_a_user_message_comes_to_its_call() -> None:
    given = [USER, calling("a"), {"role": "user", "content": "wait"}, told("a"), SAID]

    seen = await exchange(given)

    assert seen.messages == [USER, calling(n(0)), told(n(0)), {"role": "user", "content": "wait"}, SAID]
    assert [where for _, where in seen.repairs] == ["messages[1]"]


async def test_the_same_history_is_repaired_the_same_way_in_every_run() -> None:
    given = [USER, calling("a", "b"), told("b"), {**SAID, "odd": 1}]

    async with agent_on() as (server, agent):
        first = await run_of(agent, given)
        second = await run_of(agent, given)

    assert server.requests[0].raw == server.requests[1].raw
    assert first.repairs == second.repairs


async def test_a_repaired_history_can_be_gone_on_from() -> None:
    given = [USER, calling("a", "b"), told("b", "2"), told("a", "1"), {"role": "assistant", "content": ""}]

    async with agent_on() as (server, agent):
        first = await run_of(agent, given)
        second = await run_of(agent, first.messages)

    assert first.messages[: len(given)] == given
    assert server.requests[1].body["messages"][:-2] == server.requests[0].body["messages"]
    assert [repair.kind for repair in second.repairs] == [repair.kind for repair in first.repairs]


async def test_instructions_come_before_everything() -> None:
    async with agent_on(instructions="Be brief.") as (server, agent):
        await run_of(agent, [{"role": "user", "content": ""}, USER])
        await run_of(agent, [{"role": "system", "content": "Be long."}, USER])

    assert server.requests[0].body["messages"] == [SYSTEM, USER, ASKED]
    assert server.requests[1].body["messages"] == [{"role": "system", "content": "Be long."}, USER, ASKED]


# --- what cannot be put right ----------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", ["", "  ", "\n", [], [{"type": "text", "text": " "}]])
async def test_a_blank_prompt_is_refused_before_a_request_is_sent(prompt: Any) -> None:
    seen = await exchange([USER], prompt=prompt)

    assert type(seen.error) is ConfigurationError
    assert "prompt is empty" in str(seen.error)
    assert seen.requests == []


@pytest.mark.parametrize(
    "history",
    [
        [{"role": "assistant", "content": ""}],
        [{"role": "assistant", "content": None}, {"role": "system", "content": ""}],
        [{"role": "user", "content": " "}],
    ],
)
async def test_a_history_of_nothing_is_refused_before_a_request_is_sent(history: list[Row]) -> None:
    seen = await exchange(history, prompt=None)

    assert isinstance(seen.error, ConfigurationError)
    assert seen.requests == []


@pytest.mark.parametrize("message", [{"role": "wizard"}, {"role": "tool", "content": "x"}, "Hi"])
async def test_a_message_of_no_known_kind_is_refused_before_a_request_is_sent(message: Any) -> None:
    seen = await exchange([USER, message])

    assert type(seen.error) is InvalidHistoryError
    assert "history[1]" in str(seen.error)
    assert seen.requests == []


async def test_results_under_other_ids_answer_the_calls_without_a_prompt_too() -> None:
    seen = await exchange([USER, calling("call_1"), told("toolu_1")], prompt=None)

    assert seen.body["messages"] == [USER, calling(n(0)), told(n(0))]
    assert seen.kinds == ["result_id"]


# --- bytes -----------------------------------------------------------------------------------------------

FORMS: dict[str, dict[str, Any]] = {
    "k2 on vllm": {"model": "kimi-k2", "engine": "vllm"},
    "k2-thinking on sglang": {"model": "kimi-k2-thinking", "engine": "sglang"},
    "k2.6 on moonshot": {"model": "kimi-k2.6", "engine": "moonshot"},
    "k3 on vllm": {"model": "kimi-k3", "engine": "vllm"},
    "k2.5 on openrouter": {"model": "kimi-k2.5", "engine": "openrouter"},
    "unknown": {"model": "a-model"},
    "found out": {"model": "kimi-k2-thinking"},
}


def steps(count: int, **more: Any) -> list[Any]:
    """Replies of many steps, with thoughts, texts, several calls and odd ids, and an answer."""
    script: list[Any] = []
    for step in range(count):
        calls = [
            tool_call("get_weather", {"city": f"city {step}.{place}"}, id=f"get_weather:{place}")
            for place in range(1 + step % 3)
        ]
        text = f"I look, {step}." if step % 2 else None
        reasoning = f"step {step}: hm" if step % 3 else None
        script.append(adaptive_reply(text, reasoning=reasoning, tool_calls=calls, **more))
    return [*script, adaptive_reply("The answer.", reasoning="done", **more)]


@STREAMED
@pytest.mark.parametrize("name", FORMS)
async def test_the_messages_of_each_request_begin_the_next_one_to_the_byte(name: str, streamed: bool) -> None:
    runs = 3
    script = [reply for _ in range(runs) for reply in steps(6)]
    history: list[Row] = [SYSTEM]

    async with agent_on(script, tools=["get_weather"], **FORMS[name]) as (server, agent):
        for _ in range(runs):
            result = await run_of(agent, history, streamed=streamed)
            assert result.messages[: len(history)] == history
            history = json.loads(json.dumps(result.messages))
        sent = [messages_bytes(request.raw) for request in server.requests]

    assert len(sent) == 7 * runs
    for earlier, later in itertools.pairwise(sent):
        assert later.startswith(earlier)
        assert len(later) > len(earlier)


@pytest.mark.parametrize("marks", [{"system_fingerprint": "vllm-0.32.0"}, {"timings": {}}, {"metadata": {}}])
async def test_bytes_do_not_change_when_a_reply_tells_the_engine(marks: Row) -> None:
    def marked(request: Any) -> Any:
        reply = adaptive_reply("Hello.", reasoning="hm")(request)
        body = json.loads(reply.body)  # type: ignore[arg-type] - a whole reply is bytes
        return type(reply)(headers=reply.headers, body=json.dumps({**body, **marks}))

    async with agent_on(marked, model="kimi-k2-thinking") as (server, agent):
        history: list[Row] = []
        for _ in range(3):
            history = (await run_of(agent, history)).messages
        sent = [messages_bytes(request.raw) for request in server.requests]

    assert [later.startswith(earlier) for earlier, later in itertools.pairwise(sent)] == [True, True]


async def test_bytes_change_where_a_repair_says_so_and_only_then() -> None:
    script = [
        *steps(2),
        error_reply(400, "reasoning_content is missing in assistant tool call message at index 1"),
    ]
    script += steps(1)
    agent_options: dict[str, Any] = {"tools": ["get_weather"], "model": "kimi-k2.6", "engine": "moonshot"}

    async with agent_on(script, **agent_options) as (server, agent):
        first = await run_of(agent)
        second = await run_of(agent, first.messages)
        sent = [messages_bytes(request.raw) for request in server.requests]

    assert first.repairs == []
    assert [repair.kind for repair in second.repairs] == ["reasoning_required"]
    follows = [later.startswith(earlier) for earlier, later in itertools.pairwise(sent)]
    assert follows == [True, True, True, False, True]


async def test_malformed_calls_are_sent_again_in_the_same_words() -> None:
    malformed = adaptive_reply(tool_calls=[tool_call("get_weather", '{"city":')])
    unknown = adaptive_reply(tool_calls=[tool_call("nonsense", {"a": 1})])
    script = [malformed, adaptive_reply(ANSWER), unknown, adaptive_reply(ANSWER), adaptive_reply(ANSWER)]

    async with agent_on(script, tools=["get_weather"]) as (server, agent):
        history: list[Row] = []
        for _ in range(3):
            history = (await run_of(agent, history)).messages
        sent = [messages_bytes(request.raw) for request in server.requests]

    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(sent))


async def test_repairs_change_nothing_in_what_the_result_holds() -> None:
    given = [
        USER,
        calling("a", "b"),
        told("b"),
        {**SAID, "odd": {"x": 1}},
        calling(call("c", arguments="{")),
        USER,
    ]
    kept = copy.deepcopy(given)

    async with agent_on(steps(3), tools=["get_weather"]) as (_, agent):
        result = await run_of(agent, given)

    assert result.messages[: len(kept)] == kept
    assert result.messages[len(kept) :] == result.new_messages
    assert {repair.kind for repair in result.repairs} == {
        "missing_result",
        "unknown_keys",
        "history_arguments",
    }


async def test_options_stand_behind_the_messages() -> None:
    async with agent_on(options=ModelOptions(seed=1), tools=["get_weather"]) as (server, agent):
        await run_of(agent, streamed=True)

    keys = list(server.requests[0].body)
    assert keys[:2] == ["model", "messages"]
    assert {"seed", "tools", "stream", "stream_options", "temperature"} == set(keys[2:])
