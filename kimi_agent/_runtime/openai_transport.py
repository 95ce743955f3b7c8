"""`Transport` on the openai client; the only module that imports openai."""

from __future__ import annotations

import inspect
import json
import math
from contextlib import aclosing, suppress
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any, Final

import anyio
import jiter
import openai

from kimi_agent._core.reply_reader import check_chunk
from kimi_agent._core.sse import SseDecoder
from kimi_agent._core.status_errors import StatusAnswer, error_in_reply, status_error
from kimi_agent.errors import (
    KimiAgentError,
    ProtocolError,
    TransportConnectionError,
    TransportError,
    TransportTimeoutError,
)
from kimi_agent.json_types import is_array, is_object
from kimi_agent.transport import END_OF_REPLY

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    from kimi_agent.json_types import JsonObject
    from kimi_agent.transport import Request

# The public switch behind `with_streaming_response`: the response comes back unread.
_UNREAD: Final = {"X-Stainless-Raw-Response": "stream"}
_HTTP_LIBRARIES: Final = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "h11", "h2"})
_TRACE_HEADERS: Final = ("x-trace-id", "x-request-id", "msh-request-id", "request-id")
_DRAIN_S: Final = 0.25
_CLOSING_S: Final = 1.0
_DONE: Final = b"[DONE]"


class OpenAITransport:
    """Sends requests through an `AsyncOpenAI` client.

    The client's authentication, headers, proxies and connection pool are used; its retries are not, and
    neither is its decoding.
    """

    def __init__(self, client: openai.AsyncOpenAI, *, owns_client: bool = False) -> None:
        self._client = client
        self._owns_client = owns_client
        # openai 2.0 takes the bytes of a body as `body`, later releases as `content`.
        knows_content = "content" in inspect.signature(client.post).parameters
        self._body_argument = "content" if knows_content else "body"

    @classmethod
    def connect(cls, *, base_url: str, api_key: str) -> OpenAITransport:
        """A transport with a client of its own."""
        client = openai.AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0)
        return cls(client, owns_client=True)

    @property
    def base_url(self) -> str:
        """Where requests go."""
        return str(self._client.base_url)

    async def stream(self, request: Request) -> AsyncGenerator[JsonObject]:
        """See `Transport.stream`."""
        url = self.base_url.rstrip("/") + request.path
        try:
            response = await self._send(request)
        except Exception as error:
            raise _translated(error, url) from error
        async with aclosing(_chunks(response, request, url)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _send(self, request: Request) -> Any:
        timeout = openai.Timeout(request.silence_timeout_s, connect=request.connect_timeout_s)
        options: Any = {
            "headers": {"Content-Type": "application/json", **request.headers, **_UNREAD},
            "timeout": timeout,
            "max_retries": 0,
        }
        post: Any = self._client.post
        return await post(
            request.path, cast_to=object, options=options, **{self._body_argument: request.body}
        )

    async def model_ids(self) -> Sequence[str]:
        """See `Transport.model_ids`."""
        url = self.base_url.rstrip("/") + "/models"
        try:
            answer: Any = await self._client.get("/models", cast_to=object, options={"max_retries": 0})
        except Exception as error:
            raise _translated(error, url) from error
        entries: Any = answer.get("data") if is_object(answer) else None
        if not is_array(entries):
            raise ProtocolError(f"{url} did not answer with a list of models", raw=str(answer)[:500])
        return [entry["id"] for entry in entries if is_object(entry) and isinstance(entry.get("id"), str)]

    async def aclose(self) -> None:
        """Close the client, if it is the transport's own."""
        if self._owns_client:
            await self._client.close()


async def _chunks(response: Any, request: Request, url: str) -> AsyncGenerator[JsonObject]:
    """The objects of a response, streamed or whole, whichever the server chose."""
    kind = response.headers.get("content-type", "")
    pieces = _limited(response, request.max_reply_bytes, url)
    async with aclosing(pieces):
        if "json" in kind or (not request.stream and "event-stream" not in kind):
            whole = b"".join([piece async for piece in pieces])
            yield _decoded(whole, url)
            yield END_OF_REPLY
            return
        decoder = SseDecoder(max_event_bytes=request.max_reply_bytes)
        async for piece in pieces:
            for data in decoder.feed(piece):
                if data == _DONE:
                    await _drain(pieces)
                    yield END_OF_REPLY
                    return
                yield _decoded(data, url)
        for data in decoder.close():
            yield END_OF_REPLY if data == _DONE else _decoded(data, url)


async def _limited(response: Any, limit: int, url: str) -> AsyncGenerator[bytes]:
    """The body of a response, as long as it keeps within `limit` bytes; closes the response."""
    received = 0
    pieces = response.iter_bytes()
    try:
        while (piece := await _next_piece(pieces, url)) is not None:
            received += len(piece)
            if received > limit:
                raise ProtocolError(
                    f"{url} sent more than {limit} bytes in one reply; raise RunLimits.max_reply_bytes if "
                    "the server is to be trusted with that"
                )
            yield piece
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSING_S):
            await response.close()
            # The client and its HTTP library stack generators; one more read unwinds them all, where
            # closing the outermost would leave the others to the garbage collector.
            with suppress(Exception):
                await anext(pieces, None)


async def _next_piece(pieces: AsyncIterator[bytes], url: str) -> bytes | None:
    try:
        return await anext(pieces, None)
    except Exception as error:
        raise _translated(error, url) from error


async def _drain(pieces: AsyncGenerator[bytes]) -> None:
    """Read to the end of the body, which is due now, so that the connection can serve again."""
    with anyio.move_on_after(_DRAIN_S):
        async for _ in pieces:
            pass


def _decoded(data: bytes, url: str) -> JsonObject:
    try:
        value: object = jiter.from_json(data)
    except ValueError:
        value = _decoded_leniently(data, url)
    chunk = check_chunk(value, data)
    if "error" in chunk or chunk.get("object") == "error":
        answer = error_in_reply(chunk)
        if answer is not None:
            raise status_error(answer)
    return chunk


def _decoded_leniently(data: bytes, url: str) -> object:
    """Broken UTF-8 and lone surrogates cost a character, not the reply."""
    try:
        return json.loads(data.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        shown = data[:500].decode("utf-8", "replace")
        raise ProtocolError(
            f"{url} sent something that is not JSON: {shown!r}; base_url should be the root of an "
            "OpenAI-compatible API, e.g. http://127.0.0.1:8000/v1",
            raw=shown,
        ) from None


def _translated(error: Exception, url: str) -> KimiAgentError:
    """The error to raise for anything that the client or its HTTP library raised."""
    name = type(error).__name__
    library = type(error).__module__.partition(".")[0]
    is_late = isinstance(error, openai.APITimeoutError) or (library in _HTTP_LIBRARIES and "Timeout" in name)
    match error:
        case KimiAgentError():
            return error
        case openai.APIStatusError():
            return status_error(_answer_of(error, url))
        case openai.APIConnectionError() if not is_late or "Connect" in type(error.__cause__).__name__:
            return _unreachable(error, url)
        case _ if is_late:
            return TransportTimeoutError(
                f"{url} sent nothing for too long; raise RunLimits.request_timeout_s if the model "
                "needs more time"
            )
        case _ if library in _HTTP_LIBRARIES or isinstance(error, OSError | anyio.BrokenResourceError):
            return TransportConnectionError(
                f"the connection to {url} was lost before the reply was whole ({name})"
            )
        case _:
            return TransportError(f"asking {url} failed: {name}: {error}")


def _answer_of(error: openai.APIStatusError, url: str) -> StatusAnswer:
    headers = error.response.headers
    return StatusAnswer(
        status_code=error.status_code,
        body=error.body,
        retry_after_s=_retry_after_s(headers),
        request_id=_request_id(headers),
        url=url,
    )


def _unreachable(error: openai.APIConnectionError, url: str) -> TransportConnectionError:
    cause = error.__cause__
    reason = f" ({type(cause).__name__}: {cause})" if cause is not None else ""
    return TransportConnectionError(
        f"no server answered at {url}{reason}. Start one, e.g. `kimi-agent simulate --port 8000` to try "
        "things out or `vllm serve MODEL --enable-auto-tool-choice --tool-call-parser kimi_k2`, or set "
        "base_url or KIMI_BASE_URL to one that runs; RunLimits.connect_timeout_s is the time it has to answer"
    )


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    for name, scale in (("retry-after-ms", 1000), ("retry-after", 1)):
        value = headers.get(name)
        if value is None:
            continue
        with suppress(ValueError):
            seconds = float(value) / scale
            return max(0.0, seconds) if math.isfinite(seconds) else None
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time())
        except (TypeError, ValueError):
            continue
    return None


def _request_id(headers: Mapping[str, str]) -> str | None:
    return next((headers[name] for name in _TRACE_HEADERS if headers.get(name)), None)
