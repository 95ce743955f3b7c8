"""Bytes from a client → whole HTTP/1.1 requests, refusing what is malformed or too large."""

import json
import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from kimi_agent.testing.received import ReceivedRequest

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_CHUNK_LINE_BYTES = 1024

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([\x21-\x7e]+) HTTP/(\d)\.(\d)")
_HEADER_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_DIGITS = re.compile(r"[0-9]{1,18}")
_HEX = re.compile(rb"[0-9A-Fa-f]{1,15}")


class RequestRefusedError(Exception):
    """The request cannot be read; `status` is what the client is told."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class Head:
    """Request line and headers."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    keep_alive: bool
    body_size: int | None
    """Bytes that follow, or `None` for a chunked body."""


class _State(Enum):
    HEAD = auto()
    SIZED_BODY = auto()
    CHUNK_SIZE = auto()
    CHUNK_DATA = auto()
    TRAILER = auto()


@dataclass(slots=True)
class RequestParser:
    """Cuts what one connection sends into requests; each byte is looked at a bounded number of times."""

    max_body_bytes: int = MAX_BODY_BYTES
    head: Head | None = None
    """The request being read, from its blank line on."""
    _buffer: bytearray = field(default_factory=bytearray)
    _body: bytearray = field(default_factory=bytearray)
    _state: _State = _State.HEAD
    _chunk_left: int = 0
    _searched: int = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes received and not yet part of a request that was handed out."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take what the client sent; `next_request` reads it."""
        self._buffer += data

    def next_request(self) -> tuple[ReceivedRequest, bool] | None:
        """The next whole request and whether the connection stays open after it; `None`: not yet.

        Raises:
            RequestRefusedError: the bytes are no HTTP, or larger than the limits.
        """
        steps = {
            _State.HEAD: self._read_head,
            _State.SIZED_BODY: self._read_sized_body,
            _State.CHUNK_SIZE: self._read_chunk_size,
            _State.CHUNK_DATA: self._read_chunk_data,
            _State.TRAILER: self._read_trailer,
        }
        while True:
            progress = steps[self._state]()
            if isinstance(progress, tuple):
                return progress
            if not progress:
                return None

    def _line(self, end: bytes, limit: int, status: int) -> bytes | None:
        """What stands before `end`, taken out of the buffer; `None`: not all here yet."""
        at = self._buffer.find(end, max(0, self._searched - len(end)))
        if (at if at >= 0 else len(self._buffer)) > limit:
            raise RequestRefusedError(status, f"request line or headers longer than {limit} bytes")
        if at < 0:
            self._searched = len(self._buffer)
            return None
        self._searched = 0
        line = bytes(self._buffer[:at])
        del self._buffer[: at + len(end)]
        return line

    def _read_head(self) -> bool:
        while self._buffer.startswith(b"\r\n"):  # left over after a body, allowed by RFC 9112 2.2
            del self._buffer[:2]
        lines = self._line(b"\r\n\r\n", MAX_HEAD_BYTES, 431)
        if lines is None:
            return False
        self.head = parse_head(lines)
        if self.head.body_size is None:
            self._state = _State.CHUNK_SIZE
        else:
            self._check_size(self.head.body_size)
            self._state = _State.SIZED_BODY
        return True

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self.max_body_bytes:
            raise RequestRefusedError(413, f"request body larger than {self.max_body_bytes} bytes")

    def _read_sized_body(self) -> bool | tuple[ReceivedRequest, bool]:
        size = self.head.body_size if self.head else 0
        if len(self._buffer) < (size or 0):
            return False
        raw = bytes(self._buffer[:size])
        del self._buffer[:size]
        return self._finish(raw)

    def _read_chunk_size(self) -> bool:
        line = self._line(b"\r\n", MAX_CHUNK_LINE_BYTES, 400)
        if line is None:
            return False
        size = line.split(b";", 1)[0].strip()
        if not _HEX.fullmatch(size):
            raise RequestRefusedError(400, "chunk size is not a hexadecimal number")
        self._chunk_left = int(size, 16)
        self._check_size(len(self._body) + self._chunk_left)
        self._state = _State.CHUNK_DATA if self._chunk_left else _State.TRAILER
        return True

    def _read_chunk_data(self) -> bool:
        taken = self._buffer[: self._chunk_left]
        self._body += taken
        del self._buffer[: len(taken)]
        self._chunk_left -= len(taken)
        if self._chunk_left or len(self._buffer) < len(b"\r\n"):
            return False
        if not self._buffer.startswith(b"\r\n"):
            raise RequestRefusedError(400, "chunk is longer than its size says")
        del self._buffer[:2]
        self._state = _State.CHUNK_SIZE
        return True

    def _read_trailer(self) -> bool | tuple[ReceivedRequest, bool]:
        line = self._line(b"\r\n", MAX_HEAD_BYTES, 431)
        if line is None:
            return False
        if line:
            return True  # trailers are allowed and mean nothing here
        raw = bytes(self._body)
        self._body.clear()
        return self._finish(raw)

    def _finish(self, raw: bytes) -> tuple[ReceivedRequest, bool]:
        head = self.head
        if head is None:
            raise RequestRefusedError(400, "body without a request line")
        self.head = None
        self._state = _State.HEAD
        request = ReceivedRequest(
            method=head.method,
            path=head.path,
            query=head.query,
            headers=head.headers,
            body=decoded_json(raw),
            raw=raw,
        )
        return request, head.keep_alive


def decoded_json(raw: bytes) -> Any:
    """The JSON value of `raw`, or `None` if it is none."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def parse_head(lines: bytes) -> Head:
    """Request line and headers, checked.

    Raises:
        RequestRefusedError: with the status the client should see.
    """
    first, *rest = lines.split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(first)
    if match is None:
        raise RequestRefusedError(400, "request line is not `METHOD /path HTTP/1.1`")
    method, target, major, minor = (part.decode("ascii") for part in match.groups())
    if major != "1":
        raise RequestRefusedError(505, f"HTTP/{major} is not spoken here, send HTTP/1.1")
    headers = parse_headers(rest)
    path, _, query = target.partition("?")
    connection = headers.get("connection", "").lower()
    return Head(
        method=method,
        path=path,
        query=query,
        headers=headers,
        keep_alive="close" not in connection if minor != "0" else "keep-alive" in connection,
        body_size=body_size_of(headers),
    )


def parse_headers(lines: list[bytes]) -> dict[str, str]:
    """Header lines as a dict with lower-case names; repeated ones are joined with a comma."""
    headers: dict[str, str] = {}
    for line in lines:
        raw_name, colon, raw_value = line.partition(b":")
        if not colon or not _HEADER_NAME.fullmatch(raw_name) or b"\0" in line or b"\n" in line:
            raise RequestRefusedError(400, "header line is not `Name: value`")
        name, value = raw_name.decode("ascii").lower(), raw_value.strip(b" \t").decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def body_size_of(headers: dict[str, str]) -> int | None:
    """Bytes the body has, `None` for a chunked one.

    Raises:
        RequestRefusedError: the two length headers are wrong or contradict each other.
    """
    encoding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if encoding is not None:
        if length is not None:
            raise RequestRefusedError(400, "both content-length and transfer-encoding are given")
        if encoding.strip().lower() != "chunked":
            raise RequestRefusedError(501, "the only transfer-encoding read here is chunked")
        return None
    if length is None:
        return 0
    if not _DIGITS.fullmatch(length):
        raise RequestRefusedError(400, "content-length is not a number")
    return int(length)
