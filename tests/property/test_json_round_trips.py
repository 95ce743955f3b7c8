"""What is written as JSON, server-sent events or a call id is read back as it was."""

from __future__ import annotations

import json
import math
import string
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kimi_agent._core.arguments import decode_arguments
from kimi_agent._core.bare_call import find_bare_calls
from kimi_agent._core.call_name import call_id, resolve_name, spoken_name
from kimi_agent._core.json_text import ObjectTracker, StringTracker
from kimi_agent._core.lenient_json import UnreadableError, is_json_object, read_value, split_object
from kimi_agent._core.schema_check import first_violation, fits
from kimi_agent._core.sse import SseDecoder
from kimi_agent.messages import ToolSpec
from tests.property.corpus import call, cuts, section
from tests.property.parsing import read

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from kimi_agent.json_types import JsonObject

LETTERS = st.characters(exclude_categories=["Cs"])
TEXT = st.text(LETTERS, max_size=12)
NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXT)


def values(leaves: SearchStrategy[Any] = SCALARS) -> SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
        max_leaves=8,
    )


def objects(leaves: SearchStrategy[Any] = SCALARS) -> SearchStrategy[JsonObject]:
    return st.dictionaries(TEXT, values(leaves), max_size=4)


# --- lenient JSON ------------------------------------------------------------------------------------


@given(objects(), st.booleans(), st.sampled_from((None, 2)))
def test_any_object_is_read_as_it_was_written(
    value: JsonObject, ascii_only: bool, indent: int | None
) -> None:
    reading = read_value(json.dumps(value, ensure_ascii=ascii_only, indent=indent))

    assert reading.value == value
    assert reading.leniency is None


@given(objects(), st.sampled_from(("```json\n{}\n```", "```\n{}```", "  ```JSON \n{}\n  ```\n")))
def test_an_object_in_a_code_fence_is_read_as_it_was(value: JsonObject, fence: str) -> None:
    reading = read_value(fence.replace("{}", json.dumps(value)))

    assert reading.value == value
    assert reading.leniency is not None


@given(objects().filter(bool), st.booleans())
def test_an_object_with_a_comma_before_its_end_is_read_as_it_was(value: JsonObject, space: bool) -> None:
    text = json.dumps(value).removesuffix("}") + (", \n}" if space else ",}")

    assert read_value(text).value == value


@given(objects())
def test_an_object_with_one_brace_too_many_is_read_as_it_was(value: JsonObject) -> None:
    assert read_value(json.dumps(value) + "}").value == value


@given(objects(st.one_of(st.none(), st.booleans(), st.integers(), TEXT)))
def test_an_object_as_python_writes_it_is_read_as_it_was(value: JsonObject) -> None:
    assert read_value(repr(value)).value == value


@given(TEXT, st.sampled_from("\n\t\r\x00\x1f"))
def test_an_object_with_a_raw_control_character_is_read_as_it_was(text: str, control: str) -> None:
    value = {"text": text + control}
    written = json.dumps(value, ensure_ascii=False).replace(json.dumps(control)[1:-1], control)

    assert read_value(written).value == value


@given(objects().filter(bool), st.data())
def test_a_cut_object_is_never_read(value: JsonObject, data: st.DataObject) -> None:
    whole = json.dumps(value)
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]

    assert not is_json_object(cut)
    assert split_object(cut) is None
    with pytest.raises(UnreadableError):
        read_value(cut)


@given(objects(), st.text(max_size=10), st.sampled_from(("", " ", "\n")))
def test_an_object_and_what_follows_it_are_told_apart(value: JsonObject, after: str, before: str) -> None:
    text = before + json.dumps(value)

    assert split_object(text + after) == (text, after)


@given(st.text())
def test_any_text_is_a_value_or_unreadable(text: str) -> None:
    try:
        value = read_value(text).value
    except UnreadableError:
        value = None
    json.dumps(value, allow_nan=False)


@given(objects(), st.data())
def test_the_trackers_know_strings_and_the_end_however_the_text_is_cut(
    value: JsonObject, data: st.DataObject
) -> None:
    text = json.dumps(value)
    strings, bracket = StringTracker(), ObjectTracker()
    for piece in data.draw(cuts(text)):
        assert not bracket.closed or not piece
        strings.feed(piece)
        bracket.feed(piece)

    assert not strings.inside
    assert bracket.closed


@given(st.text(alphabet='a"\\{}', max_size=20).flatmap(cuts))
def test_a_string_tracker_says_the_same_however_the_text_is_cut(pieces: list[str]) -> None:
    whole, cut, one_by_one = StringTracker(), StringTracker(), StringTracker()
    whole.feed("".join(pieces))
    for piece in pieces:
        cut.feed(piece)
    for character in "".join(pieces):
        one_by_one.feed(character)

    assert whole.inside == cut.inside == one_by_one.inside


# --- arguments and schemas ---------------------------------------------------------------------------

NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=6)


Made = tuple["JsonObject", Any]
"""A schema and a value that fits it."""


def _of_string(text: str) -> Made:
    return {"type": "string", "minLength": len(text), "maxLength": len(text)}, text


def _of_integer(number: int) -> Made:
    return {"type": "integer", "minimum": number, "exclusiveMaximum": number + 1}, number


def _of_number(amount: float) -> Made:
    return {"type": ["number", "null"], "maximum": amount}, amount


def _of_choice(choices: list[Any]) -> Made:
    return {"enum": choices}, choices[-1]


def _of_array(item: Made, count: int) -> Made:
    return {"type": "array", "items": item[0], "maxItems": count}, [item[1]] * count


def _of_union(branches: list[Made]) -> Made:
    return {"anyOf": [schema for schema, _ in branches]}, branches[-1][1]


def _of_object(members: dict[str, Made]) -> Made:
    schema: JsonObject = {
        "type": "object",
        "properties": {name: part for name, (part, _) in members.items()},
        "required": list(members),
        "additionalProperties": False,
    }
    return schema, {name: value for name, (_, value) in members.items()}


def _of_parts(parts: SearchStrategy[Made]) -> SearchStrategy[Made]:
    return st.one_of(
        st.builds(_of_array, parts, st.integers(0, 2)),
        st.lists(parts, min_size=1, max_size=3).map(_of_union),
        st.dictionaries(NAMES, parts, max_size=3).map(_of_object),
    )


def schemas_with_instances() -> SearchStrategy[Made]:
    """A simple schema and a value that fits it."""
    leaves = st.one_of(
        TEXT.map(_of_string),
        st.integers(-1000, 1000).map(_of_integer),
        st.floats(-1e9, 1e9).map(_of_number),
        st.booleans().map(lambda value: ({"type": "boolean"}, value)),
        st.just(({"type": "null"}, None)),
        st.lists(SCALARS, min_size=1, max_size=3).map(_of_choice),
    )
    return st.recursive(leaves, _of_parts, max_leaves=6)


def objects_with_schema() -> SearchStrategy[Made]:
    """A schema of an object and an object that fits it."""
    return st.dictionaries(NAMES, schemas_with_instances(), max_size=3).map(_of_object)


@given(objects_with_schema())
def test_a_value_made_for_a_schema_fits_it(made: Made) -> None:
    schema, value = made

    assert first_violation(value, schema) is None
    assert decode_arguments(json.dumps(value), ToolSpec(name="f", parameters=schema)).value == value


@given(objects_with_schema(), st.data())
def test_a_value_that_lacks_or_adds_a_member_does_not_fit(made: Made, data: st.DataObject) -> None:
    schema, value = made
    more = {**value, "zz zz": 1}
    less = dict(value)
    if less:
        del less[data.draw(st.sampled_from(sorted(less)))]

    violation = first_violation(more, schema)
    assert violation is not None
    assert violation.path == "$.zz zz"
    assert not value or not fits(less, schema)


@given(objects_with_schema())
def test_arguments_encoded_twice_or_wrapped_are_the_same_arguments(
    made: Made,
) -> None:
    schema, value = made
    assume(value)
    spec = ToolSpec(name="f", parameters=schema)
    wrapped = {"arguments": value}
    assume("arguments" not in value)

    assert decode_arguments(json.dumps(json.dumps(value)), spec).value == value
    assert decode_arguments(json.dumps(wrapped), spec).value == value


@given(values(), objects())
def test_any_schema_and_any_value_are_checked_without_an_error(value: Any, schema: JsonObject) -> None:
    violation = first_violation(value, schema)

    assert violation is None or violation.path.startswith("$")


# --- names and ids -----------------------------------------------------------------------------------

TOOL_NAMES = st.one_of(
    st.sampled_from(
        (
            *(
                "get_weather",
                "get-weather",
                "fs.read",
                "fs/read",
                "a:b",
                "db:3",
                "f2",
                "tool_7",
                "wëtter",
                "天气",
            ),
            *("mcp__files__read", "mcp__a__b", "functions.inner", "Tools.x", "a.b.c", "7", "call_me"),
        )
    ),
    st.text(string.ascii_letters + string.digits + "._-/:ßé天", min_size=1, max_size=12),
)


@given(TOOL_NAMES, st.integers(0, 10**6), st.sets(TOOL_NAMES, max_size=4))
def test_the_id_of_a_call_leads_back_to_its_tool(name: str, position: int, others: set[str]) -> None:
    tools = {each: ToolSpec(name=each) for each in (name, *others)}
    # Where one tool's whole id is another's name, the id itself wins.
    readings = {call_id(name, position), f"{name}:{position}", f"functions.{name}"}
    assume(not readings & others)

    assert resolve_name(call_id(name, position), tools) == name
    assert resolve_name(name, tools) == name


@given(TOOL_NAMES, st.integers(0, 99))
def test_a_name_without_prefix_or_without_index_leads_to_its_tool(name: str, position: int) -> None:
    tools = {name: ToolSpec(name=name)}

    assert resolve_name(f"{name}:{position}", tools) == name
    assert resolve_name(f"functions.{name}", tools) == name
    assert resolve_name(f" functions.{name}:{position}\n", tools) == name


@given(TOOL_NAMES, st.integers(0, 99), objects())
def test_a_raw_call_of_any_name_comes_back_from_text(name: str, position: int, arguments: JsonObject) -> None:
    header, text = call_id(name, position), json.dumps(arguments, ensure_ascii=False)
    parsed = read([section(call(header, text))]).parsed

    assert [(each.header, each.arguments, each.closed) for each in parsed.calls] == [(header, text, True)]
    assert parsed.content == ""


@given(TOOL_NAMES, st.integers(0, 99), objects())
def test_a_bare_call_of_any_name_comes_back_from_text(
    name: str, position: int, arguments: JsonObject
) -> None:
    header, text = call_id(name, position), json.dumps(arguments)
    before, calls = find_bare_calls(f"So be it. {header}{text}\n", {name: ToolSpec(name=name)})

    assert before == "So be it. "
    assert [(each.header, each.arguments) for each in calls] == [(header, text)]


@given(st.text())
def test_any_header_has_a_spoken_name_and_perhaps_a_tool(header: str) -> None:
    assert isinstance(spoken_name(header), str)
    assert resolve_name(header, {"f": ToolSpec(name="f")}) in (None, "f")


# --- server-sent events ------------------------------------------------------------------------------

DATA = st.binary(max_size=12).filter(lambda data: b"\n" not in data and not data.endswith(b"\r"))


@given(
    st.lists(st.lists(DATA, min_size=1, max_size=3), max_size=5),
    st.sampled_from((b"\n", b"\r\n")),
    st.lists(st.integers(0, 400), max_size=10),
    st.booleans(),
)
def test_an_event_stream_is_read_the_same_however_it_is_cut(
    events: list[list[bytes]], newline: bytes, places: list[int], comments: bool
) -> None:
    noise = [b": ping", b"id: 7", b"event: message", b"retry: 10"] if comments else []
    blocks = [newline.join([*noise, *(b"data: " + line for line in event), b"", b""]) for event in events]
    stream = b"".join(blocks)
    ends = sorted(min(place, len(stream)) for place in places)
    pieces = [stream[start:end] for start, end in zip([0, *ends], [*ends, len(stream)], strict=True)]
    decoder = SseDecoder(max_event_bytes=1000)

    seen = [data for piece in pieces for data in decoder.feed(piece)]

    assert seen == [b"\n".join(event) for event in events if any(event)]
    assert decoder.close() == []


@given(st.binary(max_size=60), st.integers(0, 60))
def test_any_bytes_are_read_as_an_event_stream_the_same_cut_in_two(stream: bytes, place: int) -> None:
    whole, cut = SseDecoder(max_event_bytes=1000), SseDecoder(max_event_bytes=1000)

    assert [*whole.feed(stream), *whole.close()] == [
        *cut.feed(stream[:place]),
        *cut.feed(stream[place:]),
        *cut.close(),
    ]


def test_numbers_json_cannot_hold_are_not_read() -> None:
    for text in ('{"a": NaN}', '{"a": Infinity}', '{"a": -Infinity}'):
        with pytest.raises(UnreadableError, match="not JSON"):
            read_value(text)
    assert math.isnan(json.loads("NaN"))
