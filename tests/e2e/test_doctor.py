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
    Close,
    Hang,
    KimiServer,
    ReceivedRequest,
    Reply,
    adaptive_reply,
    error_reply,
    json_reply,
    stream_reply,
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
UNPARSED = {"tool_call": "fail", "streamed_call": "fail", "parallel_calls": "fail", "call_ids": "skip"}
UNPARSED |= {"tool_choice": "warn", "agent_loop": "warn"}
# vLLM refuses requests with tools then; SGLang leaves the calls in the text.
REFUSED = {**UNPARSED, "finish_reasons": "skip", "raw_markers": "skip"}
RAW = {**UNPARSED, "raw_markers": "fail"}
# The simulated servers do not show earlier reasoning to their model.
THOUGHTS = {"reasoning_replay": "warn"}
RAW_THOUGHTS = {**THOUGHTS, "reasoning_field": "fail", "think_tags": "fail"}


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
    report = await report_of(
        "sglang", parser=False, model=K2, asked={"engine": ENGINES["ktransformers"]}
    )

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


# --- servers that are not there ----------------------------------------------------------------------


def refused_url() -> str:
    """An address nobody listens on any more."""
    with KimiServer() as server:
        return server.base_url


async def test_where_nothing_listens_everything_else_is_skipped() -> None:
    report = await report_on(refused_url())

    assert verdicts(report) == {**dict.fromkeys(GOOD, "skip"), "reachable": "fail"}
    assert "connection refused" in finding(report, "reachable").seen


async def test_an_address_without_v1_is_put_right_and_the_checks_go_on() -> None:
    async with KimiServer(model=K2) as server:
        report = await report_on(server.base_url.removesuffix("/v1"))

        assert verdicts(report) == {**GOOD, "reachable": "fail"}
        assert f"--base-url {server.base_url}" in finding(report, "reachable").remedy


async def test_a_web_page_is_no_server() -> None:
    page = Reply(headers={"content-type": "text/html"}, body="<html>Welcome</html>")

    report = await report_of(replies={"/v1/models": page, CHAT: page})

    assert finding(report, "reachable").verdict == "fail"
    assert "ending with /v1" in finding(report, "reachable").remedy


async def test_a_server_that_lists_no_models_is_examined_by_the_given_name() -> None:
    absent = error_reply(404, "Not Found")

    unnamed = await report_of(model=K2, replies={"/v1/models": absent})
    named = await report_of(model=K2, replies={"/v1/models": absent}, asked={"model": K2})

    assert finding(unnamed, "reachable").verdict == "fail"
    # No list tells the context, but the first reply tells the engine.
    assert verdicts(named) == {**GOOD, "context_limit": "skip"}
    assert named.engine == "vllm"


LOADING = error_reply(503, "Loading model", type="unavailable_error")


async def test_a_loading_server_fails_and_the_remedy_is_to_wait() -> None:
    report = await report_of("llama.cpp", replies={"/v1/models": LOADING})

    assert finding(report, "reachable").verdict == "fail"
    assert "--wait" in finding(report, "reachable").remedy


async def test_a_loading_server_is_waited_for_until_it_is_ready() -> None:
    entries = json_reply({"object": "list", "data": [{"id": K2, "owned_by": "vllm", "max_model_len": 131_072}]})
    greeted: list[str] = []

    def chat(request: ReceivedRequest) -> Reply:
        # The list may be there before the model is.
        greeted.append(request.path)
        return LOADING if len(greeted) == 1 else answering()(request)

    report = await report_of(
        replies={"/v1/models": [LOADING, entries], CHAT: chat, "/v1/completions": error_reply(404, "no")},
        asked={"wait_s": 20},
    )

    assert verdicts(report) == {**GOOD, "usage": "ok", "raw_completions": "skip"}
    assert "of waiting" in finding(report, "reachable").seen


async def test_waiting_ends() -> None:
    report = await report_on(refused_url(), wait_s=0.6)

    assert finding(report, "reachable").verdict == "fail"


async def test_a_server_that_dies_on_the_way_is_left_in_peace() -> None:
    first = [answering(), answering()]

    def dying(request: ReceivedRequest) -> Reply:
        return first.pop()(request) if first else Reply(before=(Close(),))

    report = await report_of(model=K2, replies=dying)

    assert finding(report, "streamed_answer").verdict == "ok"
    assert finding(report, "tool_call").verdict == "fail"
    assert finding(report, "usage").verdict == "skip"
    assert finding(report, "usage").seen == "the server stopped answering"


async def test_a_server_that_hangs_costs_no_more_than_its_time() -> None:
    hanging = Reply(headers={"content-type": "application/json"}, body=[Hang()])

    async with KimiServer(model=K2, replies=hanging) as server:
        with anyio.fail_after(LONGEST_S):
            report = await examine(
                Asked(),
                lambda url: OpenAITransport.connect(base_url=url, api_key="none"),
                server.base_url,
                timeout_s=0.2,
            )

    assert finding(report, "plain_answer").verdict == "fail"
    assert "no whole reply within 0.2 s" in finding(report, "plain_answer").seen


# --- replies that are not as they should be ----------------------------------------------------------

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
SAYS_KIMI = "I am Kimi."


def call(city: str, place: int = 0, **fields: str) -> dict[str, Any]:
    made = tool_call("get_weather", {"city": city}, id=fields.get("id", f"functions.get_weather:{place}"))
    return made | {"function": made["function"] | {"arguments": fields["arguments"]}} if "arguments" in fields else made


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


async def scripted(chat: Callable[[ReceivedRequest], Reply], **asked: Any) -> Report:
    absent = error_reply(404, "Not Found")
    return await report_of(
        model=asked.pop("served", K2), replies={CHAT: chat, "/v1/completions": absent}, asked=asked
    )


SCRIPTED = {**GOOD, "raw_completions": "skip"}


async def test_a_scripted_server_in_good_order_is_found_so() -> None:
    assert verdicts(await scripted(answering())) == SCRIPTED


@pytest.mark.parametrize(
    ("one", "seen", "remedy"),
    [
        (adaptive_reply(None, finish_reason="stop"), "no call and no text", "newer release"),
        (adaptive_reply("Paris is lovely."), "the model answered", "chat template"),
        (
            adaptive_reply(None, tool_calls=[call("Paris", arguments='{"city": ')]),
            "not a JSON object",
            "newer release",
        ),
        (
            adaptive_reply(None, tool_calls=[tool_call("functions.get_weather:0", {"city": "Paris"})]),
            "another name",
            "newer release",
        ),
        (
            adaptive_reply("<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"),
            "raw text in content",
            VLLM_FLAGS,
        ),
        (adaptive_reply('functions.get_weather:0{"city": "Paris"}'), "raw text in content", VLLM_FLAGS),
        (
            adaptive_reply(None, reasoning="Hm.<|tool_calls_section_begin|>"),
            "raw text in reasoning_content",
            VLLM_FLAGS,
        ),
        (
            adaptive_reply('<|open|>tools<|sep|><|open|>call tool="get_weather"<|sep|>'),
            "raw text in content",
            "--enable-auto-tool-choice --tool-call-parser kimi_k3",
        ),
        (error_reply(500, "tools need --jinja", type="server_error"), "tools need --jinja", VLLM_FLAGS),
    ],
)
async def test_a_call_that_does_not_come_as_one_fails(one: Any, seen: str, remedy: str) -> None:
    def reply(request: ReceivedRequest) -> Reply:
        return one if isinstance(one, Reply) else one(request)

    report = await scripted(answering(one=reply, two=reply))

    assert finding(report, "tool_call").verdict == "fail"
    assert seen in finding(report, "tool_call").seen
    assert remedy in finding(report, "tool_call").remedy
    assert not report.is_healthy


async def test_a_model_that_answers_in_words_once_is_asked_again() -> None:
    words = [adaptive_reply("Let me think."), adaptive_reply(None, tool_calls=[call("Paris")])]

    def one(request: ReceivedRequest) -> Reply:
        return (words.pop(0) if len(words) > 1 else words[0])(request)

    assert finding(await scripted(answering(one=one)), "tool_call").verdict == "ok"


@pytest.mark.parametrize(
    ("check", "chat", "verdict", "seen"),
    [
        ("plain_answer", answering(plain=adaptive_reply("I am Claude.")), "warn", "does not say Kimi"),
        ("plain_answer", answering(plain=adaptive_reply("")), "fail", "an empty reply"),
        (
            "plain_answer",
            answering(plain=adaptive_reply(None, reasoning=SAYS_KIMI, reasoning_field="reasoning")),
            "fail",
            "the answer is in reasoning",
        ),
        (
            "plain_answer",
            answering(plain=adaptive_reply(None, reasoning="Hm, hm", finish_reason="length")),
            "warn",
            "went into the reasoning",
        ),
        ("usage", answering(plain=adaptive_reply(SAYS_KIMI)), "warn", "no usage in whole replies and streams"),
        (
            "parallel_calls",
            answering(two=adaptive_reply(None, tool_calls=[call("Paris")])),
            "warn",
            "one call at a time",
        ),
        (
            "call_ids",
            answering(two=adaptive_reply(None, tool_calls=[call("Paris"), call("Tokyo")])),
            "warn",
            "the same id twice",
        ),
        ("call_ids", answering(one=adaptive_reply(None, tool_calls=[call("Paris", id="")])), "warn", "without id"),
        (
            "call_ids",
            answering(one=adaptive_reply(None, tool_calls=[call("Paris", id="call_8f3a")])),
            "warn",
            "not functions.NAME:N",
        ),
        (
            "finish_reasons",
            answering(one=adaptive_reply(None, tool_calls=[call("Paris")], finish_reason="stop")),
            "warn",
            "'stop' with calls",
        ),
        ("raw_markers", answering(one=adaptive_reply("Hi<|im_end|>")), "warn", "<|im_end|> in content"),
        ("think_tags", answering(plain=adaptive_reply("Hm</think>I am Kimi.")), "fail", "</think> in content"),
        (
            "reasoning_field",
            answering(plain=adaptive_reply(SAYS_KIMI, reasoning="Hm.")),
            "warn",
            "although k2 does not reason",
        ),
    ],
)
async def test_what_is_odd_in_a_reply_is_seen(
    check: str, chat: Callable[[ReceivedRequest], Reply], verdict: str, seen: str
) -> None:
    report = await scripted(chat)

    assert finding(report, check).verdict == verdict
    assert seen in finding(report, check).seen


async def test_a_stream_without_its_closing_mark_is_a_warning() -> None:
    def plain(request: ReceivedRequest) -> Reply:
        if not request.body.get("stream"):
            return adaptive_reply(SAYS_KIMI, usage=USAGE)(request)
        choice = {"index": 0, "delta": {"content": SAYS_KIMI}, "finish_reason": "stop"}
        return stream_reply([{"object": "chat.completion.chunk", "choices": [choice], "usage": USAGE}], done=False)

    report = await scripted(answering(plain=plain))

    assert verdicts(report) == {**SCRIPTED, "streamed_answer": "warn"}


async def test_an_output_limit_that_is_ignored_is_a_warning() -> None:
    def endless(request: ReceivedRequest) -> Reply:
        limited = "max_tokens" in request.body and request.body["max_tokens"] < 10
        long = {"prompt_tokens": 10, "completion_tokens": 500, "total_tokens": 510}
        return adaptive_reply(SAYS_KIMI, usage=long)(request) if limited else answering()(request)

    assert verdicts(await scripted(endless)) == {**SCRIPTED, "output_limit": "warn"}


async def test_reasoning_that_a_server_refuses_to_take_back_fails() -> None:
    good = answering(plain=adaptive_reply(SAYS_KIMI, reasoning="Hm.", usage=USAGE))

    def chat(request: ReceivedRequest) -> Reply:
        if any("reasoning_content" in message for message in request.body["messages"]):
            return error_reply(400, "messages[1] has a key nobody knows")
        return good(request)

    report = await scripted(chat, served=THINKING)

    assert finding(report, "reasoning_replay").verdict == "fail"
    assert "a key nobody knows" in finding(report, "reasoning_replay").seen


async def test_reasoning_that_reaches_the_model_is_seen_by_the_length_of_the_prompt() -> None:
    def counting(request: ReceivedRequest) -> Reply:
        usage = USAGE | {"prompt_tokens": len(request.raw)}
        return answering(plain=adaptive_reply(SAYS_KIMI, reasoning="Hm.", usage=usage))(request) if not any(
            message["role"] == "tool" for message in request.body["messages"]
        ) else adaptive_reply("18 degrees.", usage=usage)(request)

    report = await scripted(counting, served=THINKING)

    assert finding(report, "reasoning_replay").verdict == "ok"
    assert "the model sees it" in finding(report, "reasoning_replay").seen


async def test_thoughts_that_leak_only_from_streams_with_a_history_are_a_warning() -> None:
    # As vLLM 0.32 does it.
    good = answering(plain=adaptive_reply(SAYS_KIMI, reasoning="Hm.", reasoning_field="reasoning", usage=USAGE))

    def chat(request: ReceivedRequest) -> Reply:
        has_history = any(message["role"] == "tool" for message in request.body["messages"])
        if has_history and request.body.get("stream"):
            return adaptive_reply("<think>I have it now. 18 degrees.", usage=USAGE)(request)
        return good(request)

    report = await scripted(chat, served=THINKING)

    assert finding(report, "think_tags").verdict == "warn"
    assert "not in whole replies" in finding(report, "think_tags").seen


async def test_fields_that_are_refused_are_left_out_and_told() -> None:
    def chat(request: ReceivedRequest) -> Reply:
        if "temperature" in request.body:
            return error_reply(400, "invalid temperature: only 1 is allowed for this model")
        return answering()(request)

    report = await scripted(chat)

    assert finding(report, "plain_answer").verdict == "ok"
    assert finding(report, "request_fields").verdict == "warn"
    assert "temperature" in finding(report, "request_fields").seen


async def test_a_busy_server_is_asked_again() -> None:
    busy = [error_reply(429, "too many requests", type="rate_limit_reached_error", retry_after_s=0.01)]

    def chat(request: ReceivedRequest) -> Reply:
        return busy.pop() if busy else answering()(request)

    assert verdicts(await scripted(chat)) == SCRIPTED


async def test_an_account_without_money_ends_the_examination() -> None:
    broke = error_reply(429, "You exceeded your current quota", type="exceeded_current_quota_error")

    report = await report_of("moonshot", model="kimi-k3", replies=broke)

    assert finding(report, "api_key").verdict == "fail"
    assert "balance" in finding(report, "api_key").remedy
    assert finding(report, "plain_answer").verdict == "skip"


async def test_every_request_is_bounded_in_tokens() -> None:
    async with KimiServer(model=THINKING, thinking=True, context_length=8192) as server:
        await report_on(server.base_url)

        bodies = [request.body for request in server.requests if request.method == "POST"]
    assert len(bodies) < 40
    assert all(0 < body["max_tokens"] <= 2048 for body in bodies)
