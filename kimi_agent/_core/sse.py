"""Server-sent events: bytes → the `data` of each event."""

from __future__ import annotations

from kimi_agent.errors import ProtocolError

_BOM = b"\xef\xbb\xbf"


class SseDecoder:
    """Takes the bytes of an event stream as they come.

    Lines end with LF or CRLF. Comments and fields other than `data` are passed over, and several
    `data` lines of one event are joined as the standard says.
    """

    __slots__ = ("_at_start", "_data", "_data_bytes", "_max_bytes", "_rest", "_searched")

    def __init__(self, *, max_event_bytes: int) -> None:
        self._max_bytes = max_event_bytes
        self._rest = bytearray()
        self._searched = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._at_start = True

    def feed(self, received: bytes) -> list[bytes]:
        """The data of every event that `received` completes.

        Raises:
            ProtocolError: an event is larger than the limit.
        """
        rest = self._rest
        rest += received
        if self._at_start:
            if len(rest) < len(_BOM) and _BOM.startswith(rest):
                return []
            self._at_start = False
            if rest.startswith(_BOM):
                del rest[: len(_BOM)]
        end = rest.rfind(b"\n", self._searched)
        if end == -1:
            self._searched = len(rest)
            self._check_size()
            return []
        lines = bytes(rest[:end]).split(b"\n")
        del rest[: end + 1]
        self._searched = 0
        self._check_size()
        events: list[bytes] = []
        for line in lines:
            self._take_line(line, events)
        return events

    def close(self) -> list[bytes]:
        """The data of a last event that the stream ended without a blank line."""
        events: list[bytes] = []
        self._take_line(bytes(self._rest), events)
        self._rest.clear()
        self._take_line(b"", events)
        return events

    def _take_line(self, line: bytes, events: list[bytes]) -> None:
        if line.endswith(b"\r"):
            line = line[:-1]
        if not line:
            if self._data_bytes > len(self._data):
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
            self._data = []
            self._data_bytes = 0
        elif line.startswith(b"data:"):
            data = line[6:] if line.startswith(b"data: ") else line[5:]
            self._data.append(data)
            self._data_bytes += len(data) + 1
            self._check_size()

    def _check_size(self) -> None:
        if len(self._rest) + self._data_bytes > self._max_bytes:
            raise ProtocolError(
                f"the stream sent an event of more than {self._max_bytes} bytes; raise "
                "RunLimits.max_reply_bytes if the server is to be trusted with that"
            )
