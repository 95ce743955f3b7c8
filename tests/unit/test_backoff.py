"""Whether and when to send a failed request again."""

from __future__ import annotations

import pytest

from kimi_agent._core.backoff import delay_before, may_retry
from kimi_agent.errors import (
    AuthenticationError,
    ConfigurationError,
    EngineOverloadedError,
    IncompleteStreamError,
    KimiAgentError,
    ModelError,
    QuotaExhaustedError,
    RateLimitedError,
    TransportConnectionError,
    TransportTimeoutError,
)


def delays(error: KimiAgentError, *, spread: float = 1.0, longest_s: float = 60.0) -> list[float]:
    return [
        delay_before(error, attempt=attempt, spread=spread, longest_s=longest_s) for attempt in range(1, 7)
    ]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TransportConnectionError("lost"), True),
        (TransportTimeoutError("slow"), True),
        (IncompleteStreamError("cut"), True),
        (RateLimitedError("often", status_code=429, retryable=True), True),
        (QuotaExhaustedError("poor", status_code=429), False),
        (AuthenticationError("who", status_code=401), False),
        (ModelError("empty", retryable=True), False),
        (ConfigurationError("odd"), False),
    ],
)
def test_only_what_may_pass_is_sent_again(error: KimiAgentError, expected: bool) -> None:
    assert may_retry(error) is expected


def test_waits_double_up_to_a_bound() -> None:
    assert delays(TransportConnectionError("lost")) == [0.5, 1, 2, 4, 8, 8]


def test_waits_are_spread_down_to_half() -> None:
    assert delays(TransportConnectionError("lost"), spread=0)[0] == 0.25


def test_an_overloaded_engine_is_given_more_time() -> None:
    error = EngineOverloadedError("busy", status_code=429)

    assert delays(error) == [2, 4, 8, 16, 32, 32]


def test_what_the_server_asks_for_counts_up_to_the_limit() -> None:
    error = RateLimitedError("often", status_code=429, retry_after_s=20)

    assert delays(error)[0] == 20
    assert delays(error, longest_s=3)[0] == 3


def test_no_wait_is_longer_than_allowed() -> None:
    assert max(delays(EngineOverloadedError("busy", status_code=429), longest_s=5)) == 5
