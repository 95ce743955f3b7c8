"""Writes reference/dialects.md from the data modules: every engine and generation, its facts and sources.

    python -m docs.generate_dialects

A test compares the page with the source, so run this after changing a fact, its docstring or its source.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import TypeIs

from kimi_agent.dialects import ENGINES, GENERATIONS, Engine, Generation, engine, generation
from kimi_agent.dialects.generation import NEWEST, UNKNOWN
from kimi_agent.json_types import is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import ModuleType

PAGE: Final = Path(__file__).with_name("reference") / "dialects.md"

INTRODUCTION: Final = """\
# Engines and generations

An engine is the software that serves the model, a generation the family the model belongs to. Servers spell
a few things differently, and models were trained on different ones; an `Engine` value and a `Generation` value
say how. Both are data, and mostly about requests: replies are read in every spelling, whatever the engine is.

This page is written by `docs/generate_dialects.py`: edit `kimi_agent/dialects/`, not this file.

## How they are found

`KimiAgent(engine="auto")` tells the engine by the host of the base URL, else by the list of models where that
is asked for anyway, else by the first reply. It asks for nothing only to find out. Until something tells, a
server is `generic`, which is sent what most servers read. `generation="auto"` tells the generation by the
model's name, hosted or open-weights; a Kimi newer than this release counts as `{newest}`, and for any other
name nothing special is sent, and replies are read with every grammar.

A server that hides who it is may be named: `engine="vllm"`, `generation="k2-thinking"`, or a value of your own.
For a relay in front of Moonshot's API say `engine="moonshot"`: the others' way to switch thinking means
nothing to it, and it does not say so.
"""

READ_FROM_ANY: Final = """\
## What is read from any of them

| | spellings |
|---|---|
| reasoning | `reasoning_content`, `reasoning` |
| finish reason | `stop`, `length`, `tool_calls`, `content_filter`, and words of other APIs such as `end_turn`, \
`max_tokens`, `tool_use` |
| usage | at the top of a chunk, or inside `choices[0]` as Moonshot's API has it |
| cached tokens | `usage.cached_tokens`, `usage.prompt_tokens_details.cached_tokens` |
| errors | wrapped as `{"error": {…}}`, flat as SGLang has them, nested as gateways do, or inside a stream of \
status 200 |
| end of a stream | `[DONE]`, or a finish reason |
"""

OWN_VALUE: Final = """\
## A value of your own

```python
from kimi_agent import Engine, KimiAgent

engine = Engine(
    name="house",
    output_limit_field="max_completion_tokens",
    reasoning_fields=("reasoning",),
    start_command="serve-house MODEL",
)
agent = KimiAgent("kimi-k2", engine=engine, base_url="http://127.0.0.1:8000/v1")
```

What each sends for one conversation, whole, is kept in `tests/dialects/`. How the model itself writes calls is
another matter: [tool-call formats](../explanation/tool-call-formats.md).
"""

ENGINE_COLUMNS: Final = (
    ("engine", "name"),
    ("told by host", "hosts"),
    ("by the list of models", "owners"),
    ("output limit", "output_limit_field"),
    ("earlier reasoning", "reasoning_fields"),
    ("thinking", "thinking_field"),
)
GENERATION_COLUMNS: Final = (
    ("generation", "name"),
    ("raw text", "text_format"),
    ("thinks", "thinking"),
    ("temperature", "temperature"),
    ("without thinking", "instant_temperature"),
    ("fixed by Moonshot", "fixed_sampling"),
    ("sees earlier reasoning", "keep_reasoning"),
)


def page() -> str:
    """The whole page."""
    parts = [
        INTRODUCTION.replace("{newest}", NEWEST.name),
        "## Engines\n",
        comparison(ENGINES, ENGINE_COLUMNS),
        *section(engine, Engine, ENGINES),
        "## Generations\n",
        comparison(GENERATIONS, GENERATION_COLUMNS),
        *section(generation, Generation, {**GENERATIONS, UNKNOWN.name: UNKNOWN}),
        READ_FROM_ANY,
        OWN_VALUE,
    ]
    return "\n".join(parts)


def section(module: ModuleType, kind: type[Any], values: Mapping[str, Any]) -> Iterator[str]:
    """What each field of a kind of value means, and every value by itself."""
    sources = Sources(module)
    if sources.shared:
        yield f"{sources.shared}\n"
    article = "An" if kind.__name__[0] in "AEIOU" else "A"
    yield f"{article} `{kind.__name__}` says, beside its `name`, what follows, or else the default:\n"
    defaults = {field.name: default_of(field) for field in dataclasses.fields(kind) if field.name != "name"}
    meanings = field_docstrings(module, kind.__name__)
    for name, default in defaults.items():
        yield f"- `{name}`: {meanings.get(name, '')} Default: {shown(default)}.".replace(":  ", ": ")
    yield ""
    for name, value in values.items():
        yield f"### `{name}`\n"
        yield from facts(value, defaults, sources)


def facts(value: Any, defaults: Mapping[str, Any], sources: Sources) -> Iterator[str]:
    """What a value says otherwise than the default, and where that comes from."""
    named = sources.of(value.name)
    if named.meaning:
        yield f"{named.meaning}\n"
    said = {
        name: getattr(value, name)
        for name, default in defaults.items()
        if name != "source" and getattr(value, name) != default
    }
    for name, fact in said.items():
        note = f" ({named.notes[name]})" if name in named.notes else ""
        yield f"- `{name}`: {shown(fact)}{note}"
    if said:
        yield ""
    source = getattr(value, "source", "") or named.source
    if source:
        yield f"{source if source.startswith('Source') else f'Source: {source}'}\n"


def comparison(values: Mapping[str, Any], columns: Iterable[tuple[str, str]]) -> str:
    """A table with a value a row."""
    columns = tuple(columns)
    lines = [[title for title, _ in columns], ["---"] * len(columns)]
    lines += [[cell(getattr(value, field)) for _, field in columns] for value in values.values()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell(value: Any) -> str:
    """A fact in a table; nothing where there is none."""
    if value in (None, "", (), {}):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shown(value)


def shown(value: Any) -> str:
    """A fact in words and code."""
    if value in ("", (), {}):
        return "none"
    if _is_tuple(value):
        return ", ".join(map(shown, value))
    if is_object(value):
        return ", ".join(f"{name}: `{entry}`" for name, entry in value.items())
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return f"`{value:,}`" if is_count else f"`{value}`"


def _is_tuple(value: object) -> TypeIs[tuple[Any, ...]]:
    return isinstance(value, tuple)


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The default of a field, `None` if it has to be given."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def field_docstrings(module: ModuleType, class_name: str) -> dict[str, str]:
    """What stands below each field of a class, as one line."""
    (holder,) = (
        node
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef) and node.name == class_name
    )
    found: dict[str, str] = {}
    for node, following in zip(holder.body, holder.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = _docstring(following)
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Named:
    """What the source says beside a value."""

    source: str = ""
    """The comment above it."""
    meaning: str = ""
    """The docstring below it."""
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """The comment behind each fact."""


class Sources:
    """The comments and docstrings of a data module, by the name of the value they stand at."""

    def __init__(self, module: ModuleType) -> None:
        text = inspect.getsource(module)
        self._lines = text.splitlines()
        self._found: dict[str, Named] = {}
        body = ast.parse(text).body
        for node, following in zip(body, [*body[1:], ast.Pass()], strict=True):
            value_name = _value_name(node)
            if not isinstance(node, ast.Assign) or value_name is None:
                continue
            self._found[value_name] = Named(
                source=self._above(node.lineno), meaning=_docstring(following), notes=self._notes(node)
            )
        self.shared = ""
        """The comment above the first value, where that stands for all of them."""
        first, *others = self._found.values()
        if not any(other.source for other in others):
            self.shared = first.source
            self._found = {name: dataclasses.replace(each, source="") for name, each in self._found.items()}

    def of(self, name: str) -> Named:
        """What is said about the value called `name`."""
        return self._found.get(name, Named())

    def _above(self, line: int) -> str:
        """The comment that ends in the line above, as one line."""
        comment: list[str] = []
        for text in reversed(self._lines[: line - 1]):
            if not text.startswith("#"):
                break
            comment.insert(0, text.removeprefix("#").strip())
        return " ".join(comment)

    def _notes(self, node: ast.Assign) -> dict[str, str]:
        """The comment behind each keyword of a call."""
        call = node.value
        if not isinstance(call, ast.Call):
            return {}
        notes: dict[str, str] = {}
        for keyword in call.keywords:
            end = keyword.value.end_lineno or keyword.value.lineno
            _, mark, note = self._lines[end - 1][keyword.value.end_col_offset or 0 :].partition("# ")
            if mark and keyword.arg is not None:
                notes[keyword.arg] = note.strip()
        return notes


def _value_name(node: ast.stmt) -> str | None:
    """The `name=` of an engine or generation that a statement makes."""
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
        return None
    for keyword in node.value.keywords:
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return None


def _docstring(node: ast.stmt) -> str:
    """The text of a statement that is nothing else, as one line."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return re.sub(r"\s+", " ", inspect.cleandoc(str(node.value.value)))
    return ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
