"""Characters that a gateway cut in two, put together again."""

from __future__ import annotations

import pytest

from kimi_agent._core.half_characters import HalfJoiner, joined_halves

SUN = "\U0001f31e"
FIRST, SECOND = "\ud83c", "\udf1e"
LOST = "\ufffd"


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", ""),
        ("sunny", "sunny"),
        ("Zürich ☀", "Zürich ☀"),
        (SUN, SUN),
        (f"a{FIRST}{SECOND}b", f"a{SUN}b"),
        (f"a{FIRST}b", f"a{LOST}b"),
        (f"a{SECOND}b", f"a{LOST}b"),
        (f"{SECOND}{FIRST}", f"{LOST}{LOST}"),
    ],
)
def test_halves_are_joined_and_lone_ones_are_lost(text: str, whole: str) -> None:
    assert joined_halves(text) == whole


def test_halves_may_come_in_different_pieces() -> None:
    joiner = HalfJoiner()

    assert joiner.feed(f"a{FIRST}") == "a"
    assert joiner.feed("") == ""
    assert joiner.feed(f"{SECOND}b") == f"{SUN}b"
    assert joiner.close() == ""


def test_a_half_that_stays_alone_is_lost() -> None:
    joiner = HalfJoiner()

    assert joiner.feed(FIRST) == ""
    assert joiner.feed("b") == f"{LOST}b"
    assert joiner.feed(FIRST) == ""
    assert joiner.close() == LOST
    assert joiner.close() == ""


def test_ordinary_text_passes_at_once() -> None:
    joiner = HalfJoiner()

    assert joiner.feed("sunny") == "sunny"
    assert joiner.feed("☀") == "☀"
