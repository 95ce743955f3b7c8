"""What the tests of leaving early share: replies that get stuck, tools that never end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from kimi_agent.testing import (
    Hang,
    KimiServer,
    Reply,
    chunk,
    stream_reply,
)
from tests.e2e.support import asking_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kimi_agent import Run

SILENT = Reply(before=(Hang(),))
"""Takes the request and never answers."""

STUCK = stream_reply([chunk({"content": "It "}), chunk({"content": "is"}), Hang()])
"""Begins to answer and then hangs."""

STUCK_WHOLE = Reply(headers={"content-type": "application/json"}, body=['{"choices": [', Hang()])

PROMPTLY_S = 2.0
USER = {"role": "user", "content": "Hello"}


class Tools:
    """An async tool that finishes, one that never does, and what became of the latter."""

    def __init__(self) -> None:
        self.started = anyio.Event()
        self.cancelled = 0

    async def quick(self) -> str:
        """Finish at once."""
        return "finished"

    async def stuck(self) -> str:
        """Never finish."""
        self.started.set()
        try:
            await anyio.sleep_forever()
        except BaseException:
            self.cancelled += 1
            raise
        return "never"

    @property
    def all(self) -> list[Callable[[], Awaitable[str]]]:
        return [self.quick, self.stuck]


ROUND = asking_for(("quick", {}), ("stuck", {}), ("quick", {}), text="Let me see.")


async def read_until(run: Run, wanted: type[Any]) -> None:
    async for event in run:
        if isinstance(event, wanted):
            return


def disconnected(server: KimiServer) -> Any:
    return server.wait_for_async(lambda: server.disconnects == 1 and server.requests_open == 0, PROMPTLY_S)
