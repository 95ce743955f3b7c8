"""Which tool a call means."""

from __future__ import annotations

from typing import Any

import pytest

from kimi_agent._core.call_name import call_id, fitting_tool, name_inside, resolve_name, spoken_name
from kimi_agent.messages import ToolSpec


def tools(*names: str) -> dict[str, ToolSpec]:
    return {name: ToolSpec(name=name) for name in names}


def spec(tool: str, required: tuple[str, ...] = (), **types: str) -> ToolSpec:
    return ToolSpec(
        name=tool,
        parameters={
            "type": "object",
            "properties": {key: {"type": kind} for key, kind in types.items()},
            "required": list(required),
        },
    )


def test_an_id_is_what_the_model_was_trained_on() -> None:
    assert call_id("get_weather", 3) == "functions.get_weather:3"


@pytest.mark.parametrize(
    ("spoken", "name"),
    [
        ("functions.get_weather:0", "get_weather"),
        ("functions.get_weather", "get_weather"),
        ("functions:get_weather:0", "get_weather"),
        ("function.get_weather:0", "get_weather"),
        ("tools/get_weather", "get_weather"),
        ("get_weather:12", "get_weather"),
        ("get_weather:", "get_weather"),
        ("get_weather", "get_weather"),
        (" get_weather ", "get_weather"),
        ("functions_get_weather_0", "get_weather"),
        ("functions.get_weather_0", "get_weather"),
        ("get_weather-1", "get_weather"),
        ("default_api.get_weather", "get_weather"),
        ("functions.mcp__files__read:0", "mcp__files__read"),
        ("functions.fs.read:0", "fs.read"),
        ("fs_read:0", "fs.read"),
        ("functions.db/query:1", "db/query"),
        ("functions.a:b:1", "a:b"),
        ("a:b", "a:b"),
        ("functions.tool_7:0", "tool_7"),
        ("functions.wëtter:0", "wëtter"),
        ("functions.天气:0", "天气"),
        ("functions.functions.inner:0", "functions.inner"),
    ],
)
def test_an_id_or_a_name_leads_to_its_tool(spoken: str, name: str) -> None:
    offered = tools(
        *("get_weather", "mcp__files__read", "fs.read", "db/query", "a:b", "tool_7", "wëtter", "天气"),
        "functions.inner",
    )

    assert resolve_name(spoken, offered) == name


@pytest.mark.parametrize("spoken", ["", "functions.", "get_weathe", "nobody:0", "call_12ab", "0"])
def test_what_names_no_tool_leads_to_none(spoken: str) -> None:
    assert resolve_name(spoken, tools("get_weather")) is None


def test_the_closest_reading_wins() -> None:
    assert resolve_name("functions.f:0", tools("f", "functions.f")) == "functions.f"
    assert resolve_name("f:0", tools("f", "f:0")) == "f:0"


def test_a_name_that_two_tools_could_have_been_made_from_is_nobody_s() -> None:
    assert resolve_name("a_b", tools("a.b", "a/b")) is None
    assert resolve_name("a_b", tools("a.b")) == "a.b"


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("functions.get_weather:0", "get_weather"),
        ("get_weather", "get_weather"),
        ("functions.nobody:3 ", "nobody"),
        ("call_0a1b2c3d", ""),
        ("toolu_01AbCd", ""),
        ("functions.call_99:0", ""),
        ("chatcmpl-tool-0a1b2c3d4e5f", ""),
        ("123e4567-e89b-12d3-a456-426614174000", ""),
        ("0123456789abcdef", ""),
        ("pQ3kTz7Yb1Lw8Xn5Rf2Vd6Hs", ""),
        ("7", ""),
        ("", ""),
        ("call_me", "call_me"),
        ("callback", "callback"),
    ],
)
def test_a_header_speaks_a_name_or_is_of_a_kind_that_holds_none(header: str, name: str) -> None:
    assert spoken_name(header) == name


NAMING: list[tuple[dict[str, Any], tuple[str, dict[str, Any]] | None]] = [
    ({"name": "f", "a": 1}, ("f", {"a": 1})),
    ({"name": "f", "arguments": {"a": 1}}, ("f", {"a": 1})),
    ({"tool": "functions.f:0", "parameters": {"a": 1}}, ("f", {"a": 1})),
    ({"function_name": "f"}, ("f", {})),
    ({"name": "f", "arguments": "{}"}, ("f", {"arguments": "{}"})),
    ({"name": "f", "arguments": {}, "b": 1}, ("f", {"arguments": {}, "b": 1})),
    ({"name": "nobody", "a": 1}, None),
    ({"name": 3}, None),
    ({"a": "f"}, None),
]


@pytest.mark.parametrize(("arguments", "expected"), NAMING)
def test_arguments_may_name_their_tool(
    arguments: dict[str, Any], expected: tuple[str, dict[str, Any]] | None
) -> None:
    assert name_inside(arguments, tools("f")) == expected


def test_a_name_that_is_an_argument_of_the_tool_names_no_tool() -> None:
    assert name_inside({"name": "f"}, {"f": spec("f", name="string")}) is None


def test_the_one_tool_that_accepts_the_arguments_is_meant() -> None:
    offered = {"f": spec("f", ("a",), a="integer"), "g": spec("g", ("b",), b="string")}

    assert fitting_tool({"a": 1}, offered) == "f"
    assert fitting_tool({"b": "x"}, offered) == "g"
    assert fitting_tool({"a": "x"}, offered) is None
    assert fitting_tool({"c": 1}, offered) is None


def test_where_several_tools_accept_the_arguments_none_is_meant() -> None:
    assert fitting_tool({"a": 1}, {"f": spec("f", a="integer"), "g": spec("g", a="integer")}) is None


def test_a_tool_that_declares_the_arguments_goes_before_one_that_puts_up_with_them() -> None:
    offered = {"f": spec("f", a="integer"), "g": spec("g"), "h": ToolSpec(name="h", parameters={})}

    assert fitting_tool({"a": 1}, offered) == "f"
    assert fitting_tool({"b": 1}, {"g": spec("g")}) == "g"


def test_a_tool_with_an_alias_is_known_by_both_its_names() -> None:
    tools = {"fs/read": ToolSpec(name="fs/read", sent_name="fs_read_2")}

    assert resolve_name("functions.fs/read:0", tools) == "fs/read"
    assert resolve_name("functions.fs_read_2:0", tools) == "fs/read"
