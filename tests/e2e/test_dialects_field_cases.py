"""The field cases about histories, dialects, refusals and K3, through the public API over HTTP.

The scripted server refuses as the case's server did, for as long as a request is what it refused.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kimi_agent import KimiAgent, KimiAgentError, ModelOptions, RunLimits, errors
from kimi_agent.testing import KimiServer, Reply, adaptive_reply, error_reply, json_reply, tool_call
from tests.e2e.dialects import (
    ANSWER,
    ASKED,
    USER,
    Body,
    Refusing,
    agent_on,
    call,
    calling,
    exchange,
    holds_no_null,
    run_of,
    without,
)
from tests.e2e.field_cases import (
    ERRORS,
    RETRIES,
    Case,
    Outcome,
    Way,
    differences,
    load,
    options_of,
    tools_of,
    ways_of,
)
from tests.e2e.field_cases import PROMPT as CASE_PROMPT

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio

KINDS = frozenset(
    {"history_ids", "reasoning", "messages", "schema_tools", "errors_transport", "features", "k3_xtml"}
)
BY_ID = {case.id: case for case in load() if case.kind in KINDS}

LATER = (
    ("KF-J01", "rewriting schemas for Moonshot's dialect is the work of the tools change"),
    ("KF-M04", "images that tools return are the work of the tools change"),
)
"""Cases of these kinds that are not due yet, with the reason."""

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}
DYNAMIC: dict[str, Any] = {"role": "system", "tools": [WEATHER]}


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here: what is sent does not depend on it."""
    return "asyncio"


def refusing(case: Case, is_refused: Callable[[Body], bool]) -> Refusing:
    """A server that answers the case's error to what the case's server refused."""
    answer = case.input["server_error"]
    return Refusing(is_refused, answer.get("message", "Bad Request"), answer["status"])


# --- replies: K3's text, tools of messages, a lost connection ---------------------------------------------

REPLY_CASES = {
    name: case for name, case in BY_ID.items() if {"text", "message", "chunks"} & case.input.keys()
}
REPLIES = [
    pytest.param(case, way, id=f"{case.id}-{way.name}")
    for case in REPLY_CASES.values()
    for way in ways_of(case)
]
NAME_SENT = {"KF-C08": "r_d"}
"""Where a tool goes by another name on the wire."""


@pytest.mark.parametrize(("case", "way"), REPLIES)
async def test_a_user_gets_from_a_reply_what_the_case_expects(case: Case, way: Way) -> None:
    outcome = Outcome()
    if "tools" not in case.input:
        case = replace(case, input={**case.input, "tools": ["get_weather"], "request": {}})
    model = "kimi-k3" if case.kind in ("k3_xtml", "features") else "kimi-k2"
    limits = RunLimits(max_retries=RETRIES, max_retry_delay_s=0)
    script = (
        way.replies * (1 + RETRIES) if "error" in case.expected else [*way.replies, adaptive_reply(ANSWER)]
    )
    with anyio.fail_after(20):
        async with (
            KimiServer(replies=script, repeat_last=True) as server,
            KimiAgent(
                model,
                tools=tools_of(case, outcome.executed),
                base_url=server.base_url,
                options=options_of(case),
                limits=limits,
            ) as agent,
        ):
            try:
                await meet(agent, outcome, streamed=way.streamed)
            except KimiAgentError as error:
                outcome.error = error
            outcome.requests = server.requests

    found = differences(case, way, outcome)
    if case.id in NAME_SENT:
        found = [each for each in found if not (each.startswith("names sent") and NAME_SENT[case.id] in each)]
    assert not found, "\n".join(["", *found])


async def meet(agent: KimiAgent, outcome: Outcome, *, streamed: bool) -> None:
    """One run, its result or events put into `outcome`."""
    if not streamed:
        outcome.result = await agent.run(CASE_PROMPT)
        return
    async with agent.stream(CASE_PROMPT) as run:
        async for each in run:
            outcome.events.append(each)
    outcome.result, outcome.text = run.result, run.text


@STREAMED
async def test_a_raw_call_of_a_tool_that_a_message_brought_runs(streamed: bool) -> None:
    case = BY_ID["KF-M07"]
    script = [adaptive_reply(case.input["message"]["content"]), adaptive_reply(ANSWER)]

    seen = await exchange([DYNAMIC], script, model="kimi-k3", tools=["get_weather"], streamed=streamed)

    assert seen.executed == [(each["name"], each["arguments"]) for each in case.expected["calls"]]
    assert seen.result.text == ANSWER
    assert [body["messages"][0] for body in seen.bodies] == [DYNAMIC, DYNAMIC]


# --- ids ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "engine"), [("kimi-k3", "vllm"), ("kimi-k3", "moonshot"), ("kimi-k2", "vllm")]
)
@STREAMED
async def test_ids_that_repeat_on_every_turn_pair_by_place(streamed: bool, model: str, engine: str) -> None:
    case = BY_ID["KF-G03"]
    turns = case.input["turns"]
    script = [
        adaptive_reply(tool_calls=[tool_call("list_dir", turn["arguments"], id=turn["id"])]) for turn in turns
    ]

    seen = await exchange(
        (),
        [*script, adaptive_reply(ANSWER)],
        model=model,
        engine=engine,
        tools=["list_dir"],
        streamed=streamed,
    )

    assert seen.executed == [("list_dir", turn["arguments"]) for turn in turns]
    assert len(seen.executed) == case.expected["executed"]
    sent = seen.bodies[-1]["messages"][1:]
    assert [message["role"] for message in sent] == ["assistant", "tool"] * len(turns)
    for said, result in zip(sent[::2], sent[1::2], strict=True):
        assert result["tool_call_id"] == said["tool_calls"][0]["id"]
    if model == "kimi-k2":
        assert [said["tool_calls"][0]["id"] for said in sent[::2]] == [
            "functions.list_dir:0",
            "functions.list_dir:1",
        ]


async def test_a_tool_message_without_id_is_refused_before_a_request_is_sent() -> None:
    case = BY_ID["KF-G06"]

    seen = await exchange(case.input["request"]["messages"])

    assert isinstance(seen.error, ERRORS[case.expected["error"]["class"]])
    assert seen.requests == []


# --- histories ------------------------------------------------------------------------------------------


def has_bad_arguments(body: Body) -> bool:
    """Whether a call's arguments are no JSON object."""
    for message in body["messages"]:
        for each in message.get("tool_calls", ()):
            try:
                if not isinstance(json.loads(each["function"]["arguments"]), dict):
                    return True
            except ValueError:
                return True
    return False


@STREAMED
async def test_malformed_arguments_in_the_history_do_not_poison_it(streamed: bool) -> None:
    case = BY_ID["KF-G09"]
    history = case.input["request"]["messages"]
    server = refusing(case, has_bad_arguments)

    seen = await exchange(history, server, streamed=streamed)

    assert server.refused == 0
    assert seen.messages == [calling(call("functions.bash:0", "bash", "{}")), history[1]]
    assert seen.repairs == [("history_arguments", "messages[0]")]
    assert seen.result.messages[:2] == history


async def test_a_thought_stays_with_its_message() -> None:
    case = BY_ID["KF-H03"]
    history = case.input["request"]["messages"]

    for engine in ("generic", "vllm", "moonshot"):
        seen = await exchange(history, model="kimi-k2-thinking", engine=engine)

        assert "reasoning_content" not in seen.messages[0]
        assert "reasoning" not in seen.messages[0]
        assert seen.messages[2]["reasoning_content"] == "second thought"
        assert holds_no_null(seen.body)


async def test_thinking_is_not_switched_off_where_it_cannot_be() -> None:
    case = BY_ID["KF-H09"]
    server = refusing(
        case, lambda body: body.get("thinking") not in (None, {"type": "enabled", "keep": "all"})
    )
    options = ModelOptions(thinking=False)

    seen = await exchange(
        (), server, model=case.input["request"]["model"], engine="moonshot", options=options
    )

    assert server.refused == 0
    assert seen.body == {"model": "kimi-k2.7-code", "messages": [ASKED]}
    assert seen.kinds == ["field_dropped"]


async def test_thinking_that_a_server_refuses_is_left_out() -> None:
    case = BY_ID["KF-H09"]
    wanted = case.input["request"]["thinking"]
    server = refusing(case, lambda body: body.get("thinking") == wanted)
    options = ModelOptions(extra_body={"thinking": wanted})

    seen = await exchange((), server, model="kimi-for-coding", engine="moonshot", options=options)

    assert [body.get("thinking") for body in seen.bodies] == [wanted, None]
    assert without(seen.bodies[0], "thinking") == seen.bodies[1]
    assert seen.kinds == ["field_dropped"]


def has_open_calls(body: Body) -> bool:
    """Whether a call is not answered right behind its message."""
    due: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in due:
                return True
            due.remove(message["tool_call_id"])
        elif due:
            return True
        else:
            due = [each["id"] for each in message.get("tool_calls", ())]
    return bool(due)


@STREAMED
async def test_a_call_nobody_answered_is_told_to_be_interrupted(streamed: bool) -> None:
    case = BY_ID["KF-I03"]
    history = case.input["request"]["messages"]
    server = refusing(case, has_open_calls)

    seen = await exchange(history, server, streamed=streamed)

    assert server.refused == 0
    assert seen.messages == case.expected["request"]["messages"]
    assert seen.repairs == [("missing_result", "messages[0]")]


async def test_a_result_without_content_is_sent_empty() -> None:
    case = BY_ID["KF-I06"]
    server = refusing(
        case, lambda body: any("content" not in each for each in body["messages"] if each["role"] == "tool")
    )
    history = [calling(call("functions.x:0", "x", "{}")), *case.input["request"]["messages"]]

    seen = await exchange(history, server)

    assert server.refused == 0
    assert seen.messages[1:] == [
        {"role": "tool", "tool_call_id": "functions.x:0", "content": ""},
    ]
    assert seen.messages[1] == case.expected["request"]["messages"][0]


async def test_keys_that_are_not_part_of_a_message_are_left_out() -> None:
    case = BY_ID["KF-I07"]
    server = refusing(case, lambda body: "cache_control" in json.dumps(body))
    history = [calling(call("a", "x", "{}")), *case.input["request"]["messages"]]

    seen = await exchange(history, server, engine="moonshot")

    assert server.refused == 0
    assert seen.messages[1] == without(case.input["request"]["messages"][0], "cache_control")
    assert seen.repairs == [("unknown_keys", "messages[1]")]


async def test_an_empty_list_of_tools_is_not_sent() -> None:
    case = BY_ID["KF-I08"]
    server = refusing(case, lambda body: body.get("tools") == [])

    seen = await exchange((), server)

    assert server.refused == 0
    assert "tools" not in seen.body
    assert "tool_choice" not in seen.body


# --- fixed sampling -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "field"), [("KF-I10", "temperature"), ("KF-I11", "top_p")])
async def test_sampling_that_the_host_fixes_is_not_sent(name: str, field: str) -> None:
    case = BY_ID[name]
    request = case.input["request"]
    server = refusing(case, lambda body: field in body)
    options = ModelOptions(**{field: request[field]})

    seen = await exchange((), server, model=request["model"], engine="moonshot", options=options)

    assert server.refused == 0
    assert seen.body == {"model": request["model"], "messages": [ASKED]}
    assert seen.kinds == ["field_dropped"]
    assert field in seen.details


@pytest.mark.parametrize(("name", "field"), [("KF-I10", "temperature"), ("KF-I11", "top_p")])
@STREAMED
async def test_sampling_that_a_server_refuses_is_left_out(name: str, field: str, streamed: bool) -> None:
    case = BY_ID[name]
    request = case.input["request"]
    server = refusing(case, lambda body: field in body)
    options = ModelOptions(**{field: request[field]})

    seen = await exchange((), server, model=request["model"], options=options, streamed=streamed)

    assert [field in body for body in seen.bodies] == [True, False]
    assert without(seen.bodies[0], field) == seen.bodies[1]
    assert seen.kinds == ["field_dropped"]


# --- tools ----------------------------------------------------------------------------------------------


@STREAMED
async def test_names_that_servers_refuse_have_an_alias_both_ways(streamed: bool) -> None:
    case = BY_ID["KF-J11"]
    own, sent = case.input["tools"], case.expected["wire_names"]
    server = Refusing(
        lambda body: any(entry["function"]["name"] in own for entry in body["tools"]),
        "Invalid request: function name is invalid",
        case.input["server_error"]["status"],
    )
    calls = [tool_call(name, {"n": place}, id=f"functions.{name}:{place}") for place, name in enumerate(sent)]
    replies = iter([adaptive_reply(tool_calls=calls), server])

    def script(request: Any) -> Reply:
        assert server(request).status == 200
        return next(replies)(request)

    seen = await exchange((), script, tools=own, streamed=streamed)

    assert server.refused == 0
    assert [entry["function"]["name"] for entry in seen.bodies[0]["tools"]] == sent
    assert sorted(seen.executed) == [(name, {"n": place}) for place, name in enumerate(own)]
    assert [record.name for record in seen.result.tool_calls] == own
    said = seen.result.messages[1]["tool_calls"]
    assert [each["function"]["name"] for each in said] == own
    again = seen.bodies[1]["messages"][1]["tool_calls"]
    assert [each["function"]["name"] for each in again] == sent
    assert seen.kinds == ["tool_name", "tool_name"]


async def test_two_tools_of_one_name_are_refused_before_a_request_is_sent() -> None:
    case = BY_ID["KF-J12"]

    with pytest.raises(ERRORS[case.expected["error"]["class"]], match="dup"):
        KimiAgent("kimi-k2", tools=tools_of(case, []), base_url="http://127.0.0.1:9/v1")


# --- dynamic tools --------------------------------------------------------------------------------------


async def test_tools_of_messages_move_to_the_request_where_a_model_takes_none() -> None:
    case = BY_ID["KF-M06"]
    server = refusing(case, lambda body: any("tools" in message for message in body["messages"]))

    seen = await exchange([DYNAMIC], server, model=case.input["request"]["model"])

    assert [body["messages"] for body in seen.bodies] == [[DYNAMIC, ASKED], [ASKED]]
    assert seen.bodies[1]["tools"] == [WEATHER]
    assert without(seen.bodies[1], "tools", "messages") == without(seen.bodies[0], "tools", "messages")
    assert seen.kinds == ["dynamic_tools"]


async def test_tools_of_messages_stay_where_they_are_in_every_request() -> None:
    case = BY_ID["KF-M08"]
    declared: dict[str, Any] = {
        "role": "system",
        "tools": [{"type": "function", "function": {"name": "a", "parameters": {}}}],
    }
    history = [declared, *case.input["history"][1:], {"role": "assistant", "content": "first"}]
    script = [adaptive_reply(tool_calls=[tool_call("a", {})]), adaptive_reply(ANSWER), adaptive_reply(ANSWER)]

    async with agent_on(script, model="kimi-k3", tools=["a"]) as (server, agent):
        first = await run_of(agent, history)
        await run_of(agent, first.messages)
        sent = [request.body["messages"] for request in server.requests]

    assert len(sent) == 3
    assert [messages[0] for messages in sent] == [declared] * 3
    assert first.messages[0] == declared


async def test_k3_is_sent_its_tools_natively() -> None:
    case = BY_ID["KF-M09"]

    for engine in ("generic", "moonshot", "vllm"):
        seen = await exchange((), model=case.input["request"]["model"], tools=["get_weather"], engine=engine)

        assert seen.body["tools"] == [WEATHER]


# --- refusals -------------------------------------------------------------------------------------------


def answers_of(case: Case) -> list[Reply]:
    """The error answers of a case."""
    variants = case.input.get("variants") or [case.input.get("server_error") or case.input]
    return [
        error_reply(each["status"], each["message"])
        if "message" in each
        else json_reply(each.get("body", {}), status=each["status"])
        for each in variants
    ]


REFUSALS = [
    pytest.param(case, place, id=f"{name}-{place}")
    for name, case in BY_ID.items()
    if (case.kind == "errors_transport" and "chunks" not in case.input) or name == "KF-I14"
    for place in range(len(answers_of(case)))
]


@pytest.mark.parametrize(("case", "place"), REFUSALS)
async def test_a_refusal_becomes_the_error_that_says_who_has_to_act(case: Case, place: int) -> None:
    wanted = case.expected["error"]

    seen = await exchange([USER], answers_of(case)[place], tools=["get_weather"])

    error = seen.error
    assert type(error) is ERRORS[wanted["class"]]
    assert isinstance(error, errors.TransportStatusError)
    assert error.retryable is wanted["retryable"]
    assert len(seen.requests) == (1 + RETRIES if wanted["retryable"] else 1)
    if "limit_parsed" in wanted:
        assert getattr(error, "limit_tokens", None) == wanted["limit_parsed"][place]
    if "limit" in wanted:
        assert getattr(error, "limit_bytes", None) == wanted["limit"]
    if "attached" in wanted:
        assert isinstance(error, errors.InvalidRequestError)
        assert "2 messages (2 user)" in error.findings[0]
        assert all(finding in str(error) for finding in error.findings)


# --- the table itself -----------------------------------------------------------------------------------


def test_every_case_is_tested_or_listed_with_the_reason_why_not() -> None:
    tested = REPLY_CASES.keys() | {str(parameter.id).rpartition("-")[0] for parameter in REFUSALS}
    tested |= {"KF-G03", "KF-G06", "KF-G09", "KF-H03", "KF-H09"}
    tested |= {"KF-I03", "KF-I06", "KF-I07", "KF-I08", "KF-I10", "KF-I11"}
    tested |= {"KF-J11", "KF-J12", "KF-M06", "KF-M07", "KF-M08", "KF-M09"}

    assert len(BY_ID) == 36
    assert tested | dict(LATER).keys() == BY_ID.keys()
    assert not tested & dict(LATER).keys()
