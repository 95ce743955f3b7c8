"""Refusals as the servers word them, and what a user must be able to tell from each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kimi_agent import (
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
from kimi_agent.testing import (
    Reply,
    json_reply,
)


@dataclass
class Case:
    """One refusal and what a user must be able to tell from it."""

    reply: Reply
    kind: type[TransportStatusError]
    words: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    retryable: bool = False


def moonshot(status: int, kind: str, message: str) -> Reply:
    return json_reply(
        {"error": {"message": message, "type": kind}}, status=status, headers={"x-request-id": "req-42"}
    )


def vllm(status: int, kind: str, message: str, *, flat: bool = False) -> Reply:
    fields = {"message": message, "type": kind, "param": None, "code": status}
    body = {"object": "error", **fields} if flat else {"error": fields}
    return json_reply(body, status=status, headers={"x-request-id": "req-42"})


CASES: dict[str, Case] = {
    "wrong key": Case(
        moonshot(401, "invalid_authentication_error", "Invalid Authentication"),
        AuthenticationError,
        ("KIMI_API_KEY", "api.moonshot.cn"),
    ),
    "no permission": Case(
        moonshot(403, "permission_denied_error", "The API you are accessing is not open"),
        AccessDeniedError,
        ("may not do this",),
    ),
    "unknown model": Case(
        moonshot(404, "resource_not_found_error", "Not found the model kimi-k2 or Permission denied"),
        ModelNotFoundError,
        ("kimi-simulated",),
        {"available": ("kimi-simulated",)},
    ),
    "unknown model, vllm": Case(
        vllm(404, "NotFoundError", "The model `kimi-k2` does not exist."),
        ModelNotFoundError,
        ("kimi-simulated",),
    ),
    "unknown model, old vllm": Case(
        vllm(404, "NotFoundError", "The model `kimi-k2` does not exist.", flat=True), ModelNotFoundError
    ),
    "no such path": Case(
        json_reply({"detail": "Not Found"}, status=404, headers={"x-request-id": "req-42"}),
        TransportStatusError,
        ("/v1", "base_url"),
    ),
    "rate": Case(
        moonshot(
            429,
            "rate_limit_reached_error",
            "Your account org<key> request reached organization max RPM: 3, please try again after 2 seconds",
        ),
        RateLimitedError,
        ("too many requests",),
        {"retry_after_s": 2.0},
        retryable=True,
    ),
    "overloaded": Case(
        moonshot(
            429, "engine_overloaded_error", "The engine is currently overloaded, please try again later"
        ),
        EngineOverloadedError,
        ("try again later",),
        retryable=True,
    ),
    "no money": Case(
        moonshot(429, "exceeded_current_quota_error", "Your account is suspended, please check your plan"),
        QuotaExhaustedError,
        ("balance",),
    ),
    "content": Case(
        moonshot(400, "content_filter", "The request was rejected because it was considered high risk"),
        ContentFilteredError,
        ("will not help",),
    ),
    "too long, moonshot": Case(
        moonshot(
            400,
            "invalid_request_error",
            "Invalid request: Your request exceeded model token limit: 262144 (requested: 274613)",
        ),
        ContextTooLongError,
        ("262144", "274613", "shorten"),
        {"limit_tokens": 262144, "requested_tokens": 274613},
    ),
    "too long, vllm": Case(
        vllm(
            400,
            "BadRequestError",
            "This model's maximum context length is 4096 tokens. However, you requested 512 output tokens "
            "and your prompt contains at least 3585 input tokens, for a total of at least 4097 tokens. "
            "Please reduce the length of the input prompt or the number of requested output tokens. "
            "(parameter=input_tokens, value=3585)",
        ),
        ContextTooLongError,
        fields={"limit_tokens": 4096, "requested_tokens": 4097},
    ),
    "too long, another vllm": Case(
        vllm(
            400,
            "BadRequestError",
            "You passed 4097 input tokens and requested 0 output tokens. However, the model's context length "
            "is only 4096 tokens, resulting in a maximum input length of 4096 tokens.",
        ),
        ContextTooLongError,
        fields={"limit_tokens": 4096, "requested_tokens": 4097},
    ),
    "too long, sglang": Case(
        vllm(
            400,
            "BadRequestError",
            "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            flat=True,
        ),
        ContextTooLongError,
        fields={"limit_tokens": 4096, "requested_tokens": 5000},
    ),
    "too long, llama.cpp": Case(
        json_reply(
            {
                "error": {
                    "code": 400,
                    "message": "the request exceeds the available context size, try increasing it",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 900,
                    "n_ctx": 512,
                }
            },
            status=400,
            headers={"x-request-id": "req-42"},
        ),
        ContextTooLongError,
        fields={"limit_tokens": 512, "requested_tokens": 900},
    ),
    "no parser": Case(
        vllm(
            400,
            "BadRequestError",
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        ),
        ToolsUnsupportedError,
        ("--tool-call-parser kimi_k2",),
    ),
    "too many bytes": Case(
        moonshot(400, "invalid_request_error", "total message size 12000000 exceeds limit 10485760"),
        RequestTooLargeError,
        ("shorten",),
        {"limit_bytes": 10485760},
    ),
    "413 page": Case(
        Reply(status=413, headers={"x-request-id": "req-42"}, body="<html>413</html>"),
        RequestTooLargeError,
        fields={"limit_bytes": None},
    ),
    "bad request": Case(
        moonshot(400, "invalid_request_error", "invalid temperature: only 1 is allowed for this model"),
        InvalidRequestError,
        ("invalid temperature: only 1 is allowed",),
    ),
    "422 of a gateway": Case(
        json_reply(
            {"detail": [{"loc": ["body", "messages"], "msg": "field required"}]},
            status=422,
            headers={"x-request-id": "req-42"},
        ),
        InvalidRequestError,
        ("field required",),
    ),
    "nested by a gateway": Case(
        json_reply(
            {
                "error": {
                    "message": '{"error":{"message":"Invalid Authentication","type":"x"}}',
                    "type": "upstream",
                }
            },
            status=401,
            headers={"x-request-id": "req-42"},
        ),
        AuthenticationError,
        ("Invalid Authentication",),
    ),
    "broken": Case(
        vllm(500, "InternalServerError", "list index out of range"),
        TransportStatusError,
        ("list index out of range",),
        retryable=True,
    ),
    "loading": Case(
        vllm(503, "unavailable_error", "Loading model"),
        ServerLoadingError,
        ("loading",),
        retryable=True,
    ),
    "odd status": Case(
        Reply(status=418, headers={"x-request-id": "req-42"}, body="teapot"),
        TransportStatusError,
        ("teapot",),
    ),
    "empty body": Case(
        Reply(status=500, headers={"x-request-id": "req-42"}), TransportStatusError, retryable=True
    ),
}
