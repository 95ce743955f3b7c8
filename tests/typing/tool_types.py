"""The types of tools; pyright reads this file, nothing runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, assert_type

from kimi_agent import Approval, KimiAgent, Tool, ToolContext, ToolError, tool
from kimi_agent.messages import ToolSpec


@tool
async def get_weather(city: str, unit: Literal["C", "F"] = "C") -> dict[str, Any]:
    """Weather of a city."""
    if city == "Atlantis":
        raise ToolError("no such city")
    return {"city": city, "unit": unit}


@tool
def with_context(context: ToolContext, count: int) -> int:
    """Use the context."""
    assert_type(context.step, int)
    assert_type(context.deps, Any)
    return count


def plain(count: int) -> int:
    """Be a tool without decorator."""
    return count


class Robot:
    """Something that can be called."""

    async def __call__(self, by: int) -> None:
        """Move."""


BY_HAND = Tool(name="f", description="Does it.", parameters={"type": "object"}, function=dict[str, Any])


def what_a_tool_is() -> None:
    assert_type(get_weather, Tool)
    assert_type(get_weather.spec, ToolSpec)
    assert_type(get_weather.is_async, bool)
    assert_type(get_weather.prepare({"city": "Oslo"}, None), Callable[[], Any])  # pyright: ignore[reportArgumentType]
    assert_type(tool(plain), Tool)
    assert_type(Approval.allow(arguments={}), Approval)


def what_an_agent_takes_as_tools() -> None:
    KimiAgent(tools=[get_weather, with_context, plain, Robot(), BY_HAND])
    KimiAgent(tools=(tool(plain),))
    KimiAgent(tools={"f": plain}.values())
    KimiAgent(tools=plain)  # pyright: ignore[reportArgumentType]


def what_is_no_tool() -> None:
    Tool("f", "Does it.")  # pyright: ignore[reportCallIssue]
    Tool(name="f")  # pyright: ignore[reportCallIssue]
    tool("plain")  # pyright: ignore[reportArgumentType]
