"""The verdicts of `examine` on servers of every kind, asked over HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kimi_agent._runtime.openai_transport import OpenAITransport
from kimi_agent.dialects import ENGINES, GENERATIONS
from kimi_agent.doctor import CHECKS, Asked, Finding, Report, examine
from kimi_agent.testing import (
    KimiServer,
    ReceivedRequest,
    Reply,
    adaptive_reply,
    error_reply,
    json_reply,
    tool_call,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
LONGEST_S = 30
K2 = "moonshotai/Kimi-K2-Instruct"
THINKING = "moonshotai/Kimi-K2-Thinking"
VLLM_FLAGS = "--enable-auto-tool-choice --tool-call-parser kimi_k2"

# What a simulated server in good order gets; it has no cache, and the plain model no reasoning.
GOOD = dict.fromkeys((check.name for check in CHECKS), "ok") | {
    "reasoning_replay": "skip",
    "cached_tokens": "warn",
}
UNPARSED = {
    **dict.fromkeys(("tool_call", "streamed_call", "parallel_calls"), "fail"),
    "call_ids": "skip",
    "tool_choice": "warn",
    "agent_loop": "warn",
}
# vLLM refuses requests with tools then; SGLang leaves the calls in the text.
REFUSED = {**UNPARSED, "finish_reasons": "skip", "raw_markers": "skip"}
RAW = {**UNPARSED, "raw_markers": "fail"}
# The simulated servers do not show earlier reasoning to their model.
THOUGHTS = {"reasoning_replay": "warn"}
RAW_THOUGHTS = {**THOUGHTS, "reasoning_field": "fail", "think_tags": "fail"}


USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
SAYS_KIMI = "I am Kimi."


def call(city: str, place: int = 0, *, id: str | None = None, arguments: str = "") -> dict[str, Any]:  # noqa: A002 - the field is called so
    """A call of the probes' tool."""
    label = f"functions.get_weather:{place}" if id is None else id
    return tool_call("get_weather", arguments or {"city": city}, id=label)


def answering(
    *,
    plain: Callable[[ReceivedRequest], Reply] | None = None,
    one: Callable[[ReceivedRequest], Reply] | None = None,
    two: Callable[[ReceivedRequest], Reply] | None = None,
) -> Callable[[ReceivedRequest], Reply]:
    """A server in good order, but for the replies that are given."""
    plain = plain or adaptive_reply(SAYS_KIMI, usage=USAGE)
    one = one or adaptive_reply(None, tool_calls=[call("Paris")], usage=USAGE)
    two = two or adaptive_reply(None, tool_calls=[call("Paris"), call("Tokyo", 1)], usage=USAGE)
    cut = adaptive_reply("I am", finish_reason="length", usage=USAGE)
    answer = adaptive_reply("It is 18 degrees.", usage=USAGE)

    def reply(request: ReceivedRequest) -> Reply:
        last = request.body["messages"][-1]
        if (request.body.get("max_tokens") or 1000) < 10:
            return cut(request)
        if last["role"] == "tool":
            return answer(request)
        if not request.body.get("tools") or request.body.get("tool_choice") == "none":
            return plain(request)
        return two(request) if "Paris and Tokyo" in last["content"] else one(request)

    return reply


async def report_on(base_url: str, *, key: str | None = None, wait_s: float = 0, **asked: Any) -> Report:
    with anyio.fail_after(LONGEST_S):
        return await examine(
            Asked(has_key=key is not None, **asked),
            lambda url: OpenAITransport.connect(base_url=url, api_key=key or "none"),
            base_url,
            timeout_s=3,
            wait_s=wait_s,
        )


async def report_of(
    engine: str = "vllm", *, asked: Mapping[str, Any] | None = None, **options: Any
) -> Report:
    async with KimiServer(engine, **options) as server:
        return await report_on(server.base_url, **(asked or {}))


def verdicts(report: Report) -> dict[str, str]:
    return {finding.check: finding.verdict for finding in report.findings}


def finding(report: Report, check: str) -> Finding:
    return next(each for each in report.findings if each.check == check)


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here, the command's: what is found is decided without waiting."""
    return "asyncio"


# --- the simulated engines ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "options", "otherwise"),
    [
        ("vllm", {}, {}),
        ("sglang", {}, {}),
        ("llama.cpp", {}, {"tool_choice": "warn"}),
        ("moonshot", {}, {}),
        ("vllm", {"thinking": True}, THOUGHTS),
        ("sglang", {"thinking": True}, THOUGHTS),
        ("llama.cpp", {"thinking": True}, {**THOUGHTS, "tool_choice": "warn"}),
        # It refuses a history without the reasoning, so that is known to be read.
        ("moonshot", {"thinking": True}, {"reasoning_replay": "ok"}),
        ("vllm", {"parser": False}, REFUSED),
        ("sglang", {"parser": False}, RAW),
        ("vllm", {"parser": False, "thinking": True}, {**REFUSED, **RAW_THOUGHTS}),
        ("sglang", {"parser": False, "thinking": True}, {**RAW, **RAW_THOUGHTS}),
    ],
)
async def test_each_engine_gets_the_verdicts_it_deserves(
    engine: str, options: dict[str, Any], otherwise: dict[str, str]
) -> None:
    report = await report_of(engine, model=THINKING if options.get("thinking") else K2, **options)

    assert verdicts(report) == {**GOOD, **otherwise}
    assert report.is_healthy == ("fail" not in otherwise.values())
    assert report.engine == engine
    assert report.generation == ("k2-thinking" if options.get("thinking") else "k2")
    assert report.context_tokens == 131_072


@pytest.mark.parametrize(
    ("engine", "thinking", "flags"),
    [
        ("vllm", False, VLLM_FLAGS),
        ("vllm", True, f"{VLLM_FLAGS} --reasoning-parser kimi_k2"),
        ("sglang", False, "--tool-call-parser kimi_k2"),
        ("sglang", True, "--tool-call-parser kimi_k2 --reasoning-parser kimi_k2"),
    ],
)
async def test_a_missing_parser_is_answered_with_the_flags_of_that_engine(
    engine: str, thinking: bool, flags: str
) -> None:
    model = THINKING if thinking else K2

    report = await report_of(engine, parser=False, thinking=thinking, model=model)

    without_reasoning = flags.removesuffix(" --reasoning-parser kimi_k2")
    assert finding(report, "tool_call").remedy == f"start {engine} with {without_reasoning}"
    assert report.start_command.startswith(("vllm serve", "python -m sglang.launch_server"))
    assert model in report.start_command
    assert report.start_command.endswith(f" --trust-remote-code {flags}")
    if thinking:
        assert finding(report, "think_tags").remedy == f"start {engine} with --reasoning-parser kimi_k2"


async def test_an_engine_named_by_hand_decides_the_flags() -> None:
    report = await report_of("sglang", parser=False, model=K2, asked={"engine": ENGINES["ktransformers"]})

    assert verdicts(report)["engine"] == "ok"
    assert finding(report, "tool_call").remedy == "start ktransformers with --tool-call-parser kimi_k2"
    assert f"--model {K2} --kt-weight-path" in report.start_command


async def test_a_wrong_engine_named_by_hand_is_told() -> None:
    report = await report_of(model=K2, asked={"engine": ENGINES["sglang"]})

    assert finding(report, "engine").verdict == "warn"
    assert "looks like vllm" in finding(report, "engine").seen


async def test_a_generation_is_found_by_the_weights_behind_an_alias() -> None:
    entry = {"id": "production", "root": "/models/Kimi-K2-Thinking", "owned_by": "vllm"}
    models = json_reply({"object": "list", "data": [entry]})

    report = await report_of(model="production", thinking=True, replies={"/v1/models": models})

    assert report.generation == "k2-thinking"
    assert "/models/Kimi-K2-Thinking" in finding(report, "generation").seen


async def test_a_name_that_tells_no_generation_is_a_warning_and_can_be_said() -> None:
    unsaid = await report_of()
    said = await report_of(asked={"generation": GENERATIONS["k2.5"]})

    assert finding(unsaid, "generation").verdict == "warn"
    assert (finding(said, "generation").verdict, said.generation) == ("ok", "k2.5")


async def test_a_small_context_is_a_warning_with_the_flag_that_sets_it() -> None:
    report = await report_of(model=K2, context_length=4096)

    assert verdicts(report) == {**GOOD, "context_limit": "warn"}
    assert "--max-model-len" in finding(report, "context_limit").remedy


# --- raw prompts -------------------------------------------------------------------------------------


async def test_with_raw_prompts_only_what_they_need_is_checked() -> None:
    report = await report_of("vllm", parser=False, model=K2, asked={"api": "completions"})

    about_chat = {check.name for check in CHECKS if check.chat_only}
    assert verdicts(report) == {
        name: "skip" if name in about_chat or name == "raw_completions" else verdict
        for name, verdict in GOOD.items()
    }
    assert report.is_healthy


async def test_with_raw_prompts_nothing_is_asked_of_chat() -> None:
    async with KimiServer("vllm", model=K2) as server:
        await report_on(server.base_url, api="completions")

        assert {request.path for request in server.requests} == {"/v1/models", "/v1/completions"}


async def test_where_chat_is_broken_raw_prompts_are_tried_as_a_way_out() -> None:
    broken = error_reply(500, "no chat template is defined", type="InternalServerError")

    report = await report_of(model=K2, replies={CHAT: broken})

    assert finding(report, "plain_answer").verdict == "fail"
    assert "no chat template is defined" in finding(report, "plain_answer").seen
    assert finding(report, "tool_call").verdict == "skip"
    assert finding(report, "raw_completions").verdict == "ok"
    assert not report.is_healthy


async def test_a_server_without_raw_completions_is_healthy() -> None:
    absent = error_reply(404, "Not Found", type="NotFoundError")

    report = await report_of(model=K2, replies={"/v1/completions": absent})

    assert verdicts(report) == {**GOOD, "raw_completions": "skip"}


# --- names and keys ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Kimi-K2-Instruct", "kimi-k2-instruct", "moonshotai/Kimi-K2-Instuct"])
async def test_a_wrong_model_name_fails_and_the_checks_go_on_with_the_right_one(name: str) -> None:
    report = await report_of(model=K2, asked={"model": name})

    assert verdicts(report) == {**GOOD, "model": "fail"}
    assert f"--model {K2}" in finding(report, "model").remedy
    assert report.model == K2
    assert not report.is_healthy


async def test_a_name_the_server_does_not_look_at_is_a_warning() -> None:
    report = await report_of("sglang", model=K2, asked={"model": "Kimi-K2-Instruct"})

    assert verdicts(report) == {**GOOD, "model": "warn"}
    assert f"--model {K2}" in finding(report, "model").remedy


async def test_a_name_that_means_none_of_several_models_ends_the_examination() -> None:
    entries = [{"id": name} for name in ("moonshotai/Kimi-K2-Instruct", "Qwen/Qwen3-8B")]
    models = json_reply({"object": "list", "data": entries})

    report = await report_of(model=K2, replies={"/v1/models": models}, asked={"model": "llama"})

    assert finding(report, "model").verdict == "fail"
    assert "Qwen/Qwen3-8B" in finding(report, "model").seen
    assert finding(report, "tool_call").verdict == "skip"


async def test_without_a_name_a_server_with_several_models_needs_one() -> None:
    models = json_reply({"object": "list", "data": [{"id": "a"}, {"id": "b"}]})

    report = await report_of(replies={"/v1/models": models})

    assert finding(report, "model").verdict == "fail"
    assert "a, b" in finding(report, "model").seen
    assert report.model is None


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp", "moonshot"])
async def test_a_missing_key_is_told_and_ends_the_examination(engine: str) -> None:
    report = await report_of(engine, model=K2, api_key="sk-right-right")

    assert verdicts(report) == {
        **dict.fromkeys(GOOD, "skip"),
        "reachable": "ok",
        "api_key": "fail",
    }
    assert "none was given" in finding(report, "api_key").seen
    assert "KIMI_API_KEY" in finding(report, "api_key").remedy


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp", "moonshot"])
async def test_a_wrong_key_is_told_and_never_repeated(engine: str) -> None:
    report = await report_of(
        engine, model=K2, api_key="sk-right-right", asked={"key": "sk-wrong-wrong-wrong"}
    )

    assert finding(report, "api_key").verdict == "fail"
    assert "refused" in finding(report, "api_key").seen
    assert "sk-wrong" not in json.dumps(report.to_json())


async def test_the_right_key_is_accepted() -> None:
    report = await report_of(model=K2, api_key="sk-right-right", asked={"key": "sk-right-right"})

    assert verdicts(report) == GOOD
    assert finding(report, "api_key").seen == "accepted"


def test_it_runs_on_trio_too() -> None:
    with KimiServer(model=K2) as server:
        report = anyio.run(report_on, server.base_url, backend="trio")

    assert verdicts(report) == GOOD
