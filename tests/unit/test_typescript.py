from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent._core.prompt_json import compact_json, deep_sorted
from kimi_agent._core.typescript import TypeScriptError, typescript_declarations

if TYPE_CHECKING:
    from kimi_agent.json_types import JsonObject

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "tool_declarations.jsonl"
CASES = [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_declaration_equals_the_official_one_or_fails_where_it_fails(case: JsonObject) -> None:
    tools = deep_sorted(case["tools"], place="tools")

    assert compact_json(tools, place="tools") == case["k2_json"]
    if case["k25_ts"] is None:
        with pytest.raises(TypeScriptError) as raised:
            typescript_declarations(tools)
        assert str(raised.value) == "'f': " + case["k25_error"].removeprefix("ValueError: ")
    else:
        assert typescript_declarations(tools) == case["k25_ts"]


def lines_of(parameters: Any, **fields: Any) -> list[str]:
    """What stands in the namespace for one function `f`."""
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters, **fields}}
    return typescript_declarations([tool]).splitlines()[4:-1]


def one_property(schema: Any) -> list[str]:
    """The lines of a property `a` with `schema`, without their indent."""
    return [line[2:] for line in lines_of({"properties": {"a": schema}})[1:-1]]


def test_no_function_tools_give_no_text() -> None:
    assert typescript_declarations([{"type": "_plugin"}, {"type": "function", "function": {}}]) == ""


def test_a_function_may_lack_name_description_and_parameters() -> None:
    text = typescript_declarations([{"type": "function", "function": {"strict": True}}])

    assert "\ntype function = (_: {}) => any;\n" in text


def test_an_empty_line_of_a_description_stays_empty() -> None:
    assert lines_of({}, description="a\n\nb")[:3] == ["// a", "", "// b"]


def test_items_with_comments_stand_on_lines_of_their_own() -> None:
    items = {
        "type": "array",
        "items": {"type": "string", "maxLength": 5, "description": "one"},
        "minItems": 1,
    }

    assert one_property({"type": "array", "items": items}) == [
        "a?: Array<",
        "  // minItems: 1",
        "  Array<",
        "    // one",
        "    // maxLength: 5",
        "    string",
        "  >",
        ">",
    ]


def test_boolean_schemas_are_any_and_null() -> None:
    assert one_property(True) == ["a?: any"]
    assert one_property(False) == ["a?: null"]
    assert one_property({"type": "array", "items": True}) == ["a?: Array<any>"]


def test_a_reference_shows_its_own_description_and_the_definition_its_own() -> None:
    parameters = {
        "$defs": {"d": {"type": "string", "description": "a d"}},
        "properties": {"a": {"$ref": "#/$defs/d", "description": "the d", "maxLength": 1}},
    }

    assert lines_of(parameters) == [
        "// a d",
        "interface d string",
        "type f = (_: {",
        "  // the d",
        "  a?: d",
        "}) => any;",
    ]


def test_a_root_that_refers_to_itself_keeps_the_order_given_and_loses_its_index_signature() -> None:
    parameters = {
        "additionalProperties": {"type": "string"},
        "properties": {"a": {"$ref": "#"}, "b": {"type": "string"}},
        "required": ["b"],
    }

    assert lines_of(parameters)[:4] == ["interface parameters {", "  a?: parameters,", "  b: string", "}"]


def test_a_definition_that_refers_to_the_root_gets_no_interface_for_it() -> None:
    parameters = {"$defs": {"d": {"$ref": "#"}}, "properties": {}}

    assert lines_of(parameters) == ["interface d parameters", "type f = (_: {}) => any;"]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": ["string"], "enum": ["x"]}, '"x"'),
        ({"type": ["null", "integer"], "enum": [1, None]}, "1 | None"),
        ({"type": "number", "enum": [1, 1.5]}, "1 | 1.5"),
        ({"type": "boolean", "enum": [True]}, "True"),
        ({"type": "object", "enum": ["x"]}, '"x"'),
    ],
)
def test_enum_values_of_the_declared_type_are_listed(schema: JsonObject, text: str) -> None:
    assert one_property(schema) == [f"a?: {text}"]


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"type": "string", "enum": [1]}, "Enum value 1 is not of type string"),
        ({"type": "integer", "enum": ["x"]}, "Enum value x is not of type integer"),
        ({"type": ["string", "integer"], "enum": ["x"]}, "Enum type .* is not supported"),
        ({"type": ["a", "b", "null"], "enum": ["x"]}, "Enum type .* is not supported"),
        ({"description": "no type"}, "Invalid JSON Schema object"),
        ({"const": 1}, "Invalid JSON Schema object"),
        ("string", "Invalid JSON Schema object"),
        (None, "Invalid JSON Schema object"),
        ({"type": "object", "additionalProperties": "x"}, "Unknown additionalProperties: x"),
        ({"type": ["string", "date"]}, "malformed schema: KeyError"),
        ({"type": "string", "description": 5}, "malformed schema: AttributeError"),
        ({"type": "object", "properties": []}, "malformed schema: AttributeError"),
        ({"type": "object", "properties": {}, "required": None}, "malformed schema: TypeError"),
    ],
)
def test_a_schema_without_a_typescript_form_is_named_with_its_tool(schema: Any, complaint: str) -> None:
    with pytest.raises(TypeScriptError, match=f"^'f': {complaint}"):
        one_property(schema)


def test_a_reference_to_a_definition_that_is_no_object_is_refused() -> None:
    with pytest.raises(TypeScriptError, match="definition 'd' is no object"):
        lines_of({"$defs": {"d": True}, "properties": {"a": {"$ref": "#/$defs/d"}}})


def test_a_tool_that_is_no_object_is_refused() -> None:
    with pytest.raises(TypeScriptError, match=r"^a tool: malformed schema"):
        typescript_declarations(["f"])


def test_a_schema_nested_too_deeply_is_refused() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(100_000):
        schema = {"type": "array", "items": schema}

    with pytest.raises(TypeScriptError, match="RecursionError"):
        one_property(schema)
