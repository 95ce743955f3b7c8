"""Arguments the simulated model fills in: plausible, and valid for the schema they are for."""

import datetime as dt
import enum
import re
import uuid
from typing import Annotated, Any, Literal, Union

import pytest
from pydantic import AnyUrl, BaseModel, Field

from kimi_agent.testing.facts import facts_of
from kimi_agent.testing.pattern_text import matching_text
from kimi_agent.testing.schema_filler import SchemaFiller

STRING = {"type": "string"}


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: Annotated[int, Field(ge=10, le=20)]
    y: Annotated[float, Field(gt=0, lt=1)]


class Node(BaseModel):
    label: str
    children: list["Node"] = []
    parent: "Node | None" = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(multiple_of=3, ge=4)]


class Dog(BaseModel):
    kind: Literal["dog"]


class Everything(BaseModel):
    name: Annotated[str, Field(min_length=3, max_length=5)]
    long_text: Annotated[str, Field(min_length=200)]
    colour: Colour
    point: Point
    tree: Node
    pet: Annotated[Union[Cat, Dog], Field(discriminator="kind")]  # noqa: UP007 - what pydantic's docs write
    when: dt.date
    at: dt.datetime
    uid: uuid.UUID
    link: AnyUrl
    code: Annotated[str, Field(pattern=r"^[A-Z]{3}-\d{4}$")]
    tags: Annotated[list[str], Field(min_length=2, max_length=3)]
    matrix: list[list[int]]
    pair: tuple[int, str]
    unique: Annotated[set[int], Field(min_length=3)]
    maybe: int | None
    flag: bool
    choice: Literal[3, 5]
    table: dict[str, int]
    anything: Any


PROMPTS = [
    "",
    "What is the weather in Paris, Oslo and New York?",
    'Set "alpha" and "beta" to 3, 99 and -7.5 on 2026-05-01, mail ada@example.com',
    "Use blue for ABC-1234, see https://example.org/x",
    "北京 天気" * 50,
]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_arguments_fit_the_schema_of_any_model(prompt: str) -> None:
    filled = SchemaFiller(Everything.model_json_schema(), facts_of(prompt)).arguments()

    Everything.model_validate(filled)


def filled(properties: dict[str, Any], prompt: str, required: list[str] | None = None) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
    }
    return SchemaFiller(schema, facts_of(prompt)).arguments()


def test_names_go_where_the_prepositions_say() -> None:
    fields = {"destination": STRING, "origin": STRING}

    assert filled(fields, "Fly from New York to Rome") == {"destination": "Rome", "origin": "New York"}


def test_numbers_are_used_in_order() -> None:
    assert filled({"a": {"type": "integer"}, "b": {"type": "number"}}, "Add 2 and 2.5") == {"a": 2, "b": 2.5}


def test_an_optional_field_is_filled_only_if_the_prompt_speaks_of_it() -> None:
    fields = {"city": STRING, "unit": {"type": "string", "enum": ["C", "F"]}, "days": {"type": "integer"}}

    assert filled(fields, "Weather in Oslo", ["city"]) == {"city": "Oslo"}
    assert filled(fields, "Weather in Oslo in Fahrenheit", ["city"]) == {"city": "Oslo", "unit": "F"}


def test_a_text_field_takes_what_stands_after_the_colon() -> None:
    assert filled({"text": STRING}, "Save a note: buy milk") == {"text": "buy milk"}
    assert filled({"query": STRING}, "Search the web for K2 benchmarks.") == {"query": "K2 benchmarks"}
    assert filled({"path": STRING}, "Delete the file notes/a.txt now") == {"path": "notes/a.txt"}
    assert filled({"expression": STRING}, "How much is 3 * (4 + 1)?") == {"expression": "3 * (4 + 1)"}


def test_a_list_takes_everything_the_prompt_names() -> None:
    fields = {"cities": {"type": "array", "items": STRING}}

    assert filled(fields, "Compare Oslo, Lima and Rome") == {"cities": ["Oslo", "Lima", "Rome"]}


def test_references_that_lead_nowhere_or_in_circles_end() -> None:
    circle = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    lost = {"type": "object", "properties": {"x": {"$ref": "#/nowhere"}}, "required": ["x"]}
    endless = {"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]}
    fields = {letter: {"$ref": "#"} for letter in "abcdefghij"}
    wide = {"type": "object", "properties": fields, "required": list(fields)}
    joined = {"allOf": [{"$ref": "#"}, {"$ref": "#"}, {"type": "object"}]}

    for schema in (circle, lost, endless, wide, joined):
        assert isinstance(SchemaFiller(schema, facts_of("hi")).arguments(), dict)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[A-Z]{2}\d{2,4}$",
        r"\d+",
        r"^(?:abc|def)$",
        r"^[^a-z]+$",
        r"^a.c\.txt$",
        r"^\w+@\w+$",
        r"^x?y*z+$",
        "",
    ],
)
def test_a_pattern_is_matched(pattern: str) -> None:
    found = matching_text(pattern, ())

    assert found is not None
    assert re.search(pattern, found)


@pytest.mark.parametrize(
    "pattern", ["(", "(a+)+$" * 3 + "b{3}c", "[", "x" * 500, r"^(?=.*\d)(?=.*[a-z]).{8,}$"]
)
def test_a_pattern_that_is_not_understood_gives_none_and_costs_little(pattern: str) -> None:
    found = matching_text(pattern, ("a" * 5000,))

    assert found is None or re.search(pattern, found)
