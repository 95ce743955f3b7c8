"""A server's error answer → the error that says who has to act."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

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
from kimi_agent.json_types import is_array, is_object

if TYPE_CHECKING:
    from kimi_agent.json_types import JsonObject

E = TypeVar("E", bound=TransportStatusError)

# Not in the standard; Moonshot's client has seen it.
_SITE_OVERLOADED: Final = 529
_MAX_SHOWN: Final = 2000
_MAX_SEARCHED: Final = 2000
_MAX_NESTING: Final = 4
# An error inside a reply of status 200 has no status of its own; its type tells. The words are those of
# Moonshot, vLLM and llama.cpp.
_STATUS_OF_TYPE: Final = {
    "content_filter": HTTPStatus.BAD_REQUEST,
    "invalid_request_error": HTTPStatus.BAD_REQUEST,
    "BadRequestError": HTTPStatus.BAD_REQUEST,
    "exceed_context_size_error": HTTPStatus.BAD_REQUEST,
    "invalid_authentication_error": HTTPStatus.UNAUTHORIZED,
    "incorrect_api_key_error": HTTPStatus.UNAUTHORIZED,
    "authentication_error": HTTPStatus.UNAUTHORIZED,
    "permission_denied_error": HTTPStatus.FORBIDDEN,
    "permission_error": HTTPStatus.FORBIDDEN,
    "resource_not_found_error": HTTPStatus.NOT_FOUND,
    "NotFoundError": HTTPStatus.NOT_FOUND,
    "rate_limit_reached_error": HTTPStatus.TOO_MANY_REQUESTS,
    "engine_overloaded_error": HTTPStatus.TOO_MANY_REQUESTS,
    "exceeded_current_quota_error": HTTPStatus.TOO_MANY_REQUESTS,
    "server_unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "unavailable_error": HTTPStatus.SERVICE_UNAVAILABLE,
}
_ERROR_STATUSES: Final = range(400, 600)
_RETRYABLE: Final = frozenset({408, 409, 425, 429, 499, 500, 502, 503, 504, 520, 522, 524, 529})

# The words Moonshot's own client looks for, since gateways pass the sentence on and drop the type.
_QUOTA: Final = re.compile(
    r"exceeded your current (?:token )?quota|check your (?:account balance|plan and billing)"
    r"|insufficient balance|recharge|in arrears|usage limit for this billing cycle|is suspended"
    r"|insufficient_quota",
    re.IGNORECASE,
)
_DAILY: Final = re.compile(r"\bTPD\b|tokens per day", re.IGNORECASE)
_OVERLOADED: Final = re.compile(r"overloaded|server is busy|at capacity", re.IGNORECASE)
_TOOLS: Final = re.compile(
    r"tool choice requires --enable-auto-tool-choice|--tool-call-parser", re.IGNORECASE
)
_BYTES: Final = re.compile(r"total message size (\d+) exceeds limit (\d+)", re.IGNORECASE)
_WAIT: Final = re.compile(r"try again after (\d+(?:\.\d+)?) ?s", re.IGNORECASE)

# Each wording with the groups `limit` and, where it is told, `requested`.
_CONTEXT: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"exceeded model token limit: (?P<limit>\d+)(?: \(requested: (?P<requested>\d+)\))?",
        r"maximum context length is (?P<limit>\d+) tokens.*?total of at least (?P<requested>\d+)",
        r"maximum context length is (?P<limit>\d+) tokens.*?requested (?P<requested>\d+) tokens",
        r"maximum context length is (?P<limit>\d+) tokens.*?at least (?P<requested>\d+) input tokens",
        r"maximum context length is (?P<limit>\d+) tokens.*?requested about (?P<requested>\d+)",
        r"maximum context length of (?P<limit>\d+) tokens.*?total of (?P<requested>\d+)",
        r"is too large: (?P<requested>\d+)\..*?context length is (?P<limit>\d+)",
        r"\(length (?P<requested>\d+)\) is longer than the maximum model length of (?P<limit>\d+)",
        r"maximum context length is (?P<limit>\d+) tokens.*?resulted in (?P<requested>\d+) tokens",
        r"passed (?P<requested>\d+) input tokens.*?context length is only (?P<limit>\d+)",
        r"input \((?P<requested>\d+) tokens\) is longer than the model's context length \((?P<limit>\d+)",
        r"request \((?P<requested>\d+) tokens\) exceeds the available context size \((?P<limit>\d+)",
        r"requested token count exceeds the model's maximum context length of (?P<limit>\d+)",
        r"maximum context length is (?P<limit>\d+)",
        r"longer than the maximum model length of (?P<limit>\d+)",
        r"context length is (?:only )?(?P<limit>\d+)",
        r"input token length too long",
        r"exceeds the available context size",
        r"context[ _]length[ _]exceeded",
        r"prompt is too long",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusAnswer:
    """What a server answered instead of a reply."""

    status_code: int
    body: Any
    """Decoded JSON, or the text if it is none."""
    retry_after_s: float | None = None
    request_id: str | None = None
    url: str = ""


@dataclass(frozen=True, slots=True)
class _Told:
    message: str
    type: str
    code: str
    fields: JsonObject


def status_error(answer: StatusAnswer) -> TransportStatusError:
    """The error for `answer`, told apart by status, type and wording."""
    told = _innermost(answer.body)
    for make in (_quota, _busy, _account, _request):
        if error := make(answer, told):
            return error
    return _new(TransportStatusError, answer, told, "the server failed; its words are above")


def error_in_reply(chunk: JsonObject) -> StatusAnswer | None:
    """The error object that a reply of status 200 carries, or `None`."""
    error: Any = chunk.get("error")
    if chunk.get("object") == "error" and not error:
        error = chunk
    if not error:
        return None
    told = _innermost(chunk)
    status = int(told.code) if told.code.isascii() and told.code.isdigit() else 0
    if status not in _ERROR_STATUSES:
        status = _STATUS_OF_TYPE.get(told.type, HTTPStatus.INTERNAL_SERVER_ERROR)
    return StatusAnswer(status_code=status, body=chunk)


def _quota(answer: StatusAnswer, told: _Told) -> TransportStatusError | None:
    words = f"{told.type} {told.code} {told.message}"
    if answer.status_code == HTTPStatus.PAYMENT_REQUIRED or (
        answer.status_code in (400, 403, 429)
        and (told.type == "exceeded_current_quota_error" or _QUOTA.search(words) or _DAILY.search(words))
    ):
        return _new(
            QuotaExhaustedError,
            answer,
            told,
            "the account has no quota left: check its balance and plan; asking again will not help",
        )
    return None


def _busy(answer: StatusAnswer, told: _Told) -> TransportStatusError | None:
    overloaded = told.type == "engine_overloaded_error" or _OVERLOADED.search(told.message)
    if answer.status_code == _SITE_OVERLOADED or (overloaded and answer.status_code in (429, 500, 502, 503)):
        return _new(EngineOverloadedError, answer, told, "the server has too much to do: try again later")
    if answer.status_code == HTTPStatus.TOO_MANY_REQUESTS:
        return _new(RateLimitedError, answer, told, "too many requests: send fewer at once, or wait")
    if answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        is_loading = told.type == "unavailable_error" or "loading" in told.message.lower()
        kind = ServerLoadingError if is_loading else TransportStatusError
        return _new(kind, answer, told, "the server is not ready; it may still be loading the model")
    return None


def _account(answer: StatusAnswer, told: _Told) -> TransportStatusError | None:
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        return _new(
            AuthenticationError,
            answer,
            told,
            "check api_key or KIMI_API_KEY; keys of api.moonshot.ai do not work on api.moonshot.cn, nor the "
            "other way round",
        )
    if answer.status_code == HTTPStatus.FORBIDDEN:
        return _new(AccessDeniedError, answer, told, "the key is valid but may not do this")
    if answer.status_code == HTTPStatus.NOT_FOUND and (
        "model" in told.message.lower() or told.type == "resource_not_found_error"
    ):
        return _new(ModelNotFoundError, answer, told, "check the model name")
    if answer.status_code == HTTPStatus.NOT_FOUND:
        return _new(
            TransportStatusError, answer, told, "no such path: base_url usually ends with /v1; check it"
        )
    return None


def _request(answer: StatusAnswer, told: _Told) -> TransportStatusError | None:
    if answer.status_code not in (400, 413, 422):
        return (
            _context_too_long(answer, told)
            if answer.status_code == HTTPStatus.INTERNAL_SERVER_ERROR
            else None
        )
    if told.type == "content_filter" or told.code == "content_filter":
        return _new(
            ContentFilteredError, answer, told, "the content was refused; sending it again will not help"
        )
    if _TOOLS.search(told.message):
        return _new(
            ToolsUnsupportedError,
            answer,
            told,
            "start the server with tool calls on, e.g. for vLLM: --enable-auto-tool-choice "
            "--tool-call-parser kimi_k2",
        )
    size = _BYTES.search(told.message)
    if size or answer.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        error = _new(RequestTooLargeError, answer, told, "send less: shorten the history or the tool results")
        error.limit_bytes = int(size[2]) if size else None
        return error
    return _context_too_long(answer, told) or _new(
        InvalidRequestError, answer, told, "the server refused the request as malformed"
    )


def _context_too_long(answer: StatusAnswer, told: _Told) -> TransportStatusError | None:
    for pattern in _CONTEXT:
        match = pattern.search(told.message[:_MAX_SEARCHED])
        if match is None:
            continue
        groups = match.groupdict()
        limit = groups.get("limit") or told.fields.get("n_ctx")
        requested = groups.get("requested") or told.fields.get("n_prompt_tokens")
        numbers = f"limit {limit or 'not told'} tokens, requested {requested or 'not told'}"
        error = _new(ContextTooLongError, answer, told, f"{numbers}: shorten the history or the output limit")
        error.limit_tokens = int(limit) if limit else None
        error.requested_tokens = int(requested) if requested else None
        return error
    return None


def _new(kind: type[E], answer: StatusAnswer, told: _Told, advice: str) -> E:
    where = f"{answer.url} answered {answer.status_code}" if answer.url else f"status {answer.status_code}"
    label = f" ({told.type})" if told.type else ""
    said = told.message[:_MAX_SHOWN] or "nothing"
    error = kind(
        f"{where}{label}: {said} - {advice}",
        status_code=answer.status_code,
        error_type=told.type or None,
        server_message=told.message,
        retryable=_is_retryable(kind, answer.status_code),
        retry_after_s=_told_wait_s(told) if answer.retry_after_s is None else answer.retry_after_s,
        request_id=answer.request_id,
    )
    if answer.request_id:
        error.args = (f"{error.args[0]} [request {answer.request_id}]",)
    return error


def _told_wait_s(told: _Told) -> float | None:
    wait = _WAIT.search(told.message[:_MAX_SEARCHED])
    return float(wait[1]) if wait else None


def _is_retryable(kind: type[TransportStatusError], status_code: int) -> bool:
    if issubclass(kind, QuotaExhaustedError | InvalidRequestError | ModelNotFoundError):
        return False
    return issubclass(kind, EngineOverloadedError) or status_code in _RETRYABLE


def _innermost(body: Any) -> _Told:
    """The error a body tells: wrapped or flat, and as deep as gateways nest it."""
    fields: JsonObject = {}
    found: Any = body
    for _ in range(_MAX_NESTING):
        if is_array(found) and found:
            found = found[0]
        if not is_object(found):
            break
        fields = found
        inner: Any = fields.get("error") or _nested_json(fields.get("message"))
        if not inner:
            break
        found = inner
    message = fields.get("message") or fields.get("detail") or (found if isinstance(found, str) else "")
    return _Told(_as_text(message), _as_text(fields.get("type")), _as_text(fields.get("code")), fields)


def _nested_json(message: Any) -> Any:
    """A gateway's message that is itself the upstream's JSON answer."""
    if not (isinstance(message, str) and message.lstrip().startswith("{")):
        return None
    try:
        return json.loads(message)
    except (ValueError, RecursionError):
        return None


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
