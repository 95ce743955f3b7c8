"""Calls that go round in circles."""

from __future__ import annotations

from kimi_agent._core.loop_guard import REFUSE_AT, REMIND_AT, LoopGuard, refusal


def test_the_same_call_with_the_same_result_is_counted() -> None:
    guard = LoopGuard(8)

    assert [guard.note("f", {"a": 1, "b": 2}, "x") for _ in range(3)] == [1, 2, 3]
    assert guard.note("f", {"b": 2, "a": 1}, "x") == 4


def test_another_result_other_arguments_or_another_tool_are_new() -> None:
    guard = LoopGuard(8)
    guard.note("f", {}, "x")

    assert guard.note("f", {}, "y") == 1
    assert guard.note("f", {"a": 1}, "y") == 1
    assert guard.note("g", {}, "y") == 1


def test_a_new_call_lets_the_others_count_anew() -> None:
    guard = LoopGuard(8)
    for _ in range(4):
        guard.note("f", {}, "x")
    guard.note("g", {}, "y")

    assert guard.note("f", {}, "x") == 2


def test_a_cycle_is_counted_like_a_single_call() -> None:
    guard = LoopGuard(8)
    counts = [[guard.note(name, {}, "same") for name in ("f", "g", "h")] for _ in range(4)]

    assert counts[-1][-1] == 4


def test_a_refused_call_counts_as_a_repetition() -> None:
    guard = LoopGuard(8)
    guard.note("f", {}, "x")

    assert guard.note("f", {}, "not run", refused=True) == 2
    assert guard.note("f", {}, "x") == 3


def test_a_call_is_refused_before_it_repeats_itself_too_often() -> None:
    guard = LoopGuard(8)
    for count in range(REFUSE_AT - 1):
        assert not guard.refuses("f", {}), count
        guard.note("f", {}, "x")

    assert guard.refuses("f", {})
    assert not guard.refuses("f", {"a": 1})
    assert "'f'" in refusal("f")


def test_the_model_is_reminded_from_the_third_time_on() -> None:
    guard = LoopGuard(8)

    assert guard.reminder(REMIND_AT - 1) == ""
    assert "3 times" in guard.reminder(REMIND_AT)


def test_the_run_ends_at_the_limit() -> None:
    guard = LoopGuard(8)

    assert not guard.is_loop(7)
    assert guard.is_loop(8)


def test_without_a_limit_nobody_is_reminded_refused_or_ended() -> None:
    guard = LoopGuard(None)
    count = max(guard.note("f", {}, "x") for _ in range(20))

    assert count == 20
    assert not guard.refuses("f", {})
    assert not guard.is_loop(count)
    assert guard.reminder(count) == ""


def test_arguments_of_any_kind_are_told_apart() -> None:
    guard = LoopGuard(8)
    guard.note("f", "{", "x")

    assert guard.note("f", "{", "x") == 2
    assert guard.note("f", {1, 2}, "x") == 1
