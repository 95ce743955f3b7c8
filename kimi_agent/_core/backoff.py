"""Whether and when to send a failed request again."""

from __future__ import annotations

from typing import Final

from kimi_agent.errors import EngineOverloadedError, KimiAgentError, ProtocolError, TransportError

_FIRST_DELAY_S: Final = 0.5
_LONGEST_OWN_DELAY_S: Final = 8.0
_MOST_DOUBLINGS: Final = 10
# An overloaded engine stays so for a while: come back later than after a hiccup.
_OVERLOAD_FACTOR: Final = 4.0


def may_retry(error: KimiAgentError) -> bool:
    """Whether the same request may succeed if it is sent again."""
    return isinstance(error, TransportError | ProtocolError) and error.retryable


def delay_before(error: KimiAgentError, *, attempt: int, spread: float, longest_s: float) -> float:
    """Seconds to wait after failed attempt number `attempt`, from 1.

    What the server asked for counts, up to `longest_s`. Otherwise the delay doubles with each attempt;
    `spread`, a random number from 0 to 1, moves it down to half, so that clients do not come back together.
    """
    asked = error.retry_after_s if isinstance(error, TransportError) else None
    if asked is not None:
        return min(asked if asked > 0 else 0.0, longest_s)
    delay = min(_FIRST_DELAY_S * 2 ** min(attempt - 1, _MOST_DOUBLINGS), _LONGEST_OWN_DELAY_S)
    if isinstance(error, EngineOverloadedError):
        delay *= _OVERLOAD_FACTOR
    return min(delay * (0.5 + spread / 2), longest_s)
