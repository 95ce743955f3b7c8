"""`KimiServer`: a real HTTP server on loopback that speaks like an engine, or plays a script."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self, TypeAlias, cast

from anyio import to_thread

from kimi_agent.testing.engines import DIALECTS, EngineSettings
from kimi_agent.testing.http_connection import Connection
from kimi_agent.testing.http_parser import MAX_BODY_BYTES
from kimi_agent.testing.received import Journal, ReceivedRequest
from kimi_agent.testing.replies import DEFAULT_MODEL, Reply, ScriptedReply, error_reply
from kimi_agent.testing.simulated_engine import SimulatedEngine

_LOG = logging.getLogger("kimi_agent.testing")

SCRIPTED_PATHS = ("/v1/chat/completions", "/v1/completions")

Script: TypeAlias = Reply | Callable[[ReceivedRequest], Reply] | Iterable[ScriptedReply]
"""One reply for every request, a function that makes them, or replies to play in order."""


class KimiServer:
    """A server on loopback for the time of a `with` or `async with` block.

    It runs in a thread with a loop of its own, so tests may use asyncio, trio or neither.
    """

    def __init__(  # noqa: PLR0913 - independent options, keyword-only
        self,
        engine: str = "vllm",
        *,
        parser: bool = True,
        model: str = DEFAULT_MODEL,
        replies: Script | Mapping[str, Script] | None = None,
        repeat_last: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
        chunk_delay_s: float = 0.0,
        thinking: bool = False,
        context_length: int = 131_072,
        max_body_bytes: int = MAX_BODY_BYTES,
        keep_requests: int = 10_000,
    ) -> None:
        """Describe the server; it starts with the block.

        Args:
            engine: Whose dialect is spoken: `"vllm"`, `"sglang"`, `"llama.cpp"`, `"moonshot"`.
            parser: Whether the engine was started with its tool-call parser.
            model: The served model id.
            replies: A script instead of the simulated model, for both completion paths, or a
                mapping from path to script.
            repeat_last: Play the last scripted reply again and again; else a script that has
                ended answers 500 and says so.
            host: Address to listen on.
            port: Port to listen on; 0 takes a free one.
            api_key: The key clients have to send; `None` asks for none.
            chunk_delay_s: Seconds between two pieces of a streamed reply.
            thinking: Whether the simulated model reasons before it answers.
            context_length: Tokens the simulated engine takes; longer prompts are refused.
            max_body_bytes: Larger request bodies are refused with 413.
            keep_requests: How many of the latest requests `requests` holds.
        """
        if engine not in DIALECTS:
            raise ValueError(
                f"KimiServer(engine={engine!r}): known engines are {', '.join(map(repr, DIALECTS))}"
            )
        settings = EngineSettings(
            model=model, parser=parser, thinking=thinking, api_key=api_key, context_length=context_length
        )
        self._engine = SimulatedEngine(DIALECTS[engine](settings))
        self._host, self._port = host, port
        self._journal = Journal(keep_requests)
        self._scripts = _scripts_by_path(replies, repeat_last=repeat_last)
        self._connections: set[Connection] = set()
        self._chunk_delay_s, self._max_body_bytes = chunk_delay_s, max_body_bytes
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._stop: Callable[[], object] = _nothing
        self._bound_port = 0

    @property
    def base_url(self) -> str:
        """What a client is given: `http://127.0.0.1:PORT/v1`.

        Raises:
            RuntimeError: the server is not running.
        """
        if self._thread is None:
            raise RuntimeError("KimiServer is not running: use `with KimiServer(...) as server:`")
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._bound_port}/v1"

    @property
    def requests(self) -> list[ReceivedRequest]:
        """What arrived so far, in order (the latest `keep_requests`)."""
        return self._journal.requests

    @property
    def requests_open(self) -> int:
        """How many requests are being answered now."""
        return self._journal.requests_open

    @property
    def disconnects(self) -> int:
        """How many clients left before their reply ended."""
        return self._journal.disconnects

    def wait_for(self, predicate: Callable[[], bool], timeout_s: float = 5.0) -> None:
        """Block until `predicate()` is true; it is asked again whenever a request begins or ends.

        Raises:
            TimeoutError: it did not come true; the message says what the server saw.
        """
        if not self._journal.wait(predicate, timeout_s):
            raise TimeoutError(
                f"KimiServer: still not true after {timeout_s:g} s; {len(self.requests)} requests "
                f"arrived, {self.requests_open} are open, {self.disconnects} clients left"
            )

    async def wait_for_async(self, predicate: Callable[[], bool], timeout_s: float = 5.0) -> None:
        """`wait_for` without blocking the caller's loop."""
        await to_thread.run_sync(self.wait_for, predicate, timeout_s)

    def start(self) -> None:
        """Listen; the `with` block does this.

        Raises:
            OSError: the address cannot be listened on, for example because the port is in use.
            RuntimeError: the server is running already.
        """
        if self._thread is not None:
            raise RuntimeError("KimiServer is running already")
        self._started.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._run, name="KimiServer", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            self._thread = None
            raise self._failure

    def close(self) -> None:
        """Cut every connection and end the thread; the `with` block does this."""
        if self._thread is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed already if serving failed
                self._stop()
            self._thread.join()
            self._thread = None
            if self._failure is not None:
                raise self._failure

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The thread ends within milliseconds and waits for nobody, so the caller's loop may wait for it.
        self.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as failure:  # noqa: BLE001 - raised again by `start`, or by `close`
            self._failure = failure
        finally:
            self._started.set()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stopping.set)
        server = await loop.create_server(self._connect, self._host, self._port, backlog=4096)
        self._bound_port = server.sockets[0].getsockname()[1]
        self._started.set()
        await stopping.wait()
        server.close()
        while self._connections:
            for connection in list(self._connections):
                connection.abort()
            await asyncio.sleep(0)  # the aborted connections report that they are lost

    def _connect(self) -> Connection:
        return Connection(
            respond=self._respond,
            journal=self._journal,
            connections=self._connections,
            chunk_delay_s=self._chunk_delay_s,
            max_body_bytes=self._max_body_bytes,
        )

    def _respond(self, request: ReceivedRequest) -> Reply:
        try:
            script = self._scripts.get(request.path)
            return script(request) if script is not None else self._engine.reply_to(request)
        except Exception as error:  # noqa: BLE001 - a bug in a script is the client's 500, as with any server
            _LOG.exception("no reply to %s %s", request.method, request.path)
            return error_reply(
                500, f"KimiServer: {type(error).__name__} while answering: {error}", type="server_error"
            )


def _nothing() -> None:
    """What stopping means before the start."""


def _scripts_by_path(
    replies: Script | Mapping[str, Script] | None, *, repeat_last: bool
) -> dict[str, Callable[[ReceivedRequest], Reply]]:
    if replies is None:
        return {}
    if isinstance(replies, Mapping):
        by_path = cast("Mapping[str, Script]", replies)
        return {path: player_of(script, repeat_last=repeat_last) for path, script in by_path.items()}
    # One script for both paths: what comes next does not depend on where it is asked.
    player = player_of(replies, repeat_last=repeat_last)
    return dict.fromkeys(SCRIPTED_PATHS, player)


def player_of(script: Script, *, repeat_last: bool) -> Callable[[ReceivedRequest], Reply]:
    """A function that plays `script`, one reply a call."""
    if isinstance(script, Reply):
        return lambda _: script
    if callable(script):
        return script
    remaining: Iterator[ScriptedReply] = iter(script)
    last: ScriptedReply | None = None
    played = 0

    def play(request: ReceivedRequest) -> Reply:
        nonlocal last, played
        following = next(remaining, None)
        if following is None:
            following = last if repeat_last else None
        else:
            played += 1
        if following is None:
            return error_reply(
                500,
                f"KimiServer: the script is exhausted: {played} replies were played and {request.method} "
                f"{request.path} asked for one more; add a reply, or pass repeat_last=True",
                type="script_exhausted",
            )
        last = following
        return following if isinstance(following, Reply) else following(request)

    return play
