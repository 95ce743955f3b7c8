"""Waits stay within their bounds, and only what repeats is called a loop."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kimi_agent._core.backoff import delay_before, may_retry
from kimi_agent._core.loop_guard import LoopGuard
from kimi_agent.errors import (
    EngineOverloadedError,
    KimiAgentError,
    ModelError,
    ProtocolError,
    RateLimitedError,
    TransportConnectionError,
)

SPREADS = st.floats(0, 1)
ATTEMPTS = st.integers(1, 5000)
SECONDS = st.floats(0, 1e6)


def overloaded(asked: float | None = None) -> KimiAgentError:
    return EngineOverloadedError("busy", status_code=429, retryable=True, retry_after_s=asked)


@given(ATTEMPTS, SPREADS, SECONDS, st.booleans(), st.one_of(st.none(), st.floats()))
def test_a_wait_is_never_negative_nor_longer_than_allowed(
    attempt: int, spread: float, longest_s: float, busy: bool, asked: float | None
) -> None:
    error = overloaded(asked) if busy else RateLimitedError("", status_code=429, retry_after_s=asked)

    assert 0 <= delay_before(error, attempt=attempt, spread=spread, longest_s=longest_s) <= longest_s


@given(ATTEMPTS, SPREADS, SECONDS, SECONDS)
def test_a_wait_the_server_asks_for_is_kept_up_to_the_limit(
    attempt: int, spread: float, longest_s: float, asked: float
) -> None:
    assert delay_before(overloaded(asked), attempt=attempt, spread=spread, longest_s=longest_s) == min(
        asked, longest_s
    )


@given(ATTEMPTS, SPREADS)
def test_waits_grow_and_are_spread_over_half_their_length(attempt: int, spread: float) -> None:
    error = TransportConnectionError("lost")
    now = delay_before(error, attempt=attempt, spread=spread, longest_s=60)
    longest = delay_before(error, attempt=attempt, spread=1, longest_s=60)
    later = delay_before(error, attempt=attempt + 1, spread=1, longest_s=60)

    assert longest / 2 <= now <= longest <= later <= 8
    assert delay_before(overloaded(), attempt=attempt, spread=spread, longest_s=60) >= now


@given(st.booleans())
def test_only_what_may_pass_is_tried_again(retryable: bool) -> None:
    error = ProtocolError("odd")
    error.retryable = retryable

    assert may_retry(error) == retryable
    assert not may_retry(ModelError("", retryable=retryable))


CALLS = st.tuples(st.sampled_from(("f", "g")), st.sampled_from(({}, {"a": 1}, {"a": 2})))


@given(st.lists(CALLS, max_size=30), st.integers(2, 12))
def test_calls_whose_results_change_are_never_a_loop(
    calls: list[tuple[str, dict[str, int]]], max_repeats: int
) -> None:
    guard = LoopGuard(max_repeats)
    for place, (name, arguments) in enumerate(calls):
        assert not guard.refuses(name, arguments)
        count = guard.note(name, arguments, f"result {place}")

        assert not guard.is_loop(count)
        assert guard.reminder(count) == ""


@given(st.lists(CALLS, min_size=1, max_size=4, unique_by=repr), st.integers(2, 12))
def test_a_cycle_of_calls_is_a_loop_exactly_when_it_has_come_too_often(
    cycle: list[tuple[str, dict[str, int]]], max_repeats: int
) -> None:
    guard = LoopGuard(max_repeats)
    loops = [
        [guard.is_loop(guard.note(name, arguments, "same")) for name, arguments in cycle]
        for _ in range(max_repeats)
    ]

    assert not any(map(any, loops[:-1]))
    # The first round is new to itself: calls before the last one of it began counting anew.
    assert loops[-1][-1]


@given(st.lists(st.tuples(CALLS, st.sampled_from(("a", "b"))), max_size=40))
def test_without_a_limit_nothing_is_refused_and_nothing_is_a_loop(
    notes: list[tuple[tuple[str, dict[str, int]], str]],
) -> None:
    guard = LoopGuard(None)
    for (name, arguments), result in notes:
        assert not guard.refuses(name, arguments)
        count = guard.note(name, arguments, result)

        assert not guard.is_loop(count)
        assert guard.reminder(count) == ""


@given(st.lists(st.tuples(CALLS, st.sampled_from(("a", "b"))), max_size=40))
def test_a_count_never_exceeds_how_often_the_call_brought_that_result_in_a_row(
    notes: list[tuple[tuple[str, dict[str, int]], str]],
) -> None:
    guard = LoopGuard(8)
    rows: dict[str, tuple[str, int]] = {}
    for call, result in notes:
        last, row = rows.get(repr(call), ("", 0))
        rows[repr(call)] = (result, row + 1 if result == last else 1)

        assert 1 <= guard.note(*call, result) <= rows[repr(call)][1]
