"""Servers that are set up wrongly, still loading, or asked for too much: what works, and what is said."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from kimi_agent import ModelOptions, RunLimits, errors
from kimi_agent.testing import Reply, adaptive_reply, error_reply, json_reply
from tests.e2e.dialects import (
    ANSWER,
    CHAT,
    FAST,
    MODELS,
    USER,
    agent_on,
    answering,
    exchange,
    run_of,
    without,
)
from tests.recordings import Recording, load

pytestmark = pytest.mark.anyio

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
TOOLS = ["get_weather", "convert_temperature", "get_time", "save_note"]
VLLM_FLAGS = "--enable-auto-tool-choice --tool-call-parser kimi_k2"
WANTED = (
    "tools_choice_none_raw",
    "one_call",
    "tool_choice_required",
    "prompt_too_long",
    "completions_too_long",
)
RECORDINGS = {
    each.id: each
    for each in load()
    if each.case.removesuffix("_stream")
    in (*WANTED, "max_tokens_too_big", "wrong_model", "short_name", "models")
}


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here: what is sent does not depend on it."""
    return "asyncio"


def played(recording: Recording) -> Reply:
    """The recorded answer, byte for byte."""
    events = [each for each in re.split(r"(?<=\n\n)", recording.body) if each]
    return Reply(
        status=recording.status,
        headers={"content-type": recording.headers["content-type"]},
        body=events if recording.is_stream else recording.body,
    )


# --- vLLM without its parser flags ------------------------------------------------------------------------


@STREAMED
async def test_an_agent_works_on_a_vllm_without_parser_and_says_the_flags(
    streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ending = "_stream" if streamed else ""
    refusal = played(RECORDINGS[f"vllm-0.32/none/one_call{ending}"])
    raw = RECORDINGS[f"vllm-0.32/none/tools_choice_none_raw{ending}"]
    script = [refusal, played(raw), adaptive_reply(ANSWER), played(raw), adaptive_reply(ANSWER)]

    with caplog.at_level(logging.WARNING, logger="kimi_agent"):
        async with agent_on(script, tools=TOOLS) as (server, agent):
            first = await run_of(agent, streamed=streamed)
            second = await run_of(agent, streamed=streamed)
        sent = [request.body for request in server.requests]

    for result in (first, second):
        assert [(record.name, record.arguments) for record in result.tool_calls] == [
            ("get_weather", {"city": "Paris"})
        ]
        assert result.text == ANSWER
        assert result.messages[1]["content"] == "Let me check the weather in Paris."
    assert [body.get("tool_choice") for body in sent] == [None, "none", "none", "none", "none"]
    assert without(sent[1], "tool_choice", "skip_special_tokens") == sent[0]
    assert all(body["skip_special_tokens"] is False for body in sent[1:])
    assert all([tool["function"]["name"] for tool in body["tools"]] == TOOLS for body in sent)
    assert next(repair.kind for repair in first.repairs) == "raw_tool_mode"
    assert VLLM_FLAGS in first.repairs[0].detail
    assert {"raw_tool_calls"} <= {repair.kind for repair in second.repairs}
    assert any(VLLM_FLAGS in record.getMessage() for record in caplog.records)
    assert len(caplog.records) <= 2


@STREAMED
async def test_the_flags_are_said_even_if_the_model_makes_no_call(streamed: bool) -> None:
    refusal = played(RECORDINGS["vllm-0.32/none/one_call"])

    seen = await exchange((), [refusal, adaptive_reply(ANSWER)], tools=TOOLS, streamed=streamed)

    assert seen.result.text == ANSWER
    assert seen.kinds == ["raw_tool_mode"]
    assert VLLM_FLAGS in seen.details


async def test_the_flags_are_those_of_the_generation() -> None:
    refusal = played(RECORDINGS["vllm-0.32/none/one_call"])

    seen = await exchange((), [refusal, adaptive_reply(ANSWER)], tools=TOOLS, model="kimi-k3")

    assert "--tool-call-parser kimi_k3" in seen.details
    assert "kimi_k2" not in seen.details


async def test_a_forced_call_is_asked_for_as_well_as_can_be() -> None:
    refusal = played(RECORDINGS["vllm-0.32/none/tool_choice_required"])
    raw = played(RECORDINGS["vllm-0.32/none/tools_choice_none_raw"])
    script = [refusal, raw, adaptive_reply(ANSWER)]

    seen = await exchange((), script, tools=TOOLS, options=ModelOptions(tool_choice="required"))

    assert [body["tool_choice"] for body in seen.bodies] == ["required", "none", "none"]
    assert seen.executed == [("get_weather", {"city": "Paris"})]


async def test_a_server_that_refuses_tools_for_good_is_told_apart() -> None:
    refusal = played(RECORDINGS["vllm-0.32/none/one_call"])

    seen = await exchange((), refusal, tools=TOOLS)

    assert type(seen.error) is errors.ToolsUnsupportedError
    assert VLLM_FLAGS in str(seen.error)
    assert len(seen.requests) == 2


SGLANG_RAW = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_time:0<|tool_call_argument_begin|>{}"
    "<|tool_call_end|><|tool_calls_section_end|>"
)


@STREAMED
async def test_raw_markers_in_content_name_the_missing_flag_of_the_engine(
    streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    script = [adaptive_reply(SGLANG_RAW), adaptive_reply(ANSWER)] * 2

    with caplog.at_level(logging.WARNING, logger="kimi_agent"):
        async with agent_on(script, tools=TOOLS, engine="sglang") as (_, agent):
            first = await run_of(agent, streamed=streamed)
            second = await run_of(agent, streamed=streamed)

    for result in (first, second):
        assert [record.name for record in result.tool_calls] == ["get_time"]
        details = [repair.detail for repair in result.repairs if repair.kind == "missing_parser"]
        assert len(details) == 1
        assert "start sglang with --tool-call-parser kimi_k2" in details[0]
    assert len(caplog.records) == 1


# --- a wrong model name -----------------------------------------------------------------------------------


def listing(*names: str) -> Reply:
    """A list of models."""
    return json_reply({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


NOT_FOUND = {
    "vllm": played(RECORDINGS["vllm-0.32/none/short_name"]),
    "moonshot": error_reply(
        404, "Not found the model kimi-k2 or Permission denied", type="resource_not_found_error"
    ),
    "flat": error_reply(404, "The model `x` does not exist.", type="NotFoundError", shape="flat"),
}
CHOICES = [
    ("Kimi-K2-Thinking", ("moonshotai/Kimi-K2-Thinking", "other"), "moonshotai/Kimi-K2-Thinking"),
    ("moonshotai/Kimi-K2-Thinking", ("/models/Kimi-K2-Thinking", "other"), "/models/Kimi-K2-Thinking"),
    ("kimi-k2", ("models/tiny-kimi",), "models/tiny-kimi"),
    ("kimi-k2.6", ("kimi-k2.5", "kimi-k3"), "kimi-k2.5"),
    ("kimi-k2-instuct", ("kimi-k2-instruct", "other"), "kimi-k2-instruct"),
    ("gpt-5", ("kimi-k2", "kimi-k3"), None),
]


@pytest.mark.parametrize("server", NOT_FOUND)
@pytest.mark.parametrize(("wanted", "served", "meant"), CHOICES)
async def test_a_wrong_model_name_is_answered_with_what_there_is_and_what_was_meant(
    server: str, wanted: str, served: tuple[str, ...], meant: str | None
) -> None:
    seen = await exchange((), {CHAT: NOT_FOUND[server], MODELS: listing(*served)}, model=wanted)

    error = seen.error
    assert type(error) is errors.ModelNotFoundError
    assert error.available == served
    assert error.suggestion == meant
    assert [name for name in served if name not in str(error)] == []
    assert ("Did you mean" in str(error)) == (meant is not None)
    assert [request.path for request in seen.requests] == [CHAT, MODELS]


async def test_without_a_list_the_error_is_still_told() -> None:
    seen = await exchange((), {CHAT: NOT_FOUND["vllm"], MODELS: error_reply(404, "Not Found")})

    assert type(seen.error) is errors.ModelNotFoundError
    assert seen.error.available == ()


# --- loading ----------------------------------------------------------------------------------------------

LOADING = {
    "llama.cpp": error_reply(503, "Loading model", type="unavailable_error"),
    "gateway": json_reply({"detail": "The model is still loading"}, status=503),
    "text": Reply(status=503, body="Model is loading, please wait"),
    "retry-after": error_reply(503, "Loading model", type="unavailable_error", retry_after_s=1000),
}


@STREAMED
@pytest.mark.parametrize("name", LOADING)
async def test_a_server_that_is_loading_is_waited_for_longer_than_a_failure(
    name: str, streamed: bool
) -> None:
    script = [*[LOADING[name]] * 6, adaptive_reply(ANSWER)]

    seen = await exchange((), script, streamed=streamed)

    assert seen.result.text == ANSWER
    assert len(seen.requests) == 7


async def test_a_server_that_is_loading_is_not_waited_for_for_ever() -> None:
    limits = RunLimits(max_retry_delay_s=0.005, loading_timeout_s=0.05, max_retries=1)

    seen = await exchange((), LOADING["llama.cpp"], limits=limits)

    assert type(seen.error) is errors.ServerLoadingError
    assert 2 <= len(seen.requests) < 60


async def test_a_loading_server_is_waited_for_when_its_models_are_asked_for() -> None:
    scripts = {MODELS: [*[LOADING["llama.cpp"]] * 3, listing("kimi-k2")], CHAT: answering}

    seen = await exchange((), scripts, model=None)

    assert seen.result.text == ANSWER


async def test_a_server_that_is_merely_unavailable_is_asked_again_as_after_any_failure() -> None:
    seen = await exchange((), error_reply(503, "Service Unavailable", type="server_unavailable"))

    assert type(seen.error) is errors.TransportStatusError
    assert len(seen.requests) == 1 + FAST.max_retries


# --- a context that is too long ---------------------------------------------------------------------------

CONTEXT: dict[str, tuple[Any, int | None, int | None]] = {
    "Moonshot": (
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 274613)",
        262_144,
        274_613,
    ),
    "Moonshot, without numbers": ("Input token length too long", None, None),
    "Moonshot, without the second": ("Your request exceeded model token limit: 262144", 262_144, None),
    "vLLM, total": (
        (
            "This model's maximum context length is 2048 tokens. However, you requested 100 output tokens "
            "and your "
            "prompt contains at least 1949 input tokens, for a total of at least 2049 tokens. Please reduce "
            "the length "
            "of the input prompt or the number of requested output tokens. (parameter=input_tokens, "
            "value=1949)"
        ),
        2048,
        2049,
    ),
    "vLLM, prompt alone": (
        (
            "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 "
            "input "
            "tokens, which exceeds this limit even without any output tokens. (parameter=input_tokens, "
            "value=2049)"
        ),
        2048,
        2049,
    ),
    "vLLM, before the total": (
        (
            "This model's maximum context length is 131072 tokens. However, you requested 8192 output tokens "
            "and your "
            "prompt contains at least 122881 input tokens"
        ),
        131_072,
        122_881,
    ),
    "vLLM, passed": (
        (
            "You passed 3000 input tokens and requested 100 output tokens. However, the model's context "
            "length is only "
            "2048 tokens, resulting in a maximum input length of 1948 tokens. Please reduce the length of "
            "the input "
            "prompt."
        ),
        2048,
        3000,
    ),
    "vLLM, token ids": (
        (
            "The decoder prompt (length 3000) is longer than the maximum model length of 2048. Make sure "
            "that "
            "`max_model_len` is no smaller than the number of text tokens."
        ),
        2048,
        3000,
    ),
    "vLLM, output": (
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context length "
            "is 2048 "
            "tokens and your request has 100 input tokens (9000 > 2048 - 100)."
        ),
        2048,
        9000,
    ),
    "OpenAI": (
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 "
            "tokens. Please "
            "reduce the length of the messages."
        ),
        8192,
        9000,
    ),
    "OpenAI, requested": (
        (
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8000 in "
            "the "
            "messages, 1000 in the completion)."
        ),
        8192,
        9000,
    ),
    "OpenRouter": (
        (
            "This endpoint's maximum context length is 262144 tokens. However, you requested about 300000 "
            "tokens (299000 "
            "of text input, 1000 in the output). Please reduce the length of either one."
        ),
        262_144,
        300_000,
    ),
    "SGLang": (
        "The input (3291 tokens) is longer than the model's context length (2048 tokens).",
        2048,
        3291,
    ),
    "SGLang, with the output": (
        (
            "Requested token count exceeds the model's maximum context length of 2048 tokens. You requested "
            "a total of "
            "3000 tokens: 2000 tokens from the input messages and 1000 tokens for the completion."
        ),
        2048,
        3000,
    ),
    "llama.cpp": (
        {
            "error": {
                "code": 400,
                "message": (
                    "request (3247 tokens) exceeds the available context size (2048 tokens), try increasing "
                    "it"
                ),
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 3247,
                "n_ctx": 2048,
            }
        },
        2048,
        3247,
    ),
    "llama.cpp, before": (
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 3247,
                "n_ctx": 2048,
            }
        },
        2048,
        3247,
    ),
}


@pytest.mark.parametrize("name", CONTEXT)
async def test_a_context_that_is_too_long_is_told_with_both_numbers(name: str) -> None:
    words, limit, requested = CONTEXT[name]
    reply = error_reply(400, words) if isinstance(words, str) else json_reply(words, status=400)

    seen = await exchange([USER], reply)

    error = seen.error
    assert type(error) is errors.ContextTooLongError
    assert (error.limit_tokens, error.requested_tokens) == (limit, requested)
    assert len(seen.requests) == 1
    for number in (limit, requested):
        assert str(number or "not told") in str(error)


RECORDED = [
    name
    for name, each in RECORDINGS.items()
    if each.case.startswith("prompt_too_long") and each.status >= 400
]


@pytest.mark.parametrize("name", RECORDED)
async def test_recorded_contexts_that_are_too_long_are_told_with_both_numbers(name: str) -> None:
    recording = RECORDINGS[name]

    seen = await exchange((), played(recording), streamed=name.endswith("_stream"))

    assert isinstance(seen.error, errors.InvalidRequestError)
    if "requires --enable-auto-tool-choice" not in recording.body:
        assert type(seen.error) is errors.ContextTooLongError
        assert seen.error.limit_tokens == 2048
        assert seen.error.requested_tokens is not None
        assert seen.error.requested_tokens > 2048


@pytest.mark.parametrize(
    "wording",
    [
        "Upstream: "
        + "x" * 300
        + " This model's maximum context length is 2048 tokens. However, you requested 3000 tokens",
        '{"error": {"message": "Your request exceeded model token limit: 2048 (requested: 3000)", "type": "x"}}',
    ],
)
async def test_gateways_may_wrap_the_words(wording: str) -> None:
    seen = await exchange((), error_reply(400, wording))

    assert type(seen.error) is errors.ContextTooLongError
    assert (seen.error.limit_tokens, seen.error.requested_tokens) == (2048, 3000)
