"""A function's parameters → JSON Schema, and back to keyword arguments."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - read by the functions under test
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from kimi_agent._core.signature import BindingError, Signature
from kimi_agent.errors import ToolDefinitionError


class Unit(Enum):
    CELSIUS = "C"
    KELVIN = "K"


class Place(BaseModel):
    """Somewhere."""

    city: str = Field(description="Its name.")
    title: str = ""


@dataclass
class Range:
    low: int
    high: int = 10


class Context:
    """What a first parameter may ask for."""


def get_weather(city: str, days: int = 1, unit: Literal["C", "F"] = "C") -> str:
    """Weather of a city.

    Only today and later.

    Args:
        city: Name, in English.
        days: How many.
    """
    return f"{city} {days} {unit}"


def bound(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    return function(**Signature(function).bind(arguments))


def faults(function: Callable[..., Any], arguments: dict[str, Any]) -> str:
    with pytest.raises(BindingError) as caught:
        Signature(function).bind(arguments)
    assert len(caught.value.faults) > 0
    return str(caught.value)


def test_name_description_and_schema_come_from_the_function() -> None:
    signature = Signature(get_weather)

    assert signature.name == "get_weather"
    assert signature.description == "Weather of a city.\n\nOnly today and later."
    assert signature.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Name, in English."},
            "days": {"type": "integer", "description": "How many.", "default": 1},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
        },
        "required": ["city"],
    }
    assert signature.context_parameter is None


def numpy_style(city: str) -> None:
    """Weather.

    Parameters
    ----------
    city : str
        Name of it.
    """


def rest_style(city: str) -> None:
    """Weather.

    :param city: Name of it.
    """


@pytest.mark.parametrize("function", [numpy_style, rest_style])
def test_docstrings_of_other_styles_describe_the_parameters(function: Callable[..., Any]) -> None:
    signature = Signature(function)

    assert signature.description == "Weather."
    assert signature.parameters["properties"]["city"]["description"] == "Name of it."


def test_a_function_without_docstring_and_parameters_has_an_empty_schema() -> None:
    def ping() -> None: ...

    signature = Signature(ping)

    assert signature.description == ""
    assert signature.parameters == {"type": "object", "properties": {}}
    assert signature.bind({}) == {}


def test_an_annotation_s_own_description_wins() -> None:
    def look(city: Annotated[str, Field(description="From the annotation.")]) -> None:
        """Look.

        Args:
            city: From the docstring.
        """

    def other(city: Annotated[str, "no field"]) -> None:
        """Look.

        Args:
            city: From the docstring.
        """

    properties = Signature(look).parameters["properties"]
    assert properties["city"]["description"] == "From the annotation."
    assert Signature(other).parameters["properties"]["city"]["description"] == "From the docstring."


def test_a_field_may_be_the_default() -> None:
    def look(days: int = Field(default=3, ge=1, description="How many.")) -> int:
        return days

    signature = Signature(look)

    assert signature.parameters["properties"]["days"] == {
        "type": "integer",
        "minimum": 1,
        "description": "How many.",
        "default": 3,
    }
    assert signature.bind({"days": 2}) == {"days": 2}
    assert "greater than or equal to 1" in faults(look, {"days": 0})


def test_arguments_are_validated_and_become_what_the_annotations_say() -> None:
    seen: dict[str, Any] = {}

    def look(
        place: Place, span: Range, unit: Unit, names: list[str], odd: dict[str, int] | None = None
    ) -> None:
        seen.update(locals())

    bound(look, {"place": {"city": "Oslo"}, "span": {"low": 1}, "unit": "K", "names": ["a"]})

    assert seen["place"] == Place(city="Oslo")
    assert seen["span"] == Range(low=1)
    assert seen["unit"] is Unit.KELVIN
    assert seen["names"] == ["a"]
    assert seen["odd"] is None


def test_only_what_was_given_is_passed_on() -> None:
    assert Signature(get_weather).bind({"city": "Oslo"}) == {"city": "Oslo"}


def test_faults_say_where_and_what() -> None:
    told = faults(get_weather, {"days": "many", "unit": "K"})

    assert "$.city: Field required" in told
    assert "$.days" in told
    assert "$.unit" in told

    def look(places: list[Place]) -> None: ...

    assert "$.places[1].city" in faults(look, {"places": [{"city": "a"}, {}]})


def test_unknown_arguments_are_refused() -> None:
    assert "$.town" in faults(get_weather, {"city": "Oslo", "town": "Bergen"})


def test_further_arguments_reach_a_function_that_takes_any() -> None:
    def look(city: str, **more: Any) -> dict[str, Any]:
        return {"city": city, **more}

    assert bound(look, {"city": "Oslo", "a": 1}) == {"city": "Oslo", "a": 1}
    assert Signature(look).parameters["additionalProperties"] is True


def test_parameters_may_have_names_that_are_taken_elsewhere() -> None:
    def look(
        model_config: str, schema: int, json: int, self: int, copy: int, p0: str, _hidden: int = 0
    ) -> list[Any]:
        return [model_config, schema, json, self, copy, p0, _hidden]

    values = {"model_config": "a", "schema": 1, "json": 2, "self": 3, "copy": 4, "p0": "b", "_hidden": 5}

    assert bound(look, values) == ["a", 1, 2, 3, 4, "b", 5]
    assert list(Signature(look).parameters["properties"]) == list(values)


def test_a_first_parameter_for_the_context_is_no_part_of_the_schema() -> None:
    def look(context: Context, city: str) -> None: ...

    signature = Signature(look, context_type=Context)

    assert signature.context_parameter == "context"
    assert list(signature.parameters["properties"]) == ["city"]


def test_the_context_can_only_be_the_first_parameter() -> None:
    def look(city: str, context: Context) -> None: ...

    with pytest.raises(ToolDefinitionError, match="look"):
        Signature(look, context_type=Context)


def test_keyword_only_parameters_are_parameters() -> None:
    def look(*, city: str) -> str:
        return city

    assert bound(look, {"city": "Oslo"}) == "Oslo"


class Robot:
    """A robot."""

    def move(self, by: int) -> int:
        """Move."""
        return by

    def __call__(self, by: int) -> int:
        """Move at once.

        Args:
            by: How far.
        """
        return by

    @staticmethod
    def stop(now: bool) -> bool:
        """Stop."""
        return now


def test_methods_partials_classes_and_callable_objects_have_signatures() -> None:
    assert Signature(Robot().move).name == "move"
    assert bound(Robot().move, {"by": 2}) == 2
    assert Signature(Robot.stop).bind({"now": True}) == {"now": True}

    callable_object = Signature(Robot())
    assert (callable_object.name, callable_object.description) == ("Robot", "Move at once.")
    assert callable_object.parameters["properties"]["by"]["description"] == "How far."

    fixed = Signature(partial(get_weather, days=3))
    assert fixed.name == "get_weather"
    assert fixed.parameters["required"] == ["city"]
    assert fixed.bind({"city": "Oslo"}) == {"city": "Oslo"}

    assert Signature(partial(partial(get_weather, "Oslo"), unit="F")).name == "get_weather"
    assert bound(Range, {"low": 1, "high": 2}) == Range(1, 2)


def test_titles_that_pydantic_makes_are_left_out_and_other_titles_kept() -> None:
    def look(title: str, place: Place, choice: Literal["title"] = "title") -> None: ...

    parameters = Signature(look).parameters

    assert parameters["properties"]["title"] == {"type": "string"}
    assert parameters["properties"]["choice"] == {"type": "string", "const": "title", "default": "title"}
    assert parameters["$defs"]["Place"]["properties"]["title"] == {"type": "string", "default": ""}
    assert "title" not in parameters["$defs"]["Place"]


def test_titles_inside_lists_of_schemas_are_left_out() -> None:
    def look(where: Place | Range | None = None) -> None: ...

    assert '"title":' not in str(Signature(look).parameters["properties"]["where"])


# --- what cannot be a tool ---------------------------------------------------------------------------


def refused(function: Callable[..., Any]) -> str:
    with pytest.raises(ToolDefinitionError) as caught:
        Signature(function)
    return str(caught.value)


def test_a_parameter_without_annotation_is_refused() -> None:
    def look(city: str) -> None: ...

    del look.__annotations__["city"]

    told = refused(look)

    assert "'look'" in told
    assert "'city'" in told
    assert "`city: str`" in told


def test_parameters_that_cannot_be_passed_by_name_are_refused() -> None:
    def positional(city: str, /) -> None: ...
    def starred(*cities: str) -> None: ...

    assert "by name" in refused(positional)
    assert "*cities" in refused(starred)


def test_a_lambda_is_refused() -> None:
    assert "lambda" in refused(lambda: None)


def test_an_annotation_that_cannot_be_resolved_is_refused() -> None:
    def look(where: str) -> None: ...

    look.__annotations__["where"] = "Nowhere"

    told = refused(look)

    assert "Nowhere" in told
    assert "module level" in told


def test_an_annotation_without_json_schema_is_refused() -> None:
    def arbitrary(where: Robot) -> None: ...
    def callback(where: Callable[[], int]) -> None: ...

    assert "'arbitrary'" in refused(arbitrary)
    assert "'callback'" in refused(callback)
