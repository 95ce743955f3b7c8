"""Transports without a network: one plays what a test wrote, one what a server once sent."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TypeAlias

import anyio.lowlevel

from kimi_agent.errors import KimiAgentError
from kimi_agent.testing.json_values import JsonObject, as_object, decoded, encoded
from kimi_agent.testing.replies import DEFAULT_MODEL, call_deltas, chunk, cut_text
from kimi_agent.transport import END_OF_REPLY, Request, Transport

Chunks: TypeAlias = Iterable[JsonObject | KimiAgentError]
"""What one request yields, in order; an error among it is raised when its turn comes."""

PlayedReply: TypeAlias = str | KimiAgentError | Chunks | Callable[[Request], "str | KimiAgentError | Chunks"]
"""A text, an error to raise at once, chunks, or a function that makes one of these from the request."""


class ScriptedTransport:
    """A `Transport` that plays `replies`, one for each request, without a server.

    For tests of an agent's own logic: `KimiAgent("kimi-k2", transport=ScriptedTransport(["Hello"]))`.
    `END_OF_REPLY` follows the chunks of a reply that holds no error. Use `KimiServer` where bytes,
    connections or time matter.
    """

    def __init__(self, replies: Iterable[PlayedReply], *, models: Sequence[str] = (DEFAULT_MODEL,)) -> None:
        self._replies = iter(replies)
        self._models = tuple(models)
        self._requests: list[Request] = []
        self._open = 0
        self._closed = False

    @property
    def requests(self) -> list[Request]:
        """What was asked so far, in order."""
        return list(self._requests)

    @property
    def requests_open(self) -> int:
        """How many replies are being read."""
        return self._open

    @property
    def closed(self) -> bool:
        """Whether `aclose` was called."""
        return self._closed

    async def stream(self, request: Request) -> AsyncGenerator[JsonObject]:
        """The next reply of the script.

        Raises:
            KimiAgentError: the script says so.
            AssertionError: the script has ended.
        """
        self._requests.append(request)
        self._open += 1
        try:
            await anyio.lowlevel.checkpoint()
            for piece in self._next_reply(request):
                if isinstance(piece, KimiAgentError):
                    raise piece
                yield piece
                await anyio.lowlevel.checkpoint()
        finally:
            self._open -= 1

    async def models(self) -> Sequence[JsonObject]:
        """The `models` given, as entries of a list."""
        await anyio.lowlevel.checkpoint()
        return [{"id": name} for name in self._models]

    async def aclose(self) -> None:
        """Note that it was closed."""
        await anyio.lowlevel.checkpoint()
        self._closed = True

    def _next_reply(self, request: Request) -> Iterator[JsonObject | KimiAgentError]:
        reply = next(self._replies, None)
        if reply is None:
            raise AssertionError(
                f"ScriptedTransport: the script has no reply for request {len(self._requests)}; add one"
            )
        if not isinstance(reply, str | KimiAgentError) and callable(reply):
            reply = reply(request)
        if isinstance(reply, str):
            reply = reply_chunks(reply)
        # Nothing is asked for after an error: `stream` raises it.
        yield from [reply] if isinstance(reply, KimiAgentError) else reply
        yield END_OF_REPLY


class RecordedTransport:
    """A `Transport` that plays the exchanges of a file, in order.

    Without the file, and with a `source`, it asks that transport and writes the file: a test that ran once
    against a real server runs without it from then on. Only replies that were read to their end are kept,
    and of a request only its body, so no key.

    File: JSON lines. A line with the key `request` begins an exchange; the lines after it are its chunks,
    the last one `END_OF_REPLY` if the server said that it was done.
    """

    def __init__(self, path: str | Path, *, source: Transport | None = None) -> None:
        self._path = Path(path)
        exists = self._path.exists()
        if not exists and source is None:
            raise FileNotFoundError(f"{self._path} does not exist; pass source= to record it")
        self._source = None if exists else source
        self._exchanges = _exchanges(self._path) if exists else []
        self._played = 0

    async def stream(self, request: Request) -> AsyncGenerator[JsonObject]:
        """The chunks of the next exchange.

        Raises:
            KimiAgentError: from the source, while recording.
            AssertionError: the recording has no further exchange, or was made for another request.
        """
        if self._source is None:
            for piece in self._recorded(request):
                await anyio.lowlevel.checkpoint()
                yield piece
            return
        lines = [{"request": request.decoded()}]
        async with aclosing(self._source.stream(request)) as chunks:
            async for piece in chunks:
                lines.append(piece)
                yield piece
        self._write(lines)

    async def models(self) -> Sequence[JsonObject]:
        """The source's models, while recording; else the models of the recorded requests."""
        await anyio.lowlevel.checkpoint()
        if self._source is not None:
            return await self._source.models()
        names = list(dict.fromkeys(str(lines[0]["request"].get("model")) for lines in self._exchanges))
        return [{"id": name} for name in names]

    async def aclose(self) -> None:
        """Close the source, if there is one."""
        await anyio.lowlevel.checkpoint()
        if self._source is not None:
            await self._source.aclose()

    def _recorded(self, request: Request) -> Sequence[JsonObject]:
        if self._played == len(self._exchanges):
            raise AssertionError(
                f"{self._path} has no exchange after number {self._played}; delete it to record again"
            )
        first, *chunks = self._exchanges[self._played]
        self._played += 1
        recorded, asked = as_object(first["request"]), request.decoded()
        differing = [key for key in {**recorded, **asked} if recorded.get(key) != asked.get(key)]
        if differing:
            raise AssertionError(
                f"exchange {self._played} of {self._path} was recorded for a request with another "
                f"{', '.join(differing)}; delete the file to record again"
            )
        return chunks

    def _write(self, lines: Sequence[JsonObject]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(encoded(line) + "\n" for line in lines)


def reply_chunks(
    content: str = "",
    *,
    reasoning: str | None = None,
    tool_calls: Iterable[JsonObject] = (),
    finish_reason: str | None = None,
    usage: JsonObject | None = None,
    cuts: int | Iterable[int] = 4,
) -> list[JsonObject]:
    """The chunks of a streamed reply, for `ScriptedTransport`; arguments as for `adaptive_reply`."""
    calls = list(tool_calls)
    cuts = cuts if isinstance(cuts, int) else tuple(cuts)
    deltas: list[JsonObject] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in cut_text(reasoning or "", cuts)]
    deltas += [{"content": piece} for piece in cut_text(content, cuts)]
    for index, call in enumerate(calls):
        deltas += call_deltas(index, call, cuts)
    reason = finish_reason or ("tool_calls" if calls else "stop")
    return [*map(chunk, deltas), chunk({}, finish_reason=reason, usage=usage)]


def _exchanges(path: Path) -> list[list[JsonObject]]:
    exchanges: list[list[JsonObject]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        value = as_object(decoded(line))
        if "request" in value:
            exchanges.append([value])
        elif value and exchanges:
            exchanges[-1].append(END_OF_REPLY if value == END_OF_REPLY else value)
        else:
            raise ValueError(f"{path}, line {number}: neither a request nor a chunk after one: {line[:80]!r}")
    return exchanges
