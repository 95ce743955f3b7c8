"""Tool-call deltas → calls, whatever servers do to index, id and name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent._core.call_assembler import CallAssembler, StructuredCall
from kimi_agent.events import ModelEvent, ToolCallDelta, ToolCallStarted

if TYPE_CHECKING:
    from kimi_agent.json_types import JsonObject

TOOLS = ("get_weather", "get_weather_at", "f")


def entry(
    arguments: Any = None, *, index: Any = 0, call_id: str | None = None, name: str | None = None
) -> JsonObject:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


def assembled(*entries: Any, tools: tuple[str, ...] = TOOLS) -> list[StructuredCall]:
    assembler = CallAssembler(tools)
    for one in entries:
        assembler.add([one], [])
    return list(assembler.calls)


def call(arguments: str = "", *, call_id: str = "", name: str = "") -> StructuredCall:
    return StructuredCall(id=call_id, name=name, arguments=arguments)


def test_pieces_of_one_index_are_one_call() -> None:
    assert assembled(entry(call_id="a", name="f"), entry('{"x"'), entry(":1}")) == [
        call('{"x":1}', call_id="a", name="f")
    ]


def test_calls_of_different_indexes_may_be_interleaved() -> None:
    assert assembled(
        entry("1", index=0, call_id="a", name="f"),
        entry("2", index=5, call_id="b", name="f"),
        entry("3", index=0),
        entry("4", index=5),
    ) == [call("13", call_id="a", name="f"), call("24", call_id="b", name="f")]


def test_several_entries_of_one_delta_are_taken_in_order() -> None:
    assembler = CallAssembler(TOOLS)
    assembler.add([entry("{", call_id="a", name="f"), entry("}"), "odd", None], [])

    assert assembler.calls == (call("{}", call_id="a", name="f"),)


@pytest.mark.parametrize("odd", [{}, {"function": None}, {"function": 3, "id": 7}, {"index": True}])
def test_an_entry_without_anything_useful_does_no_harm(odd: JsonObject) -> None:
    assert assembled(entry("{}", call_id="a", name="f"), odd) == [call("{}", call_id="a", name="f")]


def test_the_first_id_of_a_call_is_kept() -> None:
    assert assembled(entry(call_id="a", name="f"), entry("{", call_id="b"), entry("}", call_id="c")) == [
        call("{}", call_id="a", name="f")
    ]


def test_an_id_may_come_late() -> None:
    assert assembled(entry("{", name="f"), entry("}", call_id="a")) == [call("{}", call_id="a", name="f")]


def test_a_name_may_come_late() -> None:
    assert assembled(entry(call_id="a"), entry("{}", name="f")) == [call("{}", call_id="a", name="f")]


def test_a_name_may_come_in_pieces() -> None:
    assert assembled(entry(call_id="a", name="get_"), entry(name="weather"), entry("{}")) == [
        call("{}", call_id="a", name="get_weather")
    ]


def test_a_name_may_be_repeated() -> None:
    assert assembled(entry("{", call_id="a", name="f"), entry("}", call_id="a", name="f")) == [
        call("{}", call_id="a", name="f")
    ]


def test_a_name_that_a_longer_tool_begins_with_may_grow() -> None:
    assert assembled(entry(call_id="a", name="get_weather"), entry(name="_at"), entry("{}"))[0].name == (
        "get_weather_at"
    )


def test_a_whole_name_does_not_grow() -> None:
    assert assembled(entry(call_id="a", name="f"), entry(name="g"))[0].name == "f"


def test_a_name_grows_up_to_a_bound() -> None:
    calls = assembled(*[entry(call_id="a", name="x" * 100 + str(each)) for each in range(100)])

    assert len(calls[0].name) < 1000


@pytest.mark.parametrize("index", [None, "x", 1.5, True])
def test_entries_without_index_belong_to_the_call_with_their_id(index: Any) -> None:
    assert assembled(
        entry("1", index=index, call_id="a", name="f"),
        entry("2", index=index, call_id="b", name="f"),
        entry("3", index=index, call_id="a"),
    ) == [call("13", call_id="a", name="f"), call("2", call_id="b", name="f")]


def test_an_index_may_be_written_as_text() -> None:
    assert assembled(
        entry("1", index="0", call_id="a", name="f"),
        entry("2", index="1", call_id="b", name="f"),
        entry("3", index="0"),
    ) == [call("13", call_id="a", name="f"), call("2", call_id="b", name="f")]


def test_an_entry_without_index_and_id_continues_the_last_call() -> None:
    assert assembled(entry("{", index=None, call_id="a", name="f"), entry("}", index=None)) == [
        call("{}", call_id="a", name="f")
    ]


def test_an_entry_without_index_that_brings_a_name_begins_a_call() -> None:
    assert assembled(entry("{}", index=None, name="f"), entry("{}", index=None, name="f")) == [
        call("{}", name="f"),
        call("{}", name="f"),
    ]


def test_a_late_name_without_index_completes_the_last_call() -> None:
    assert assembled(entry(index=None, call_id="a"), entry("{}", index=None, name="f")) == [
        call("{}", call_id="a", name="f")
    ]


def test_a_new_id_without_index_begins_a_call_once_the_last_one_is_whole() -> None:
    assert assembled(
        entry("{", index=None, call_id="a", name="f"),
        entry("}", index=None, call_id="b"),
        entry("{}", index=None, call_id="c"),
    ) == [call("{}", call_id="a", name="f"), call("{}", call_id="c")]


def test_an_index_that_comes_again_with_another_id_and_name_is_another_call() -> None:
    assert assembled(entry("{}", call_id="a", name="f"), entry("{}", call_id="b", name="get_weather")) == [
        call("{}", call_id="a", name="f"),
        call("{}", call_id="b", name="get_weather"),
    ]


def test_an_index_that_comes_again_after_whole_arguments_is_another_call() -> None:
    assert assembled(entry("{}", call_id="a", name="f"), entry("{}", call_id="b", name="f")) == [
        call("{}", call_id="a", name="f"),
        call("{}", call_id="b", name="f"),
    ]


def test_an_index_that_comes_again_before_any_arguments_is_the_same_call() -> None:
    assert assembled(entry(call_id="a", name="get_"), entry("{}", call_id="b", name="weather")) == [
        call("{}", call_id="a", name="get_weather")
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"a": 1}, '{"a": 1}'), (["ü"], '["ü"]'), (None, ""), (7, ""), ("{}", "{}")],
)
def test_arguments_may_be_decoded_already(arguments: Any, text: str) -> None:
    assert assembled(entry(arguments, call_id="a", name="f")) == [call(text, call_id="a", name="f")]


def test_each_entry_of_a_whole_message_is_a_call_of_its_own() -> None:
    assembler = CallAssembler(TOOLS)
    events: list[ModelEvent] = []
    assembler.add_whole([entry("{}", call_id="a", name="f"), entry("{}", call_id="a", name="f"), 3], events)

    assert assembler.calls == (call("{}", call_id="a", name="f"), call("{}", call_id="a", name="f"))
    assert [event.index for event in events if isinstance(event, ToolCallStarted)] == [0, 1]


# --- events ------------------------------------------------------------------------------------------


def told(*entries: Any, tools: tuple[str, ...] = TOOLS) -> list[ModelEvent]:
    assembler = CallAssembler(tools)
    events: list[ModelEvent] = []
    for one in entries:
        assembler.add([one], events)
    return [*events, *assembler.close()]


def test_a_call_is_announced_once_its_name_is_an_offered_tool_s() -> None:
    assert told(entry(call_id="a", name="f"), entry("{}")) == [
        ToolCallStarted(index=0, id="a", name="f"),
        ToolCallDelta(index=0, arguments="{}"),
    ]
    assert CallAssembler(TOOLS).close() == []


def test_a_name_that_may_grow_is_announced_with_the_first_arguments() -> None:
    assert told(entry(call_id="a", name="get_weather"), entry(name="_at"), entry("{}")) == [
        ToolCallStarted(index=0, id="a", name="get_weather_at"),
        ToolCallDelta(index=0, arguments="{}"),
    ]


def test_a_call_without_arguments_is_announced_at_the_end() -> None:
    assert told(entry(call_id="a", name="unknown")) == [ToolCallStarted(index=0, id="a", name="unknown")]


def test_the_index_of_an_event_is_the_place_in_the_reply() -> None:
    events = told(entry("{}", index=7, call_id="a", name="f"), entry("{}", index=3, call_id="b", name="f"))

    assert [event.index for event in events if isinstance(event, ToolCallStarted | ToolCallDelta)] == [
        *(0, 0),
        *(1, 1),
    ]
