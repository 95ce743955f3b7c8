"""Whether a JSON value fits a JSON Schema, and where it does not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kimi_agent._core.schema_check import first_violation, fits, is_type, resolve

KEYWORDS: list[tuple[Any, list[Any], list[Any]]] = [
    ({"type": "object"}, [{}], [[], "x", 1, None, True]),
    ({"type": "array"}, [[], [1]], [{}, "x"]),
    ({"type": "string"}, ["", "x"], [1, None, True]),
    ({"type": "number"}, [1, 1.5, -0.0], [True, "1"]),
    ({"type": "integer"}, [1, 1.0, -3], [1.5, True, "1"]),
    ({"type": "boolean"}, [True, False], [0, 1, "true"]),
    ({"type": "null"}, [None], [0, "", False]),
    ({"type": ["string", "null"]}, ["x", None], [1]),
    ({"type": "unheard of"}, [1, "x", None], []),
    ({"type": [3]}, [1, "x"], []),
    ({"enum": ["a", 1, None]}, ["a", 1, None, 1.0], ["b", True, 2]),
    ({"enum": "no list"}, [1], []),
    ({"const": 1}, [1, 1.0], [True, 2, "1"]),
    ({"const": None}, [None], [0]),
    ({"minimum": 2, "maximum": 4}, [2, 3.5, 4, "x"], [1.9, 4.1]),
    ({"exclusiveMinimum": 2, "exclusiveMaximum": 4}, [2.1, 3.9], [2, 4]),
    ({"minimum": "2"}, [1], []),
    ({"multipleOf": 0.1}, [0.3, 7], [0.35]),
    ({"multipleOf": 3}, [9, 0, -3], [10]),
    ({"multipleOf": 0}, [1], []),
    ({"multipleOf": 1e-300}, [1e300], []),
    ({"multipleOf": 0.5}, [10**400], []),
    ({"minLength": 2, "maxLength": 3}, ["ab", "☀☀☀", 1], ["a", "abcd"]),
    ({"minLength": "2"}, ["a"], []),
    ({"pattern": "^a+$"}, ["a", "aa", 3], ["b", ""]),
    ({"pattern": "b"}, ["abc"], ["ac"]),
    ({"pattern": r"^\p{L}+$"}, ["Zürich"], ["1"]),
    ({"pattern": "("}, ["anything"], []),
    ({"pattern": 3}, ["anything"], []),
    ({"minItems": 1, "maxItems": 2}, [[1], [1, 2], "x"], [[], [1, 2, 3]]),
    ({"items": {"type": "integer"}}, [[], [1, 2]], [["x"], [1, "x"]]),
    ({"items": False}, [[]], [[1]]),
    ({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, [["x", 1]], [[1], ["x", "y"]]),
    ({"prefixItems": [{"type": "string"}], "items": False}, [["x"]], [["x", 1]]),
    ({"items": [{"type": "string"}]}, [["x", 1]], [[1]]),
    ({"items": [{"type": "string"}], "additionalItems": False}, [["x"]], [["x", 1]]),
    ({"required": ["a"]}, [{"a": None}, "x"], [{}, {"b": 1}]),
    ({"properties": {"a": {"type": "integer"}}}, [{}, {"a": 1}, {"b": "x"}], [{"a": "x"}]),
    ({"properties": "odd", "required": "odd"}, [{"a": 1}], []),
    ({"additionalProperties": False}, [{}], [{"a": 1}]),
    ({"properties": {"a": {}}, "additionalProperties": False}, [{"a": 1}], [{"a": 1, "b": 2}]),
    ({"additionalProperties": {"type": "integer"}}, [{"a": 1}], [{"a": "x"}]),
    ({"patternProperties": {"^x_": {}}, "additionalProperties": False}, [{"x_a": 1}], [{"a": 1}]),
    ({"minProperties": 1, "maxProperties": 2}, [{"a": 1}], [{}, {"a": 1, "b": 2, "c": 3}]),
    ({"anyOf": [{"type": "string"}, {"minimum": 3}]}, ["x", 3, None], [2]),
    ({"anyOf": []}, [1], []),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, ["x", 3], [1.5, None]),
    ({"allOf": [{"minimum": 2}, {"maximum": 4}]}, [3], [1, 5]),
    ({"not": {"type": "string"}}, [1], ["x"]),
    ({"$ref": "#/$defs/N", "$defs": {"N": {"type": "integer"}}}, [1], ["x"]),
    ({"$ref": "#/$defs/a~1b~0c", "$defs": {"a/b~c": {"type": "integer"}}}, [1], ["x"]),
    ({"$ref": "#/$defs/missing"}, [1, "x"], []),
    ({"$ref": "https://example.com/schema"}, [1, "x"], []),
    ({"$ref": "#/$defs/N", "$defs": {"N": {"$ref": "#/$defs/N"}}}, [1], []),
    ({"$ref": "#/$defs/N", "$defs": {"N": False}}, [], [1]),
    ({"$ref": "#/$defs/N", "$defs": {"N": True}}, [1], []),
    ({"$ref": "#/$defs/N", "$defs": ["odd"]}, [1], []),
    ({}, [1, "x", None, {}, []], []),
    ({"unheardOf": 3, "format": "email"}, ["x"], []),
]


@pytest.mark.parametrize(("schema", "good", "bad"), KEYWORDS)
def test_a_value_fits_or_does_not(schema: Any, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not fits(value, schema)] == []
    assert [value for value in bad if fits(value, schema)] == []


VIOLATIONS: list[tuple[Any, Any, str, list[str]]] = [
    ({"a": [{"b": "x"}]}, None, "$.a[0].b", ["string", "integer"]),
    ({"a": [{}]}, None, "$.a[0]", ["'b'", "required"]),
    ({"c": 1}, None, "$.c", ["not known", "a"]),
    ({"a": 1}, {"additionalProperties": False}, "$.a", ["not known", "none"]),
    (None, {"type": ["string", "array"]}, "$", ["null", "string or array"]),
    ("c", {"enum": ["a", "b"]}, "$", ["'c'", "'a', 'b'"]),
    (2, {"const": 1}, "$", ["2", "1"]),
    (1, {"minimum": 2}, "$", ["1", "at least 2"]),
    (3, {"exclusiveMaximum": 3}, "$", ["3", "less than 3"]),
    (3, {"multipleOf": 2}, "$", ["3", "multiple of 2"]),
    ("", {"minLength": 1}, "$", ["0 characters", "at least 1"]),
    ([1, 2], {"maxItems": 1}, "$", ["2 items", "at most 1"]),
    ("b", {"pattern": "^a"}, "$", ["match", "'^a'"]),
    (1, {"anyOf": [{"type": "string"}]}, "$", ["alternatives"]),
    (1, {"not": {}}, "$", ["excluded"]),
    ([1], {"items": False}, "$[0]", ["no value"]),
    ({1}, {"type": "string"}, "$", ["set", "string"]),
]


@pytest.mark.parametrize(("value", "schema", "path", "words"), VIOLATIONS)
def test_a_violation_says_where_what_was_seen_and_what_is_expected(
    value: Any, schema: Any, path: str, words: list[str]
) -> None:
    nested = {
        "properties": {
            "a": {
                "items": {
                    "type": "object",
                    "properties": {"b": {"type": "integer"}},
                    "required": ["b"],
                }
            }
        },
        "additionalProperties": False,
    }
    violation = first_violation(value, nested if schema is None else schema)

    assert violation is not None
    assert violation.path == path
    assert [word for word in words if word not in violation.message] == []


def test_a_violation_holds_the_part_of_the_schema_that_refuses() -> None:
    part = {"type": "integer"}
    violation = first_violation({"a": "x"}, {"properties": {"a": part}})
    missing = first_violation({}, {"properties": {"a": part}, "required": ["a"]})

    assert violation is not None
    assert violation.schema == part
    assert missing is not None
    assert missing.schema == part


def test_a_schema_that_is_false_accepts_nothing_and_one_that_is_true_everything() -> None:
    assert not fits({"a": 1}, {"properties": {"a": False}})
    assert fits({"a": 1}, {"properties": {"a": True}})


def test_a_slow_pattern_does_not_hold_up_the_run() -> None:
    started = time.monotonic()

    assert fits("a" * 40 + "!", {"pattern": "^(a|aa|a?)+$"}) in (True, False)
    assert time.monotonic() - started < 2


def test_a_schema_that_refers_to_itself_ends() -> None:
    schema: dict[str, Any] = {"$defs": {"T": {"anyOf": [{"$ref": "#/$defs/T"}, {"$ref": "#/$defs/T"}]}}}
    schema["$ref"] = "#/$defs/T"
    started = time.monotonic()

    assert fits(1, schema)
    assert time.monotonic() - started < 5


def test_a_recursive_schema_checks_every_level() -> None:
    tree = {
        "$ref": "#/$defs/T",
        "$defs": {
            "T": {
                "type": "object",
                "properties": {"left": {"$ref": "#/$defs/T"}, "value": {"type": "integer"}},
            }
        },
    }

    assert fits({"left": {"left": {"value": 1}}}, tree)
    violation = first_violation({"left": {"left": {"value": "x"}}}, tree)
    assert violation is not None
    assert violation.path == "$.left.left.value"


def test_unknown_types_accept_everything() -> None:
    assert is_type(1, "unheard of")
    assert is_type(1, None)
    assert is_type(1, "integer")
    assert not is_type("x", "integer")


def test_a_reference_is_followed_to_its_end() -> None:
    root = {"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"type": "null"}}}

    assert resolve({"$ref": "#/$defs/A"}, root) == {"type": "null"}
    assert resolve({"$ref": "#"}, root) == root
    assert resolve(True, root) is True
