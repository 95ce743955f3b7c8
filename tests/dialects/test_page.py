"""The page of the dialects says what the data modules say."""

from __future__ import annotations

import dataclasses

import pytest

from docs.generate_dialects import PAGE, Sources, page
from kimi_agent.dialects import ENGINES, GENERATIONS, Engine, Generation, engine, generation


def section(name: str) -> str:
    """What the page says of one value."""
    return page().partition(f"### `{name}`\n")[2].partition("\n##")[0]


def test_the_page_is_what_the_generator_writes() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m docs.generate_dialects"


@pytest.mark.parametrize("name", [*ENGINES, *GENERATIONS])
def test_every_fact_of_a_value_is_on_the_page(name: str) -> None:
    value = ENGINES.get(name) or GENERATIONS[name]
    said = section(name)

    for field in dataclasses.fields(value):
        fact = getattr(value, field.name)
        is_default = fact in (field.default, getattr(field, "default_factory", dict)) or fact in ((), {}, "")
        assert field.name in ("name", "source") or is_default or f"`{field.name}`" in said


def test_every_field_is_explained() -> None:
    text = page()

    for kind in (Engine, Generation):
        for field in dataclasses.fields(kind):
            assert f"- `{field.name}`: " in text or field.name == "name"


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "generic"])
def test_every_engine_has_its_source(name: str) -> None:
    assert "Source" in section(name)


def test_the_generations_have_one_source_with_its_date() -> None:
    assert Sources(generation).shared.startswith("Sources, read October 2026")
    assert page().count(Sources(generation).shared) == 1
    assert Sources(engine).shared == ""
