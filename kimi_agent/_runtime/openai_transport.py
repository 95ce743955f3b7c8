"""`Transport` on the openai client; the only module that imports openai."""

from __future__ import annotations

import inspect
import json
import math
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import anyio
import jiter
import openai

from kimi_agent._core.redaction import hide, one_line, without_secrets
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
    from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping, Sequence

    from kimi_agent.json_types import JsonObject
    from kimi_agent.transport import Request

# The public switch behind `with_streaming_response`: the response comes back unread.
_UNREAD: Final = {"X-Stainless-Raw-Response": "stream"}
_HTTP_LIBRARIES: Final = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "h11", "h2"})
_TRACE_HEADERS: Final = ("x-trace-id", "x-request-id", "msh-request-id", "request-id")
_SHORTEST_SECRET: Final = 6
_START_SHOWN: Final = 500
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
        """Where requests go, without the user and password a URL may hold."""
        url = urlsplit(str(self._client.base_url))
        return urlunsplit(url._replace(netloc=url.netloc.rpartition("@")[2])).rstrip("/")

    async def stream(self, request: Request) -> AsyncGenerator[JsonObject]:
        """See `Transport.stream`."""
        place = self._place(request.path, request.headers)
        with place.translating():
            response = await self._send(request)
        async with aclosing(_chunks(response, request, place)) as chunks:
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

    async def models(self) -> Sequence[JsonObject]:
        """See `Transport.models`."""
        place = self._place("/models", {})
        with place.translating():
            answer: Any = await self._client.get("/models", cast_to=object, options={"max_retries": 0})
        entries: Any = answer.get("data") if is_object(answer) else None
        if not is_array(entries):
            raise ProtocolError(f"{place.url} did not answer with a list of models", raw=str(answer)[:500])
        return [entry for entry in entries if is_object(entry) and isinstance(entry.get("id"), str)]

    async def aclose(self) -> None:
        """Close the client, if it is the transport's own."""
        if self._owns_client:
            await self._client.close()

    def _place(self, path: str, headers: Mapping[str, str]) -> Place:
        url = urlsplit(str(self._client.base_url))
        secrets = (self._client.api_key, url.password or "", *headers.values())
        return Place(
            url=self.base_url + path, secrets=tuple(one for one in secrets if len(one) >= _SHORTEST_SECRET)
        )


async def _chunks(response: Any, request: Request, place: Place) -> AsyncGenerator[JsonObject]:
    """The objects of a response, streamed or whole, whichever the server chose."""
    kind = response.headers.get("content-type", "")
    place = replace(place, request_id=request_id(response.headers))
    async with aclosing(_limited(response, request.max_reply_bytes, place)) as pieces:
        if "json" in kind or (not request.stream and "event-stream" not in kind):
            whole = b"".join([piece async for piece in pieces])
            yield place.decoded(whole)
            yield END_OF_REPLY
            return
        async with aclosing(_events(pieces, request, place)) as events:
            async for data in events:
                if data == _DONE:
                    await _drain(pieces)
                    yield END_OF_REPLY
                    return
                yield place.decoded(data)


async def _events(pieces: AsyncGenerator[bytes], request: Request, place: Place) -> AsyncGenerator[bytes]:
    """The data of a stream's events.

    Raises:
        ProtocolError: bytes came, and none of them belonged to an event.
    """
    decoder = SseDecoder(max_event_bytes=request.max_reply_bytes)
    start = b""
    is_stream = False
    async for piece in pieces:
        events = decoder.feed(piece)
        if not is_stream:
            is_stream = bool(events)
            start = start or piece
        for data in events:
            yield data
    for data in decoder.close():
        is_stream = True
        yield data
    if start.strip() and not is_stream and not start.lstrip().startswith((b":", b"data", b"event")):
        place.decoded(start[:_START_SHOWN] + b" ")
        raise place.not_json(start)


async def _limited(response: Any, limit: int, place: Place) -> AsyncGenerator[bytes]:
    """The body of a response, as long as it keeps within `limit` bytes; closes the response."""
    received = 0
    pieces = response.iter_bytes()
    try:
        while (piece := await _next_piece(pieces, place)) is not None:
            received += len(piece)
            if received > limit:
                raise ProtocolError(
                    f"{place.url} sent more than {limit} bytes in one reply; raise RunLimits.max_reply_bytes "
                    "if the server is to be trusted with that"
                )
            yield piece
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSING_S):
            await response.close()
            # The client and its HTTP library stack generators; reading to their end unwinds them all, where
            # closing the outermost would leave the others to the garbage collector.
            with suppress(Exception):
                while await anext(pieces, None) is not None:
                    pass


async def _next_piece(pieces: AsyncIterator[bytes], place: Place) -> bytes | None:
    with place.translating():
        return await anext(pieces, None)


async def _drain(pieces: AsyncGenerator[bytes]) -> None:
    """Read to the end of the body, which is due now, so that the connection can serve again."""
    with anyio.move_on_after(_DRAIN_S), suppress(KimiAgentError):
        async for _ in pieces:
            pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where something went wrong, and what must not be said about it."""

    url: str
    secrets: tuple[str, ...] = field(default=(), repr=False)
    request_id: str | None = None

    def decoded(self, data: bytes) -> JsonObject:
        """The object that `data` is the JSON of.

        Raises:
            ProtocolError: it is none.
            TransportStatusError: it is an error the server tells in a reply of status 200.
        """
        try:
            value: object = jiter.from_json(data)
        except ValueError:
            value = self._decoded_leniently(data)
        chunk = check_chunk(value, data, self.url)
        if "error" in chunk or chunk.get("object") == "error":
            answer = error_in_reply(hide(chunk, self.secrets))
            if answer is not None:
                raise status_error(replace(answer, url=self.url, request_id=self.request_id))
        return chunk

    def _decoded_leniently(self, data: bytes) -> object:
        """Broken UTF-8 and lone surrogates cost a character, not the reply."""
        try:
            return json.loads(data.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            raise self.not_json(data) from None

    def not_json(self, data: bytes) -> ProtocolError:
        """The error for a body that is something else."""
        shown = without_secrets(data[:_START_SHOWN].decode("utf-8", "replace"), self.secrets)
        return ProtocolError(
            f"{self.url} sent something that is not JSON: {shown!r}; base_url should be the root of an "
            "OpenAI-compatible API, e.g. http://127.0.0.1:8000/v1",
            raw=shown,
        )

    @contextmanager
    def translating(self) -> Generator[None]:
        """Turns what the client or its HTTP library raises inside into this package's errors."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever the client's HTTP library raises, as it does
            told = str(error)
            tells_secret = without_secrets(told, self.secrets) != told
            raise self.translated(error) from (None if tells_secret else error)

    def translated(self, error: Exception) -> KimiAgentError:
        """The error to raise for anything that the client or its HTTP library raised."""
        name = type(error).__name__
        library = type(error).__module__.partition(".")[0]
        is_late = isinstance(error, openai.APITimeoutError) or (
            library in _HTTP_LIBRARIES and "Timeout" in name
        )
        match error:
            case KimiAgentError():
                return error
            case openai.APIStatusError():
                return status_error(self._answer_of(error))
            case openai.APIConnectionError() if not is_late or "Connect" in type(error.__cause__).__name__:
                return self._unreachable(error)
            case _ if is_late:
                return TransportTimeoutError(
                    f"{self.url} sent nothing for too long; raise RunLimits.request_timeout_s if the model "
                    "needs more time"
                )
            case _ if library in _HTTP_LIBRARIES or isinstance(error, OSError | anyio.BrokenResourceError):
                return TransportConnectionError(
                    f"the connection to {self.url} was lost before the reply was whole ({name})"
                )
            case _:
                return TransportError(f"asking {self.url} failed: {name}: {one_line(str(error))}")

    def _answer_of(self, error: openai.APIStatusError) -> StatusAnswer:
        headers = error.response.headers
        return StatusAnswer(
            status_code=error.status_code,
            body=hide(error.body, self.secrets),
            retry_after_s=_retry_after_s(headers),
            request_id=request_id(headers),
            url=self.url,
        )

    def _unreachable(self, error: openai.APIConnectionError) -> TransportConnectionError:
        cause = error.__cause__
        reason = f" ({type(cause).__name__}: {one_line(str(cause))})" if cause is not None else ""
        return TransportConnectionError(
            f"no server answered at {self.url}{reason}. Start one, e.g. `kimi-agent simulate --port 8000` to "
            "try things out or `vllm serve MODEL --enable-auto-tool-choice --tool-call-parser kimi_k2`, or "
            "set base_url or KIMI_BASE_URL to one that runs; RunLimits.connect_timeout_s is the time it has "
            "to answer"
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


def request_id(headers: Mapping[str, str]) -> str | None:
    """The id by which the server's operator finds a request."""
    return next((headers[name] for name in _TRACE_HEADERS if headers.get(name)), None)
