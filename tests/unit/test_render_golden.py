"""The renders of the official templates, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent._core.render import RENDERED_GENERATIONS, render_prompt
from kimi_agent.errors import ConfigurationError

if TYPE_CHECKING:
    from kimi_agent.json_types import JsonObject

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
FILES = {
    "k2-0711": "kimi-k2-0711",
    "k2": "kimi-k2-instruct",
    "k2-thinking": "kimi-k2-thinking",
    "k2.5": "kimi-k2.5",
    "k2.6": "kimi-k2.6",
    "k3": "kimi-k3",
}
CASES = [
    pytest.param(generation, json.loads(line), id=f"{generation}-{json.loads(line)['name']}")
    for generation, name in FILES.items()
    for line in (GOLDEN / f"{name}.jsonl").read_text("utf-8").splitlines()
]


def arguments_of(case: JsonObject) -> dict[str, Any]:
    """The template arguments of a golden render under the names that `render_prompt` gives them."""
    arguments = dict(case["kwargs"])
    for name in ("thinking_effort", "reasoning_effort"):
        if name in arguments:
            arguments["effort"] = arguments.pop(name)
    return arguments


@pytest.mark.parametrize(("generation", "case"), CASES)
def test_a_prompt_equals_the_render_of_the_official_template(generation: str, case: JsonObject) -> None:
    def render() -> str:
        return render_prompt(case["messages"], case["tools"], generation=generation, **arguments_of(case))

    if case["text"] is None:
        with pytest.raises(ConfigurationError):
            render()
    else:
        assert render() == case["text"]


def test_every_generation_but_the_newest_k2_has_golden_renders() -> None:
    assert set(RENDERED_GENERATIONS) - set(FILES) == {"k2.7"}
