"""Argument text → value: what is forgiven, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from kimi_agent._core.lenient_json import (
    UnreadableError,
    is_json_object,
    object_end,
    read_value,
    split_object,
)


def test_plain_json_is_read_without_forgiving_anything() -> None:
    reading = read_value(' {"city": "Oslo", "days": [1, 2.5, null, true]} ')

    assert reading.value == {"city": "Oslo", "days": [1, 2.5, None, True]}
    assert reading.leniency is None


@pytest.mark.parametrize("text", ["", "  \n", "null"])
def test_nothing_at_all_is_an_empty_object(text: str) -> None:
    assert read_value(text).value == {}


@pytest.mark.parametrize("text", ["[1]", "7", '"a"', "true"])
def test_a_value_that_is_no_object_is_read_as_it_is(text: str) -> None:
    assert read_value(text).value != {}


@pytest.mark.parametrize(
    ("text", "value", "word"),
    [
        ('{"a": "x\ny"}', {"a": "x\ny"}, "control"),
        ('{"a": "x\ty"}', {"a": "x\ty"}, "control"),
        ('```json\n{"a": 1}\n```', {"a": 1}, "fence"),
        ('```\n{"a": 1,}\n```', {"a": 1}, "fence"),
        ('{"a": [1, 2,], }', {"a": [1, 2]}, "comma"),
        ('{"a": ",]" ,}', {"a": ",]"}, "comma"),
        ('{"a": {"b": 1}}}', {"a": {"b": 1}}, "brace"),
        ("{'a': True, 'b': None}", {"a": True, "b": None}, "Python"),
        ("{'a': (1, 2)}", {"a": [1, 2]}, "Python"),
    ],
)
def test_what_models_are_known_to_write_is_forgiven_and_told(text: str, value: Any, word: str) -> None:
    reading = read_value(text)

    assert reading.value == value
    assert reading.leniency is not None
    assert word in reading.leniency


def test_everything_that_was_forgiven_is_told() -> None:
    leniency = str(read_value('```json\n{"a": 1,}\n```').leniency)

    assert "fence" in leniency
    assert "comma" in leniency


def test_pretty_printed_json_needs_no_forgiving() -> None:
    assert read_value('{\n  "a": 1\n}').leniency is None


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1',
        '{"a": "x',
        '{"a": ',
        "{",
        "Oslo",
        "{a: 1}",
        '{"a": 1} and more',
        '{"a": 1}{"b": 2}',
        '{"a": NaN}',
        '{"a": 1}}}',
        "{'a': {1, 2}}",
        "{'a': open}",
        "{1, 2}",
        "{'a': 1}, {'b': 2}",
        '{"a": 1e999}',
        '{"a": -1e999,}',
        "{'a': 1e999}",
        "```",
        "``````",
        "```json\n{\n```",
        "[" * 100_000,
        "{'a': " + "[" * 100_000,
        "{'a': " * 200_000,
    ],
)
def test_nothing_is_completed_or_guessed(text: str) -> None:
    with pytest.raises(UnreadableError):
        read_value(text)


def test_the_error_of_unreadable_text_says_where() -> None:
    with pytest.raises(UnreadableError, match="column 7"):
        read_value('{"a": }')


@pytest.mark.parametrize(
    ("text", "expected"), [("{}", True), (' {"a": 1}\n', True), ("[]", False), ("{", False)]
)
def test_a_json_object_is_told_from_other_text(text: str, expected: bool) -> None:
    assert is_json_object(text) is expected


def test_an_object_and_the_text_behind_it_are_split() -> None:
    assert split_object(' {"a": "}"} so') == (' {"a": "}"}', " so")
    assert split_object("{} ") == ("{}", " ")


@pytest.mark.parametrize("text", ["", "so {}", '{"a": ', "[1] so", "{" * 100_000])
def test_text_that_does_not_begin_with_a_whole_object_is_not_split(text: str) -> None:
    assert split_object(text) is None


def test_the_end_of_an_object_is_found_from_its_start() -> None:
    assert object_end('x{"a": 1}y', 1) == 9
    assert object_end("x{", 1) is None
    assert object_end("x[1]", 1) is None
