"""What `examine` makes of replies that are not as they should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent.testing import (
    KimiServer,
    ReceivedRequest,
    Reply,
    adaptive_reply,
    error_reply,
    stream_reply,
    tool_call,
)
from tests.e2e.test_doctor import (
    CHAT,
    GOOD,
    K2,
    SAYS_KIMI,
    THINKING,
    USAGE,
    VLLM_FLAGS,
    answering,
    call,
    finding,
    report_of,
    report_on,
    verdicts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimi_agent.doctor import Report

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here, the command's: what is found is decided without waiting."""
    return "asyncio"


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
        (
            "usage",
            answering(plain=adaptive_reply(SAYS_KIMI)),
            "warn",
            "no usage in whole replies and streams",
        ),
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
        (
            "call_ids",
            answering(one=adaptive_reply(None, tool_calls=[call("Paris", id="")])),
            "warn",
            "without id",
        ),
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
        (
            "think_tags",
            answering(plain=adaptive_reply("Hm</think>I am Kimi.")),
            "fail",
            "</think> in content",
        ),
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
        return stream_reply(
            [{"object": "chat.completion.chunk", "choices": [choice], "usage": USAGE}], done=False
        )

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
        text = adaptive_reply(SAYS_KIMI, reasoning="Hm.", usage=usage)
        has_history = any(message["role"] == "tool" for message in request.body["messages"])
        return text(request) if has_history else answering(plain=text)(request)

    report = await scripted(counting, served=THINKING)

    assert finding(report, "reasoning_replay").verdict == "ok"
    assert "the model sees it" in finding(report, "reasoning_replay").seen


async def test_thoughts_that_leak_only_from_streams_with_a_history_are_a_warning() -> None:
    # As vLLM 0.32 does it.
    good = answering(
        plain=adaptive_reply(SAYS_KIMI, reasoning="Hm.", reasoning_field="reasoning", usage=USAGE)
    )

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
