"""One client's connection: reads requests, plays replies, notices at once when the client leaves."""

import asyncio
import contextlib
import http
import json
import logging
import socket
import struct
from collections.abc import Callable, Iterator
from typing import cast

from typing_extensions import override

from kimi_agent.testing.http_parser import MAX_BODY_BYTES, RequestParser, RequestRefusedError
from kimi_agent.testing.received import Journal, ReceivedRequest
from kimi_agent.testing.replies import Action, Close, Delay, Hang, Piece, Reply

_LOG = logging.getLogger("kimi_agent.testing")

LINGER_S = 1.0
"""How long a refused client may go on sending before the connection is cut, so that it can read why."""

MAX_PIPELINED_BYTES = 1024 * 1024
"""What may wait unread while a reply is played; past it reading pauses."""


class _ConnectionOverError(Exception):
    """The reply ended the connection."""


class Connection(asyncio.Protocol):
    """Reads requests from one socket and plays the reply of `respond` to each, one after the other."""

    def __init__(
        self,
        *,
        respond: Callable[[ReceivedRequest], Reply],
        journal: Journal,
        connections: set["Connection"],
        chunk_delay_s: float = 0.0,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._respond = respond
        self._journal = journal
        self._connections = connections
        self._chunk_delay_s = chunk_delay_s
        self._parser = RequestParser(max_body_bytes)
        self._transport: asyncio.Transport | None = None
        self._answering: asyncio.Task[bool] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._discarding = False
        self._client_left = False
        self._closed_by_us = False
        self._continue_sent = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # Zero, so that `_write` returns when the kernel has all of it: what a Reset follows was sent.
        self._transport.set_write_buffer_limits(high=0)
        self._connections.add(self)

    @override
    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        self._parser.feed(data)
        if self._answering is None:
            self._read()
        elif self._parser.buffered_bytes > MAX_PIPELINED_BYTES and self._transport:
            self._transport.pause_reading()

    @override
    def eof_received(self) -> bool:
        # A half-closed client cannot be told from one that is gone, and the latter is the common case.
        self._on_client_left()
        return False

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._on_client_left()
        self._connections.discard(self)

    @override
    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    @override
    def resume_writing(self) -> None:
        if self._writable and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def abort(self) -> None:
        """End the connection now, whatever it is doing."""
        self._closed_by_us = True
        if self._answering:
            self._answering.cancel()
        if self._transport:
            self._transport.abort()

    def _on_client_left(self) -> None:
        self._client_left = not self._closed_by_us
        if self._answering:
            self._answering.cancel()

    def _read(self) -> None:
        """Start answering the next request, if it is all here."""
        if self._transport is None or self._transport.is_closing():
            return
        try:
            whole = self._parser.next_request()
        except RequestRefusedError as refusal:
            self._refuse(self._transport, refusal)
            return
        if whole is None:
            self._send_continue(self._transport)
            return
        request, keep_alive = whole
        self._continue_sent = False
        self._journal.on_request(request)
        self._answering = asyncio.get_running_loop().create_task(self._answer(request, keep_alive=keep_alive))
        # A callback and not a `finally`: a task cancelled before its first step runs none of its code.
        self._answering.add_done_callback(self._on_answered)

    def _send_continue(self, transport: asyncio.Transport) -> None:
        head = self._parser.head
        if head and not self._continue_sent and head.headers.get("expect", "").lower() == "100-continue":
            self._continue_sent = True
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _refuse(self, transport: asyncio.Transport, refusal: RequestRefusedError) -> None:
        """Say why, then take no more: closing while the client still sends would lose the answer."""
        self._discarding = self._closed_by_us = True
        body = json.dumps({"error": {"message": str(refusal), "type": "invalid_request_error"}}).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body))}
        transport.write(head_of(refusal.status, headers, keep_alive=False) + body)
        with contextlib.suppress(OSError):
            transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    async def _answer(self, request: ReceivedRequest, *, keep_alive: bool) -> bool:
        """Play the reply; whether the connection may carry another request."""
        try:
            await self._play(self._respond(request), request, keep_alive=keep_alive)
        except _ConnectionOverError:
            return False
        return keep_alive

    def _on_answered(self, answering: asyncio.Task[bool]) -> None:
        self._answering = None
        self._journal.on_answered(client_left=self._client_left)
        failure = None if answering.cancelled() else answering.exception()
        if failure:
            _LOG.error("KimiServer: a reply broke off", exc_info=failure)
        if answering.cancelled() or failure or not answering.result():
            self._close()
        elif self._transport:
            self._transport.resume_reading()
            self._read()

    def _close(self) -> None:
        self._closed_by_us = True
        if self._transport:
            self._transport.close()

    async def _play(self, reply: Reply, request: ReceivedRequest, *, keep_alive: bool) -> None:
        for action in reply.before:
            await self._act(action)
        keep_alive = keep_alive and reply.framing != "close"
        headers = dict(reply.headers)
        if isinstance(reply.body, bytes | str) and reply.framing == "auto":
            body = as_bytes(reply.body)
            headers["content-length"] = str(len(body))
            head = head_of(reply.status, headers, keep_alive=keep_alive)
            await self._write(head if request.method == "HEAD" else head + body)
            return
        chunked = reply.framing != "close"
        if chunked:
            headers["transfer-encoding"] = "chunked"
        await self._write(head_of(reply.status, headers, keep_alive=keep_alive))
        if request.method != "HEAD":
            pieces = iter([reply.body]) if isinstance(reply.body, bytes | str) else iter(reply.body)
            await self._play_pieces(pieces, chunked=chunked)
        if not keep_alive:
            raise _ConnectionOverError

    async def _play_pieces(self, pieces: Iterator[Piece], *, chunked: bool) -> None:
        first = True
        for piece in pieces:
            if not isinstance(piece, bytes | str):
                await self._act(piece)
                continue
            if not first:
                # Even a delay of 0 lets other clients on, and lets us see that this one has left.
                await asyncio.sleep(self._chunk_delay_s)
            first = False
            if data := as_bytes(piece):
                await self._write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
        if chunked:
            await self._write(b"0\r\n\r\n")

    async def _write(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise _ConnectionOverError
        self._transport.write(data)
        if self._writable:
            await self._writable

    async def _act(self, action: Action) -> None:
        if isinstance(action, Delay):
            await asyncio.sleep(action.seconds)
            return
        if isinstance(action, Hang):
            await asyncio.get_running_loop().create_future()
        self._closed_by_us = True
        if self._transport and not isinstance(action, Close):
            plug: socket.socket = self._transport.get_extra_info("socket")
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
        raise _ConnectionOverError


def as_bytes(piece: bytes | str) -> bytes:
    """`piece` as it goes over the wire; a lone surrogate becomes `?`, for UTF-8 has none."""
    return piece if isinstance(piece, bytes) else piece.encode("utf-8", "replace")


def head_of(status: int, headers: dict[str, str], *, keep_alive: bool) -> bytes:
    """Status line and headers."""
    reason = http.HTTPStatus(status).phrase if status in _KNOWN_STATUSES else "Unknown"
    lines = [f"HTTP/1.1 {status} {reason}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if not keep_alive:
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


_KNOWN_STATUSES = frozenset(int(status) for status in http.HTTPStatus)
