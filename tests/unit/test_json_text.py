"""JSON text that is still arriving."""

from __future__ import annotations

import pytest

from kimi_agent._core.json_text import ObjectTracker, StringTracker


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("", False),
        ("{", False),
        ('{"', True),
        ('{"a"', False),
        ('{"a": "b', True),
        ('{"a": "b"}', False),
        ('{"a\\"', True),
        ('{"a\\\\"', False),
        ('{"a\\', True),
        ('\\"', True),  # outside a string a backslash escapes nothing
        ("no quote and no \\", False),
    ],
)
def test_the_end_lies_inside_a_string_after_an_odd_number_of_quotes(text: str, inside: bool) -> None:
    tracker = StringTracker()
    tracker.feed(text)

    assert tracker.inside is inside


def test_an_escape_may_be_cut_in_two() -> None:
    tracker = StringTracker()
    tracker.feed('"a\\')
    tracker.feed("")
    tracker.feed('"')

    assert tracker.inside

    tracker.feed('"')

    assert not tracker.inside


@pytest.mark.parametrize("text", ["{}", '{"a": [1, {"b": "}"}]}', "{} more", '{"a": "\\"}"}', "}", "[]"])
def test_an_object_is_closed_where_its_first_bracket_is(text: str) -> None:
    tracker = ObjectTracker()
    tracker.feed(text)

    assert tracker.closed


@pytest.mark.parametrize("text", ["", "a", "{", '{"a": "}', "[{}", '{"a": {}'])
def test_an_object_is_open_before(text: str) -> None:
    tracker = ObjectTracker()
    tracker.feed(text)

    assert not tracker.closed


def test_an_object_stays_closed() -> None:
    tracker = ObjectTracker()
    tracker.feed("{}")
    tracker.feed("{")

    assert tracker.closed
