"""A server's error answer → the error that says who has to act."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kimi_agent._core.status_errors import StatusAnswer, error_in_reply, status_error
from kimi_agent.errors import (
    AccessDeniedError,
    AuthenticationError,
    ContentFilteredError,
    ContextTooLongError,
    EngineOverloadedError,
    InvalidRequestError,
    ModelNotFoundError,
    QuotaExhaustedError,
    RateLimitedError,
    RequestTooLargeError,
    ServerLoadingError,
    ToolsUnsupportedError,
    TransportStatusError,
)


def told(status: int, message: str = "", word: str | None = None, **fields: Any) -> TransportStatusError:
    body = {"error": {"message": message, "type": word, **fields}}
    return status_error(StatusAnswer(status_code=status, body=body))


@pytest.mark.parametrize(
    ("status", "word", "message", "kind", "retryable"),
    [
        (400, None, "Invalid request Error", InvalidRequestError, False),
        (400, "content_filter", "considered high risk", ContentFilteredError, False),
        (400, None, "auto tool choice requires --enable-auto-tool-choice", ToolsUnsupportedError, False),
        (400, None, "Input token length too long", ContextTooLongError, False),
        (400, None, "total message size 5 exceeds limit 4", RequestTooLargeError, False),
        (401, "invalid_authentication_error", "Invalid Authentication", AuthenticationError, False),
        (402, None, "", QuotaExhaustedError, False),
        (403, None, "no access to this model", AccessDeniedError, False),
        (403, None, "You've reached your usage limit for this billing cycle", QuotaExhaustedError, False),
        (
            404,
            "resource_not_found_error",
            "Not found the model k9 or Permission denied",
            ModelNotFoundError,
            False,
        ),
        (404, None, "The model `k9` does not exist", ModelNotFoundError, False),
        (404, None, "Not Found", TransportStatusError, False),
        (408, None, "", TransportStatusError, True),
        (409, None, "", TransportStatusError, True),
        (413, None, "", RequestTooLargeError, False),
        (418, None, "", TransportStatusError, False),
        (422, None, "field required", InvalidRequestError, False),
        (429, "engine_overloaded_error", "try again later", EngineOverloadedError, True),
        (429, None, "The engine is currently overloaded", EngineOverloadedError, True),
        (429, "rate_limit_reached_error", "max organization concurrency: 1", RateLimitedError, True),
        (429, "exceeded_current_quota_error", "", QuotaExhaustedError, False),
        (429, None, "Your account is suspended due to insufficient balance", QuotaExhaustedError, False),
        (429, None, "reached organization TPD rate limit", QuotaExhaustedError, False),
        (429, None, "", RateLimitedError, True),
        (500, None, "boom", TransportStatusError, True),
        (
            500,
            None,
            "input (9 tokens) is longer than the model's context length (8",
            ContextTooLongError,
            False,
        ),
        (500, None, "the server is busy", EngineOverloadedError, True),
        (503, None, "Loading model", ServerLoadingError, True),
        (503, None, "at capacity", EngineOverloadedError, True),
        (529, None, "", EngineOverloadedError, True),
        (501, None, "", TransportStatusError, False),
    ],
)
def test_each_answer_is_the_error_of_who_has_to_act(
    status: int, word: str | None, message: str, kind: type[TransportStatusError], retryable: bool
) -> None:
    error = told(status, message, word)

    assert error.__class__ is kind
    assert error.retryable is retryable
    assert error.status_code == status
    assert error.error_type == word
    assert error.server_message == message


def test_the_message_says_where_what_was_seen_and_what_to_do() -> None:
    error = status_error(
        StatusAnswer(
            status_code=401,
            body={"error": {"message": "Invalid Authentication", "type": "invalid_authentication_error"}},
            request_id="trace-7",
            retry_after_s=3.0,
            url="https://api.moonshot.ai/v1/chat/completions",
        )
    )

    for word in (
        "https://api.moonshot.ai/v1/chat/completions answered 401",
        "invalid_authentication_error",
        "Invalid Authentication",
        "KIMI_API_KEY",
        "trace-7",
    ):
        assert word in str(error)
    assert (error.request_id, error.retry_after_s) == ("trace-7", 3.0)


def test_without_a_url_and_a_word_the_message_still_says_the_status() -> None:
    assert "status 500: nothing" in str(told(500))


def test_a_long_message_is_kept_whole_and_shown_cut() -> None:
    error = told(500, "x" * 5000)

    assert len(error.server_message) == 5000
    assert len(str(error)) < 2500


VLLM_CONTEXT = (
    "This model's maximum context length is 8192 tokens. However, you requested 100 output tokens and "
    "your prompt contains at least 8093 input tokens"
)


@pytest.mark.parametrize(
    ("message", "limit", "requested"),
    [
        ("Your request exceeded model token limit: 262144 (requested: 300000)", 262144, 300000),
        ("Your request exceeded model token limit: 262144", 262144, None),
        (f"{VLLM_CONTEXT}, for a total of at least 8193 tokens.", 8192, 8193),
        (VLLM_CONTEXT, 8192, 8093),
        ("This model's maximum context length is 100 tokens. However, you requested 120 tokens", 100, 120),
        ("You passed 101 input tokens. However, the model's context length is only 100 tokens.", 100, 101),
        ("The input (9 tokens) is longer than the model's context length (8 tokens).", 8, 9),
        ("the request (9 tokens) exceeds the available context size (8 tokens)", 8, 9),
        ("Requested token count exceeds the model's maximum context length of 8 tokens.", 8, None),
        ("The prompt is longer than the maximum model length of 8", 8, None),
        ("Input token length too long", None, None),
        ("context_length_exceeded", None, None),
        ("prompt is too long", None, None),
    ],
)
def test_both_numbers_of_a_context_that_is_too_long_are_read(
    message: str, limit: int | None, requested: int | None
) -> None:
    error = told(400, message)

    assert isinstance(error, ContextTooLongError)
    assert (error.limit_tokens, error.requested_tokens) == (limit, requested)
    assert f"limit {limit or 'not told'}" in str(error)
    assert "shorten" in str(error)


def test_llama_cpp_tells_the_numbers_beside_the_message() -> None:
    error = told(400, "request exceeds the available context size", n_ctx=8, n_prompt_tokens=9)

    assert isinstance(error, ContextTooLongError)
    assert (error.limit_tokens, error.requested_tokens) == (8, 9)


def test_the_limit_in_bytes_is_read() -> None:
    error = told(400, "total message size 5 exceeds limit 4")
    unknown = told(413)

    assert isinstance(error, RequestTooLargeError)
    assert error.limit_bytes == 4
    assert isinstance(unknown, RequestTooLargeError)
    assert unknown.limit_bytes is None


def test_a_wait_in_the_message_is_kept() -> None:
    assert told(429, "please try again after 2.5 seconds").retry_after_s == 2.5
    assert told(429).retry_after_s is None


def test_the_missing_flags_are_named() -> None:
    assert "--tool-call-parser kimi_k2" in str(told(400, "requires --tool-call-parser to be set"))


# --- what bodies look like ---------------------------------------------------------------------------

UPSTREAM = json.dumps({"error": {"message": "insufficient balance", "type": "exceeded_current_quota_error"}})


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "insufficient balance"}},
        {"message": "insufficient balance", "object": "error"},
        {"error": "insufficient balance"},
        {"detail": "insufficient balance"},
        [{"error": {"message": "insufficient balance"}}],
        {"error": {"error": {"message": "insufficient balance"}}},
        {"error": {"message": UPSTREAM}},
        {"error": {"message": f" {UPSTREAM}"}},
        {"error": {"message": {"text": "insufficient balance"}}},
        {"error": {"message": "no", "code": "insufficient_quota"}},
        "insufficient balance",
    ],
)
def test_the_reason_is_found_however_gateways_wrap_it(body: Any) -> None:
    error = status_error(StatusAnswer(status_code=429, body=body))

    assert isinstance(error, QuotaExhaustedError)
    assert error.server_message


@pytest.mark.parametrize(
    "body",
    [None, "", [], {}, 7, {"error": None}, {"error": []}, {"error": {"message": "{not json"}}, [[["x"]]]],
)
def test_a_body_that_says_nothing_is_no_obstacle(body: Any) -> None:
    assert isinstance(status_error(StatusAnswer(status_code=429, body=body)), RateLimitedError)


def test_deep_bodies_are_read_to_a_bounded_depth() -> None:
    body: Any = {"message": "insufficient balance"}
    for _ in range(50):
        body = {"error": body}
    deep = '{"message":' * 100_000

    assert isinstance(status_error(StatusAnswer(status_code=429, body=body)), RateLimitedError)
    assert told(400, deep).server_message == deep


# --- errors inside a reply of status 200 -------------------------------------------------------------


@pytest.mark.parametrize(
    "chunk",
    [
        {},
        {"choices": []},
        {"error": None, "choices": []},
        {"error": {}},
        {"object": "chat.completion.chunk"},
    ],
)
def test_an_ordinary_chunk_carries_no_error(chunk: dict[str, Any]) -> None:
    assert error_in_reply(chunk) is None


@pytest.mark.parametrize(
    ("chunk", "status"),
    [
        ({"error": {"message": "busy", "code": 429}}, 429),
        ({"error": {"message": "busy", "code": "503"}}, 503),
        ({"error": {"message": "busy", "code": "server_error"}}, 500),
        ({"error": {"message": "busy", "code": 200}}, 500),
        ({"error": {"message": "busy"}}, 500),
        ({"error": "busy"}, 500),
        ({"object": "error", "message": "busy", "code": 400}, 400),
    ],
)
def test_an_error_inside_a_reply_has_a_status_of_its_own(chunk: dict[str, Any], status: int) -> None:
    answer = error_in_reply(chunk)

    assert answer is not None
    assert answer.status_code == status
    assert status_error(answer).server_message == "busy"
