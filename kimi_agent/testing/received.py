"""What the server was sent: `ReceivedRequest`, and the `Journal` that counts and keeps them."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRequest:
    """One request, as it arrived."""

    method: str
    path: str
    """Without the query: `/v1/chat/completions`."""
    query: str = ""
    """What followed the `?`, undecoded."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Names in lower case; a header sent twice is joined with `", "`."""
    body: Any = None
    """The decoded JSON, or `None` if the body was empty or was not JSON."""
    raw: bytes = b""
    """The body's bytes, without their chunked framing."""


class Journal:
    """Requests and counts, written by the server's thread and read from any other."""

    def __init__(self, keep: int) -> None:
        self._changed = threading.Condition()
        self._requests: deque[ReceivedRequest] = deque(maxlen=keep)
        self._open = 0
        self._disconnects = 0

    @property
    def requests(self) -> list[ReceivedRequest]:
        """The latest requests, oldest first."""
        with self._changed:
            return list(self._requests)

    @property
    def requests_open(self) -> int:
        """How many requests are being answered."""
        return self._open

    @property
    def disconnects(self) -> int:
        """How many clients left before their reply ended."""
        return self._disconnects

    def on_request(self, request: ReceivedRequest) -> None:
        """Record that `request` arrived and is being answered."""
        with self._changed:
            self._requests.append(request)
            self._open += 1
            self._changed.notify_all()

    def on_answered(self, *, client_left: bool) -> None:
        """Record that one open request is done with."""
        with self._changed:
            self._open -= 1
            self._disconnects += client_left
            self._changed.notify_all()

    def wait(self, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Whether `predicate` came true within `timeout_s`; asked again whenever something changes."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not predicate():
                if (left := deadline - time.monotonic()) <= 0:
                    return False
                self._changed.wait(left)
        return True
