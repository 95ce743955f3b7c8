"""What the model may call."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kimi_agent.errors import KimiAgentError, ToolDefinitionError
from kimi_agent.messages import ToolCall
from kimi_agent.tools import (
    Approval,
    InvalidArgumentsError,
    Tool,
    ToolContext,
    ToolError,
    tool,
    tools_by_name,
)

CALL = ToolCall(index=0, id="functions.f:0", name="f", arguments={}, step=1)
CONTEXT = ToolContext(call=CALL, step=1, deps="deps")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@tool
def get_weather(city: str, days: int = 1) -> str:
    """Weather of a city.

    Args:
        city: Its name.
    """
    return f"{city} {days}"


def by_hand(*, name: str = "f", function: Any = dict, parameters: Any = SCHEMA) -> Tool:
    return Tool(name=name, function=function, parameters=parameters)


def test_a_function_becomes_a_tool_and_can_still_be_called() -> None:
    assert isinstance(get_weather, Tool)
    assert get_weather("Oslo", days=2) == "Oslo 2"
    assert get_weather.spec.name == "get_weather"
    assert get_weather.spec.description == "Weather of a city."
    assert get_weather.spec.parameters["required"] == ["city"]


def test_arguments_are_validated_before_the_call_is_made() -> None:
    assert get_weather.prepare({"city": "Oslo", "days": "2"}, CONTEXT)() == "Oslo 2"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["get_weather", "$.city", "required"]),
        ({"city": "Oslo", "days": "many"}, ["$.days", "'many'", "integer"]),
        ({"city": "Oslo", "town": 1}, ["$.town"]),
    ],
)
def test_arguments_that_do_not_fit_are_told_with_place_fault_and_schema(
    arguments: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(InvalidArgumentsError) as caught:
        get_weather.prepare(arguments, CONTEXT)

    told = str(caught.value)
    assert [word for word in words if word not in told] == []
    assert '"properties"' in told
    assert isinstance(caught.value, ToolError)


def test_a_context_is_passed_on_and_not_declared() -> None:
    @tool
    def look(context: ToolContext, city: str) -> tuple[Any, str]:
        return context.deps, city

    assert look.spec.parameters["required"] == ["city"]
    assert look.prepare({"city": "Oslo"}, CONTEXT)() == ("deps", "Oslo")


def test_a_tool_built_by_hand_gets_one_dict_that_fits_its_schema() -> None:
    assert by_hand().prepare({"city": "Oslo"}, CONTEXT)() == {"city": "Oslo"}
    with pytest.raises(InvalidArgumentsError, match=r"'f'.*'city' is required"):
        by_hand().prepare({}, CONTEXT)


def test_a_tool_built_by_hand_needs_no_schema() -> None:
    assert Tool(name="f", function=dict).prepare({"a": 1}, CONTEXT)() == {"a": 1}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": " "}, ["name"]),
        ({"function": "no function"}, ["'f'", "callable", "no function"]),
        ({"parameters": ["city"]}, ["'f'", "JSON Schema", "city"]),
    ],
)
def test_a_tool_that_cannot_work_is_refused(fields: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        by_hand(**fields)

    assert [word for word in words if word not in str(caught.value)] == []


def test_async_functions_are_known_whatever_wraps_them() -> None:
    async def look(city: str) -> str:
        return city

    class Robot:
        async def __call__(self, city: str) -> str:
            return city

    assert tool(look).is_async
    assert tool(Robot()).is_async
    assert by_hand(function=partial(partial(look), "Oslo")).is_async
    assert not get_weather.is_async


def test_tools_are_found_by_name() -> None:
    def look(city: str) -> str:
        return city

    named = tools_by_name([get_weather, look])

    assert list(named) == ["get_weather", "look"]
    assert named["get_weather"] is get_weather
    assert tools_by_name([]) == {}


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="'get_weather'"):
        tools_by_name([get_weather, by_hand(name="get_weather")])


def test_what_is_neither_function_nor_tool_is_refused() -> None:
    odd: Any = "get_weather"
    with pytest.raises(ToolDefinitionError, match="'get_weather'"):
        tools_by_name([odd])


def test_an_approval_allows_or_denies() -> None:
    assert Approval.allow() == Approval(allowed=True)
    assert Approval.allow(arguments={"a": 1}).arguments == {"a": 1}
    assert Approval.deny("not now") == Approval(allowed=False, reason="not now")
    assert issubclass(ToolError, KimiAgentError)
