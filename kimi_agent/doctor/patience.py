"""Waiting for a server that is on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from kimi_agent.errors import (
    EngineOverloadedError,
    KimiAgentError,
    ServerLoadingError,
    TransportConnectionError,
    TransportStatusError,
    TransportTimeoutError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

_GATEWAY_STATUSES: Final = frozenset({502, 503, 504})
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 5.0
_GROWTH: Final = 1.5


class Patience:
    """Repeats what fails because the server is not there yet, `wait_s` seconds in all."""

    def __init__(self, wait_s: float, notify: Callable[[str, float], None]) -> None:
        self._wait_s = wait_s
        self._notify = notify
        self.waited_s = 0.0
        """Seconds spent waiting so far."""

    async def wait_out(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What `attempt` returns, once the server is there.

        Raises:
            KimiAgentError: it is not there in time, or something else is wrong.
        """
        began, waited = anyio.current_time(), self.waited_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await attempt()
            except KimiAgentError as error:
                left_s = self._wait_s - self.waited_s
                if left_s <= 0 or not is_on_its_way(error):
                    raise
                self._notify(_state(error), self.waited_s)
                await anyio.sleep(min(pause_s, left_s))
                pause_s = min(pause_s * _GROWTH, _LONGEST_PAUSE_S)
                self.waited_s = waited + anyio.current_time() - began


def is_on_its_way(error: KimiAgentError) -> bool:
    """Whether `error` is what a server shows that is still starting."""
    if isinstance(error, TransportStatusError):
        return isinstance(error, ServerLoadingError) or (
            error.status_code in _GATEWAY_STATUSES and not isinstance(error, EngineOverloadedError)
        )
    return isinstance(error, TransportConnectionError | TransportTimeoutError)


def _state(error: KimiAgentError) -> str:
    match error:
        case ServerLoadingError():
            return "it is loading the model"
        case TransportStatusError():
            return f"it answers {error.status_code}"
        case TransportTimeoutError():
            return "it does not answer"
        case _:
            return "nothing listens there"
