"""The reference pages name everything there is, and only that."""

from __future__ import annotations

import ast
import dataclasses
import re
from typing import TYPE_CHECKING, get_args

import pytest

from docs.generate_api import ARCHITECTURE, architecture_page
from docs.generate_api import PAGE as API_PAGE
from docs.generate_api import page as api_page
from kimi_agent import errors, events, options, results
from kimi_agent._core import lessons
from kimi_agent.dialects import ENGINES, Engine
from tests.docs.markdown import ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Iterable

REFERENCE = ROOT / "docs" / "reference"
PACKAGE = ROOT / "kimi_agent"
RAISED = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, errors.KimiAgentError)
]
EVENTS: list[type] = [
    *get_args(events.ModelEvent),
    *get_args(events.ToolEvent),
    *(events.StepStarted, events.RetryScheduled, events.StepFinished),
]
VALUES = [options.ModelOptions, options.RunLimits]
RESULTS = [results.RunResult, results.ToolCallRecord, results.StepRecord, results.Usage, results.Repair]


def missing(words: Iterable[str], page: str) -> list[str]:
    text = (REFERENCE / page).read_text("utf-8")
    return [word for word in words if f"`{word}`" not in text]


def field_names(classes: Iterable[type]) -> list[str]:
    return [field.name for each in classes for field in dataclasses.fields(each)]


def test_the_api_page_is_what_the_generator_writes() -> None:
    assert API_PAGE.read_text("utf-8") == api_page(), "run: python docs/generate_api.py"


def test_every_error_is_explained() -> None:
    assert missing((error.__name__ for error in RAISED), "errors.md") == []


def test_every_event_and_its_fields_are_explained() -> None:
    assert missing((event.__name__ for event in EVENTS), "events.md") == []
    assert missing(field_names(EVENTS), "events.md") == []


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.__name__)
def test_every_option_is_explained(value: type) -> None:
    assert missing(field_names([value]), "options.md") == []


def test_every_field_of_a_result_is_explained() -> None:
    assert missing(field_names(RESULTS), "results.md") == []


def test_every_engine_is_listed() -> None:
    assert missing(ENGINES, "dialects.md") == []
    assert missing(field_names([Engine]), "dialects.md") == []


def test_the_repairs_page_lists_the_repairs_that_exist() -> None:
    first_table = (REFERENCE / "repairs.md").read_text("utf-8").partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", first_table, re.MULTILINE)

    assert sorted(listed) == sorted(repair_kinds())


def repair_kinds() -> set[str]:
    """The first argument of every call that reports a repair, and what refusals teach."""
    kinds = {kind for kind, _, _ in lessons._LESSONS}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and (kind := kind_reported(node)) is not None:
                kinds.add(kind)
    return kinds


def kind_reported(call: ast.Call) -> str | None:
    function = ast.unparse(call.func).rpartition(".")[2]
    if function not in ("repair", "_repair", "note_repair", "Repair"):
        return None
    named = [keyword.value for keyword in call.keywords if keyword.arg == "kind"]
    for argument in [*named, *call.args[:1]]:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            return argument.value
    return None


def test_the_architecture_page_names_every_module() -> None:
    text = ARCHITECTURE.read_text("utf-8")
    modules = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")]

    assert [module for module in modules if "__init__" not in module and f"`{module}`" not in text] == []
    assert text == architecture_page(), "run: python docs/generate_api.py"


def test_the_picture_of_the_layers_names_no_module_that_is_gone() -> None:
    picture = next(blocks(ARCHITECTURE)).text
    cells = [line.strip("│ ") for line in picture.partition("_core/")[2].partition("├")[0].split("\n")]
    drawn = re.findall(r"\w+", " ".join(cell.partition("│")[0] for cell in cells))
    core = [path.stem for path in (PACKAGE / "_core").glob("*.py")]

    assert [module for module in drawn if module not in core] == []
    assert len(drawn) > len(core) // 2


def test_each_core_dependency_has_its_reason() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    listed = project.partition("dependencies = [")[2].partition("]")[0]
    names = re.findall(r'"([\w-]+)', listed)
    text = (ROOT / "docs" / "explanation" / "dependencies.md").read_text("utf-8")

    assert [name for name in names if f"| `{name}` |" not in text] == []
    assert len(names) > 3


def test_each_promised_behaviour_has_a_test_and_each_test_its_promise() -> None:
    promised = re.findall(r"^\| (B-\d{3}) \|", (REFERENCE / "behaviour.md").read_text("utf-8"), re.MULTILINE)
    tested: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        tested |= set(re.findall(r"# (B-\d{3})\b", path.read_text("utf-8")))

    assert promised == sorted(set(promised))
    assert sorted(tested) == promised


def test_the_readme_has_the_two_commands_each_on_one_line() -> None:
    commands = [
        block.text
        for block in blocks(ROOT / "README.md")
        if re.match(r"python3 -m venv .*\.venv && ", block.text)
    ]

    assert len(commands) == 2
    assert all(command.count("\n") == 1 for command in commands)
    assert commands[0].endswith(" && .venv/bin/python examples/quickstart.py\n")
    assert commands[1].endswith(" && .venv/bin/python -m pytest -q\n")
