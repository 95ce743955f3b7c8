"""Argument text → the object a tool is called with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kimi_agent._core.arguments import (
    MalformedArgumentsError,
    decode_arguments,
    describe_violation,
    shown_schema,
)
from kimi_agent._core.schema_check import first_violation
from kimi_agent.messages import ToolSpec


def spec(*required: str, **properties: Any) -> ToolSpec:
    return ToolSpec(
        name="f", parameters={"type": "object", "properties": properties, "required": list(required)}
    )


STRING = {"type": "string"}
NUMBERS = {"type": "array", "items": {"type": "integer"}}


def test_an_object_is_decoded() -> None:
    decoded = decode_arguments('{"a": 1}', spec())

    assert (decoded.value, decoded.leniency) == ({"a": 1}, None)


def test_what_was_forgiven_is_told() -> None:
    assert "comma" in str(decode_arguments('{"a": 1,}', spec()).leniency)


def test_text_that_is_no_json_is_told_with_the_fault_and_the_schema() -> None:
    with pytest.raises(MalformedArgumentsError, match=r"'f'.*not valid JSON.*column.*\"properties\""):
        decode_arguments('{"a": }', spec())


@pytest.mark.parametrize("text", ["[1]", "7", '"plain"', "true", '"[1]"', '"{"'])
def test_a_value_that_is_no_object_is_refused_and_shown(text: str) -> None:
    with pytest.raises(MalformedArgumentsError, match="one JSON object") as caught:
        decode_arguments(text, spec())
    assert text in str(caught.value)


def test_an_object_encoded_twice_is_decoded_twice() -> None:
    decoded = decode_arguments(json.dumps('{"a": "x"}'), spec("a", a=STRING))

    assert decoded.value == {"a": "x"}
    assert "twice" in str(decoded.leniency)


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (NUMBERS, "[1, 2]", [1, 2]),
        ({"type": "object"}, '{"b": 1}', {"b": 1}),
        ({"type": "integer"}, "7", 7),
        ({"type": ["integer", "null"]}, "7", 7),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        ({"$ref": "#/$defs/N"}, "[3]", [3]),
        ({"type": "array", "items": {"type": "object"}}, ['{"b": 1}'], [{"b": 1}]),
        ({"type": "object", "properties": {"b": NUMBERS}}, {"b": "[1]"}, {"b": [1]}),
        ({"oneOf": [{"$ref": "#/$defs/N"}]}, "[3]", [3]),
    ],
)
def test_a_value_encoded_twice_is_decoded_where_the_schema_wants_no_string(
    schema: Any, value: Any, expected: Any
) -> None:
    one = spec("a", a=schema)
    one.parameters["$defs"] = {"N": NUMBERS}
    decoded = decode_arguments(json.dumps({"a": value}), one)

    assert decoded.value == {"a": expected}
    assert "twice" in str(decoded.leniency)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (STRING, "[1]"),
        ({}, "[1]"),
        ({"type": ["string", "array"]}, "[1]"),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, "[1]"),
        ({"anyOf": [{}, {"type": "array"}]}, "[1]"),
        ({"enum": ["7", "8"]}, "7"),
    ],
)
def test_a_string_stays_one_where_the_schema_takes_it(schema: Any, value: str) -> None:
    decoded = decode_arguments(json.dumps({"a": value}), spec("a", a=schema))

    assert (decoded.value, decoded.leniency) == ({"a": value}, None)


def test_a_string_stays_one_beside_a_value_that_was_encoded_twice() -> None:
    one = spec("a", "b", a=NUMBERS, b=STRING, c={"anyOf": [False, {"type": "array"}]}, d={})
    decoded = decode_arguments('{"a": "[1]", "b": "[2]", "c": "[3]", "d": "[4]", "e": "[5]"}', one)

    assert decoded.value == {"a": [1], "b": "[2]", "c": [3], "d": "[4]", "e": "[5]"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (NUMBERS, "[1, "),
        (NUMBERS, "{}"),
        (NUMBERS, '["x"]'),
        ({"type": "integer"}, "seven"),
        ({"type": "integer"}, "[" * 100_000),
        (True, 3),
    ],
)
def test_what_does_not_fit_either_way_is_left_for_the_check(schema: Any, value: Any) -> None:
    one = spec("a", "b", a=schema)
    decoded = decode_arguments(json.dumps({"a": value}), one)

    assert (decoded.value, decoded.leniency) == ({"a": value}, None)
    assert first_violation(decoded.value, one.parameters) is not None


@pytest.mark.parametrize(
    "text",
    [
        '{"arguments": {"a": "x"}}',
        '{"parameters": {"a": "x"}}',
        '{"input": {"a": "x"}}',
        '{"args": "{\\"a\\": \\"x\\"}"}',
        '{"name": "f", "kwargs": {"a": "x"}}',
    ],
)
def test_wrapped_arguments_are_unwrapped_where_only_that_fits(text: str) -> None:
    decoded = decode_arguments(text, spec("a", a=STRING))

    assert decoded.value == {"a": "x"}
    assert "inside" in str(decoded.leniency)


@pytest.mark.parametrize(
    "text",
    [
        '{"arguments": {"b": "x"}}',
        '{"arguments": 3}',
        '{"arguments": "{"}',
        '{"arguments": {"a": "x"}, "b": 1}',
        '{"wrapper": {"a": "x"}}',
    ],
)
def test_arguments_that_do_not_fit_unwrapped_stay_wrapped(text: str) -> None:
    assert decode_arguments(text, spec("a", a=STRING)).value == json.loads(text)


def test_a_tool_may_have_an_argument_called_like_a_wrapper() -> None:
    text = '{"input": {"a": "x"}}'

    assert decode_arguments(text, spec("a", a=STRING, input={"type": "object"})).value == json.loads(text)
    assert decode_arguments(text, ToolSpec(name="f", parameters={"required": ["a"]})).value == {"a": "x"}


def test_deep_arguments_are_left_as_they_are() -> None:
    deep: Any = "1"
    schema: Any = {"type": "integer"}
    for _ in range(40):
        deep, schema = [deep], {"type": "array", "items": schema}

    assert decode_arguments(json.dumps({"a": deep}), spec("a", a=schema)).value == {"a": deep}


def test_a_violation_is_told_with_its_place_its_fault_and_the_schema_there() -> None:
    one = spec("a", a={"type": "object", "properties": {"b": NUMBERS}})
    violation = first_violation({"a": {"b": [1, "x"]}}, one.parameters)
    assert violation is not None
    told = describe_violation(violation, one)

    assert "'f'" in told
    assert "$.a.b[1]" in told
    assert "string" in told
    assert '{"type":"integer"}' in told


def test_a_long_schema_is_cut() -> None:
    shown = shown_schema({"enum": ["x" * 10] * 1000})

    assert len(shown) < 2100
    assert shown.endswith("…")
    assert shown_schema({"é": {1, 2}}).startswith('{"é":')
