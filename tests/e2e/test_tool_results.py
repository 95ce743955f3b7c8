"""What a tool may return, and what the model is told of it."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from kimi_agent import Tool
from kimi_agent.testing import adaptive_reply
from tests.e2e.support import asking_for, results_told, served

pytestmark = pytest.mark.anyio

DONE = adaptive_reply("done")


class Colour(enum.Enum):
    RED = "red"


class Place(BaseModel):
    name: str
    since: dt.date


@dataclasses.dataclass
class Weather:
    city: str
    places: list[Place]


class Pair(NamedTuple):
    left: int
    right: str


def tool_returning(value: Any) -> Tool:
    def give(_: dict[str, Any]) -> Any:
        return value

    return Tool(name="give", description="Give something.", function=give)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ('plain text, as it is: ü \u2028 " {', 'plain text, as it is: ü \u2028 " {'),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (7, "7"),
        (1.5, "1.5"),
        (10**30, str(10**30)),
        ([1, "a", None], '[1, "a", null]'),
        ({"b": 1, "a": {"ü": "€"}}, '{"b": 1, "a": {"ü": "€"}}'),
        ((1, 2), "[1, 2]"),
        ({1: "number as key"}, '{"1": "number as key"}'),
        (Pair(1, "x"), '[1, "x"]'),
        (Colour.RED, '"red"'),
        (dt.date(2026, 10, 1), '"2026-10-01"'),
        (decimal.Decimal("1.10"), '"1.10"'),
        (uuid.UUID(int=0), '"00000000-0000-0000-0000-000000000000"'),
        (Path("a/b"), '"a/b"'),
        (Place(name="x", since=dt.date(2026, 1, 2)), '{"name": "x", "since": "2026-01-02"}'),
        (
            Weather("Paris", [Place(name="x", since=dt.date(2026, 1, 2))]),
            '{"city": "Paris", "places": [{"name": "x", "since": "2026-01-02"}]}',
        ),
        (ValueError, None),
    ],
    ids=repr,
)
async def test_a_result_is_told_as_text_or_json(value: Any, told: str | None) -> None:
    async with served([asking_for(("give", {})), DONE], tools=[tool_returning(value)]) as (server, agent):
        result = await agent.run("Hello")

    [seen] = results_told(server.requests[1])
    [record] = result.tool_calls
    if told is None:
        assert record.is_error
        assert "JSON cannot hold" in seen
    else:
        assert (seen, record.is_error) == (told, False)


@pytest.mark.parametrize("value", [b"\xff\x00", bytearray(b"abc"), {"inside": b"\xff"}], ids=repr)
async def test_bytes_are_refused_with_a_way_out(value: Any) -> None:
    async with served([asking_for(("give", {})), DONE], tools=[tool_returning(value)]) as (server, agent):
        result = await agent.run("Hello")

    [seen] = results_told(server.requests[1])
    assert result.tool_calls[0].is_error
    assert "'give' returned" in seen


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), [float("-inf")], object(), {"x": {object()}}],
    ids=["nan", "inf", "list of -inf", "object", "set of objects"],
)
async def test_what_json_cannot_hold_never_leaves_as_broken_json(value: Any) -> None:
    async with served([asking_for(("give", {})), DONE], tools=[tool_returning(value)]) as (server, agent):
        result = await agent.run("Hello")

    [seen] = results_told(server.requests[1])
    if not result.tool_calls[0].is_error:
        json.loads(seen, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


async def test_a_value_that_holds_itself_is_an_error_result() -> None:
    loop: list[Any] = []
    loop.append(loop)
    async with served([asking_for(("give", {})), DONE], tools=[tool_returning(loop)]) as (server, agent):
        result = await agent.run("Hello")

    assert result.tool_calls[0].is_error
    assert "JSON cannot hold" in results_told(server.requests[1])[0]


async def test_a_lone_surrogate_in_a_result_does_not_break_the_request() -> None:
    async with served([asking_for(("give", {})), DONE], tools=[tool_returning("a\ud800b")]) as (
        server,
        agent,
    ):
        result = await agent.run("Hello")

    assert len(results_told(server.requests[1])) == 1
    assert result.text == "done"


async def test_control_markers_in_a_result_are_told_as_they_are() -> None:
    text = "<|tool_calls_section_begin|><|im_end|>"
    async with served([asking_for(("give", {})), DONE], tools=[tool_returning(text)]) as (server, agent):
        result = await agent.run("Hello")

    assert results_told(server.requests[1]) == [text]
    assert result.tool_calls[0].result == text
