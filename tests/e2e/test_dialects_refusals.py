"""What a server's refusal teaches: one change, one more request, remembered, reported, warned of once."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kimi_agent import ModelOptions, RunResult, errors
from kimi_agent.testing import Reply, adaptive_reply, error_reply, json_reply, sse_reply
from kimi_agent.testing.replies import event
from tests.e2e.dialects import (
    ANSWER,
    ASKED,
    USER,
    Body,
    Row,
    agent_on,
    call,
    calling,
    exchange,
    run_of,
    told,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimi_agent.testing import ReceivedRequest

pytestmark = pytest.mark.anyio

IMAGE: Row = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
TEXT: Row = {"type": "text", "text": "a"}
DYNAMIC: Row = {
    "role": "system",
    "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}],
}
CALLED = [USER, calling("call_1"), told("call_1")]


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here: what is sent does not depend on it."""
    return "asyncio"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One thing that servers refuse, in their words, and what is sent instead."""

    wordings: tuple[str | Reply, ...]
    change: Callable[[Body], Body]
    """The refused body → the one that is sent instead; it equals its input only if that was not refused."""
    repair: str = "field_dropped"
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    history: tuple[Row, ...] = ()
    agent: dict[str, Any] = field(default_factory=dict[str, Any])
    streamed: bool = False


def no(*names: str) -> Callable[[Body], Body]:
    """The body without a field."""
    return lambda body: without(body, *names)


def renamed(old: str, new: str) -> Callable[[Body], Body]:
    """The body with a field under another name, in its place."""
    return lambda body: {new if name == old else name: value for name, value in body.items()}


def messages(change: Callable[[Row], list[Row]]) -> Callable[[Body], Body]:
    """The body with each message made others."""
    return lambda body: {**body, "messages": [made for each in body["messages"] for made in change(each)]}


def without_keep(body: Body) -> Body:
    """The body whose thinking keeps nothing."""
    return {**body, "thinking": without(body.get("thinking", {}), "keep")} if "thinking" in body else body


def raw_mode(body: Body) -> Body:
    """The body that asks for raw text."""
    return {**body, "tool_choice": "none", "skip_special_tokens": False}


def images_behind(body: Body) -> Body:
    """The body whose images follow in a user message."""
    out: list[Row] = []
    for each in body["messages"]:
        if each["role"] == "tool" and isinstance(each["content"], list):
            out += [{**each, "content": "a"}, {"role": "user", "content": [IMAGE]}]
        else:
            out.append(each)
    return {**body, "messages": out}


def static_tools(body: Body) -> Body:
    """The body whose tools stand in its own list."""
    kept = [each for each in body["messages"] if "tools" not in each]
    moved = [tool for each in body["messages"] for tool in each.get("tools", ())]
    return {**body, "messages": kept, **({"tools": moved} if moved else {})}


K26_MOONSHOT = {"model": "kimi-k2.6", "engine": "moonshot"}
PARSERLESS = {"engine": "vllm", "tools": ["get_weather"]}
PYDANTIC = (
    "1 validation error:\n  {{'type': 'extra_forbidden', 'loc': ('body', '{name}'), "
    "'msg': 'Extra inputs are not permitted', 'input': 1}}"
)
FASTAPI_DETAIL = {
    "type": "extra_forbidden",
    "loc": ["body", "seed"],
    "msg": "Extra inputs are not permitted",
    "input": 1,
}

KINDS = {
    "temperature": Kind(
        wordings=(
            "invalid temperature: only 1 is allowed for this model",
            (
                "Unsupported value: 'temperature' does not support 0.3 with this model. Only the default (1) "
                "value "
                "is supported."
            ),
            "Unsupported parameter: 'temperature' is not supported with this model.",
            "`temperature` is not supported by this model",
        ),
        options={"temperature": 0.3},
        change=no("temperature"),
    ),
    "top_p": Kind(
        wordings=("invalid top_p: only 0.95 is allowed for this model", "top_p is not allowed"),
        options={"top_p": 0.5},
        change=no("top_p"),
    ),
    "presence_penalty": Kind(
        wordings=(
            "invalid presence_penalty: only 0 is allowed for this model",
            "Argument not supported on this model: presence_penalty is not supported",
        ),
        options={"presence_penalty": 0.5},
        change=no("presence_penalty"),
    ),
    "n": Kind(
        wordings=("invalid n: only 1 is allowed for this model",),
        options={"extra_body": {"n": 2}},
        change=no("n"),
    ),
    "logprobs": Kind(
        wordings=(
            "invalid logprobs: only false is allowed for this model",
            "property 'logprobs' is unsupported",
        ),
        options={"extra_body": {"logprobs": True}},
        change=no("logprobs"),
    ),
    "thinking": Kind(
        wordings=(
            "invalid thinking: only type=enabled is allowed for this model",
            "Unknown parameter: 'thinking'.",
        ),
        options={"thinking": False},
        agent=K26_MOONSHOT,
        change=no("thinking"),
    ),
    "keep": Kind(
        wordings=('thinking.keep is not supported by model "kimi-k2.6"',),
        options={"thinking": True, "keep_reasoning": True},
        agent=K26_MOONSHOT,
        change=without_keep,
    ),
    "template arguments": Kind(
        wordings=(
            "Unrecognized request argument supplied: chat_template_kwargs",
            "chat_template_kwargs is not supported",
            "property 'chat_template_kwargs' is unsupported",
        ),
        options={"thinking": True},
        agent={"model": "kimi-k2.6"},
        change=no("chat_template_kwargs"),
    ),
    "tool_choice with thinking": Kind(
        wordings=(
            "tool_choice 'required' is incompatible with thinking enabled",
            "Invalid request: tool_choice 'specified' is incompatible with thinking enabled",
        ),
        options={"tool_choice": "required"},
        agent={**K26_MOONSHOT, "tools": ["get_weather"]},
        change=no("tool_choice"),
    ),
    "developer": Kind(
        wordings=(
            (
                "messages[0].role: unknown variant `developer`, expected one of `system`, `user`, "
                "`assistant`, `tool`"
            ),
            "developer is not one of ['system', 'assistant', 'user', 'tool'] - 'messages.0.role'",
            (
                "Invalid value: 'developer'. Supported values are: 'system', 'assistant', 'user', and "
                "'tool'. "
                "(parameter=messages[0].role)"
            ),
            "Unsupported role: developer",
        ),
        history=({"role": "developer", "content": "Be brief."},),
        repair="developer_role",
        change=messages(lambda each: [{**each, "role": "system"} if each["role"] == "developer" else each]),
    ),
    "reasoning": Kind(
        wordings=(
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
            "Invalid request: reasoning_content is missing",
            "Missing `reasoning_content` field in the assistant message at message index 1.",
        ),
        history=tuple(CALLED),
        agent=K26_MOONSHOT,
        repair="reasoning_required",
        change=messages(
            lambda each: [{**each, "reasoning_content": ""} if "tool_calls" in each else each],
        ),
    ),
    "max_tokens": Kind(
        wordings=(
            (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' "
                "instead."
            ),
            "max_tokens is deprecated, please use max_completion_tokens",
        ),
        options={"max_output_tokens": 77},
        repair="field_renamed",
        change=renamed("max_tokens", "max_completion_tokens"),
    ),
    "max_completion_tokens": Kind(
        wordings=(
            "Unknown parameter: 'max_completion_tokens'.",
            "max_completion_tokens is not supported",
            PYDANTIC.format(name="max_completion_tokens"),
            "Unrecognized request argument supplied: max_completion_tokens",
        ),
        options={"max_output_tokens": 77},
        agent=K26_MOONSHOT,
        repair="field_renamed",
        change=renamed("max_completion_tokens", "max_tokens"),
    ),
    "image in a result": Kind(
        wordings=(
            "tool message content must not contain an image",
            "messages.2: image_url is not allowed in a tool message",
            "content part type image_url is not supported for role tool",
            "Multimodal content is only supported in user messages, not in tool messages",
        ),
        history=(USER, calling("call_1"), told("call_1", [TEXT, IMAGE])),
        repair="image_in_result",
        change=images_behind,
    ),
    "parallel_tool_calls": Kind(
        wordings=(
            "Unrecognized request argument supplied: parallel_tool_calls",
            "Only parallel_tool_calls=true is supported",
            "litellm.UnsupportedParamsError: openrouter does not support parameters: ['parallel_tool_calls']",
        ),
        options={"parallel_tool_calls": False},
        agent={"tools": ["get_weather"]},
        change=no("parallel_tool_calls"),
    ),
    "stream_options": Kind(
        wordings=(
            "Unrecognized request argument supplied: stream_options",
            "stream_options.include_usage is not supported",
        ),
        streamed=True,
        change=no("stream_options"),
    ),
    "content parts": Kind(
        wordings=(
            "messages[0].content must be a string",
            "messages[0].content: invalid type: sequence, expected a string at line 1",
            (
                "{'type': 'string_type', 'loc': ('body', 'messages', 0, 'content'), 'msg': 'Input should be "
                "a valid "
                "string'}"
            ),
        ),
        history=({"role": "user", "content": [TEXT, {"type": "text", "text": "b"}]},),
        repair="plain_content",
        change=messages(
            lambda each: [{**each, "content": "ab"} if isinstance(each["content"], list) else each]
        ),
    ),
    "dynamic tools": Kind(
        wordings=("tokenization failed", "Invalid request: tokenization failed"),
        history=(DYNAMIC,),
        agent={"model": "kimi-k2.6"},
        repair="dynamic_tools",
        change=static_tools,
    ),
    "result without call": Kind(
        wordings=(
            "tool_call_id  is not found",
            "Invalid request: tool_call_id call_1 is not found",
        ),
        history=(told("call_1"), USER),
        agent=K26_MOONSHOT,
        repair="orphan_result",
        change=messages(lambda each: [] if each["role"] == "tool" else [each]),
    ),
    "no tool parser": Kind(
        wordings=(
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
            error_reply(
                400,
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
                type="BadRequestError",
                shape="flat",
            ),
        ),
        agent=PARSERLESS,
        repair="raw_tool_mode",
        change=raw_mode,
    ),
    "forced without parser": Kind(
        wordings=(
            'tool_choice="required" requires --tool-call-parser to be set',
            'tool_choice=function "get_weather" requires --tool-call-parser to be set',
        ),
        options={"tool_choice": "required"},
        agent=PARSERLESS,
        repair="raw_tool_mode",
        change=raw_mode,
    ),
    "seed": Kind(
        wordings=(
            "Unknown parameter: 'seed'.",
            "Unrecognized request argument supplied: seed",
            "property 'seed' is unsupported",
            "The parameter `seed` is not supported",
            'json: unknown field "seed"',
            "Completions.create() got an unexpected keyword argument 'seed'",
            (
                "litellm.UnsupportedParamsError: openrouter does not support parameters: ['seed'], for "
                "model=kimi-k2"
            ),
            PYDANTIC.format(name="seed"),
            (
                "1 validation error:\n  {'type': 'extra_forbidden', 'loc': 'body.seed', 'msg': 'Extra inputs "
                "are not "
                "permitted', 'input': '1'}"
            ),
            json_reply({"detail": [FASTAPI_DETAIL]}, status=422),
            error_reply(400, "Unknown parameter: 'seed'.", shape="flat"),
            json_reply(
                {"error": {"message": json.dumps({"error": {"message": "Unknown parameter: 'seed'."}})}},
                status=400,
            ),
        ),
        options={"seed": 1},
        change=no("seed"),
    ),
    "response_format": Kind(
        wordings=("response_format is not supported", "Unsupported parameter: 'response_format'"),
        options={"response_format": {"type": "json_object"}},
        change=no("response_format"),
    ),
    "reasoning_effort": Kind(
        wordings=(
            "Unknown parameter: 'reasoning_effort'.",
            "reasoning_effort is not supported by this model",
        ),
        options={"effort": "high"},
        agent={"model": "kimi-k3"},
        change=no("reasoning_effort"),
    ),
}
ROWS = [
    pytest.param(kind, wording, id=f"{name}-{place}")
    for name, kind in KINDS.items()
    for place, wording in enumerate(kind.wordings)
]


class Strict:
    """A server that refuses a body as long as the change has something to change."""

    def __init__(self, kind: Kind, wording: str | Reply) -> None:
        self._change = kind.change
        self._error = wording if isinstance(wording, Reply) else error_reply(400, wording)

    def __call__(self, request: ReceivedRequest) -> Reply:
        is_fine = self._change(request.body) == request.body
        return adaptive_reply(ANSWER)(request) if is_fine else self._error


@pytest.mark.parametrize(("kind", "wording"), ROWS)
async def test_a_refusal_changes_one_thing_and_is_remembered_reported_and_warned_of_once(
    kind: Kind, wording: str | Reply, caplog: pytest.LogCaptureFixture
) -> None:
    options = ModelOptions(**kind.options)
    with caplog.at_level(logging.WARNING, logger="kimi_agent"):
        async with agent_on(Strict(kind, wording), options=options, **kind.agent) as (server, agent):
            first = await run_of(agent, kind.history, streamed=kind.streamed)
            second = await run_of(agent, kind.history, streamed=kind.streamed)
            sent = [request.body for request in server.requests]

    assert len(sent) == 3, "refused, sent again, and right at once in the next run"
    assert sent[0] != kind.change(sent[0])
    assert sent[1] == kind.change(sent[0])
    assert sent[2] == sent[1]
    assert first.text == second.text == ANSWER
    assert [repair.kind for repair in first.repairs] == [kind.repair]
    assert first.repairs[0].where == "request"
    assert first.usage.requests == 2
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert first.repairs[0].detail in warnings[0]


def test_there_is_a_wording_for_every_field_that_servers_are_known_to_refuse() -> None:
    assert len(ROWS) >= 55


# --- what is no lesson -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wording", "options"),
    [
        ("Invalid request Error", {}),
        ("Unknown parameter: 'messages'.", {}),
        ("Unsupported parameter: 'model' is not supported", {}),
        ("property 'tools' is unsupported", {}),
        ("Unknown parameter: 'seed'.", {}),
        ("invalid thinking: only type=enabled is allowed for this model", {}),
        ("stream_options is not supported", {}),
        ("parallel_tool_calls is not supported", {}),
        ("Invalid role 'tool'. Expected one of 'system', 'developer', 'user', 'assistant'", {}),
        ("tool message content must not contain an image", {}),
        ("tokenization failed", {}),
        ("reasoning_content is missing in assistant tool call message at index 1", {}),
        ("messages[0].content must be a string", {}),
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", {}),
        ("tool_choice 'required' is incompatible with thinking enabled", {}),
        ('thinking.keep is not supported by model "kimi-k2.5"', {}),
        ("temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)", {}),
    ],
)
async def test_a_refusal_that_no_change_answers_is_raised_at_once(
    wording: str, options: dict[str, Any]
) -> None:
    seen = await exchange(
        [USER], error_reply(400, wording), tools=["get_weather"], options=ModelOptions(**options)
    )

    assert isinstance(seen.error, errors.InvalidRequestError)
    assert wording in str(seen.error)
    assert len(seen.requests) == 1
    assert seen.error.result.repairs == []


async def test_a_server_that_refuses_what_is_no_longer_sent_is_not_asked_for_ever() -> None:
    seen = await exchange((), error_reply(400, "Unknown parameter: 'seed'."), options=ModelOptions(seed=1))

    assert len(seen.requests) == 2
    assert isinstance(seen.error, errors.InvalidRequestError)
    assert [repair.kind for repair in seen.error.result.repairs] == ["field_dropped"]


async def test_a_server_may_refuse_one_thing_after_another() -> None:
    def strict(request: ReceivedRequest) -> Reply:
        for name in ("seed", "top_p", "temperature"):
            if name in request.body:
                return error_reply(400, f"Unknown parameter: '{name}'.")
        return adaptive_reply(ANSWER)(request)

    seen = await exchange((), strict, options=ModelOptions(seed=1, top_p=0.5))

    assert [sorted(without(body, "model", "messages")) for body in seen.bodies] == [
        ["seed", "temperature", "top_p"],
        ["temperature", "top_p"],
        ["temperature"],
        [],
    ]
    assert seen.kinds == ["field_dropped"] * 3


async def test_a_lesson_is_no_failure_that_counts_as_a_retry() -> None:
    script = [
        error_reply(500, "a hiccup", type="server_error"),
        error_reply(400, "Unknown parameter: 'seed'."),
        error_reply(500, "a hiccup", type="server_error"),
        adaptive_reply(ANSWER),
    ]

    seen = await exchange((), script, options=ModelOptions(seed=1))

    assert seen.result.text == ANSWER
    assert ["seed" in body for body in seen.bodies] == [True, True, False, False]


async def test_a_refusal_inside_a_stream_teaches_too() -> None:
    refused = sse_reply(
        [
            event(
                {
                    "error": {
                        "message": "Unknown parameter: 'seed'.",
                        "type": "invalid_request_error",
                        "code": 400,
                    }
                }
            )
        ]
    )

    seen = await exchange((), [refused, adaptive_reply(ANSWER)], options=ModelOptions(seed=1), streamed=True)

    assert ["seed" in body for body in seen.bodies] == [True, False]
    assert seen.result.text == ANSWER


async def test_a_lesson_in_the_middle_of_a_run_keeps_what_was_done() -> None:
    asked = adaptive_reply(tool_calls=[call("functions.get_weather:0")])
    script = [asked, error_reply(400, "Unknown parameter: 'seed'."), adaptive_reply(ANSWER)]

    seen = await exchange((), script, options=ModelOptions(seed=1), tools=["get_weather"])

    assert seen.executed == [("get_weather", {"city": "Oslo"})]
    assert [len(body["messages"]) for body in seen.bodies] == [1, 3, 3]
    assert seen.bodies[2] == without(seen.bodies[1], "seed")


async def test_what_one_agent_learned_is_not_known_to_another() -> None:
    def strict(request: ReceivedRequest) -> Reply:
        return (
            error_reply(400, "Unknown parameter: 'seed'.")
            if "seed" in request.body
            else adaptive_reply(ANSWER)(request)
        )

    for _ in range(2):
        seen = await exchange((), strict, options=ModelOptions(seed=1))
        assert len(seen.requests) == 2


@pytest.mark.parametrize(
    ("wording", "history"),
    [
        ("Unknown parameter: 'seed'.", []),
        ("messages[0].role: unknown variant `developer`", [{"role": "developer", "content": "Be brief."}]),
    ],
)
async def test_runs_at_the_same_time_all_come_to_know_it(
    wording: str, history: list[Row], caplog: pytest.LogCaptureFixture
) -> None:
    everyone_asked = anyio.Event()
    arrived = 0

    def strict(request: ReceivedRequest) -> Reply:
        is_old = "seed" in request.body if not history else request.body["messages"][0]["role"] == "developer"
        return error_reply(400, wording) if is_old else adaptive_reply(ANSWER)(request)

    results: list[RunResult] = []
    with caplog.at_level(logging.WARNING, logger="kimi_agent"):
        async with (
            agent_on(strict, options=ModelOptions(seed=1)) as (server, agent),
            anyio.create_task_group() as group,
        ):

            async def one() -> None:
                nonlocal arrived
                arrived += 1
                if arrived == 4:
                    everyone_asked.set()
                await everyone_asked.wait()
                results.append(await run_of(agent, history))

            for _ in range(4):
                group.start_soon(one)

    assert [result.text for result in results] == [ANSWER] * 4
    assert 5 <= len(server.requests) <= 8
    assert len(caplog.records) == 1


# --- the last word ---------------------------------------------------------------------------------------


async def test_an_unknown_refusal_comes_with_the_servers_words_and_a_look_at_the_request() -> None:
    history = [USER, calling("a", "b"), told("a"), {"role": "assistant", "content": ""}]

    seen = await exchange(history, error_reply(400, "Something is odd here"), tools=["get_weather", "other"])

    error = seen.error
    assert isinstance(error, errors.InvalidRequestError)
    assert error.server_message == "Something is odd here"
    text = str(error)
    for word in (
        "Something is odd here",
        "400",
        "5 messages (2 user, 2 assistant, 1 tool)",
        "2 tools: get_weather, other",
        "messages[1]: b was never answered",
        "messages[3]: an assistant message without content and calls",
    ):
        assert word in text
    assert error.findings
    assert error.result is not None
    assert error.result.messages[-1] == ASKED
