"""Which tool a call means: from its id, from its name, or from its arguments alone."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kimi_agent._core.lenient_json import UnreadableError, read_value
from kimi_agent._core.schema_check import fits
from kimi_agent.dialects.k2_format import CALL_ID_PREFIX
from kimi_agent.json_types import is_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kimi_agent.json_types import JsonObject
    from kimi_agent.messages import ToolSpec

_INDEX = re.compile(r":\d*\s*\Z")
_GLUED_INDEX = re.compile(r"[_:\-]\d+\Z")
_PREFIX = re.compile(r"\A(?:functions?|tools?)[.:/_]", re.IGNORECASE)
_UNSAFE = re.compile(r"[^a-zA-Z0-9_-]")

# Ids that other services hand out; none of them holds a function's name. Seen in the wild on K2
# histories that came from elsewhere (MoonshotAI/K2-Vendor-Verifier README, October 2026).
_FOREIGN_ID = re.compile(
    r"""
    (?: (?:call|toolu|tooluse|tool|fc|chatcmpl|chatcmpl-tool|function-call|id)[_-](?=[\w-]*\d)[\w-]*
      | [0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}      # a UUID
      | [0-9a-f]{16,}                                      # a hash
      | (?=[\w-]*[A-Z])(?=[\w-]*\d)[A-Za-z0-9]{20,}        # random letters and digits (llama.cpp)
      | \d*                                                # a bare counter, or nothing
    )\Z
    """,
    re.VERBOSE,
)

_LONGEST_NAME: Final = 600
_NAME_KEYS: Final = ("name", "tool", "tool_name", "function", "function_name")
_ARGUMENT_KEYS: Final = ("arguments", "parameters", "input", "args")


@dataclass(frozen=True, slots=True, kw_only=True)
class NameFound:
    """A tool found by its arguments."""

    name: str
    arguments: str
    """The argument text without the name."""
    how: str
    """In words, for a repair."""


def call_id(name: str, position: int) -> str:
    """The id K2 was trained on: `functions.NAME:N`, N counting all calls of the conversation from 0."""
    return f"{CALL_ID_PREFIX}{name}:{position}"


def resolve_name(spoken: str, tools: Mapping[str, ToolSpec]) -> str | None:
    """The tool of `tools` that an id or a name stands for, or `None`.

    The closest reading wins: the text itself, then without index, then without prefix, then its last
    dotted part, then with characters that servers replace in names replaced.
    """
    readings = list(dict.fromkeys(_readings(spoken.strip())))
    sent = {spec.wire_name: name for name, spec in tools.items()}
    for reading in readings:
        if reading in sent:
            return sent[reading]
        if reading in tools:
            return reading
    by_safe_name: dict[str, str | None] = {}
    for name in tools:
        safe = _UNSAFE.sub("_", name)
        by_safe_name[safe] = None if safe in by_safe_name else name
    for reading in readings:
        if name := by_safe_name.get(_UNSAFE.sub("_", reading)):
            return name
    return None


def _readings(text: str) -> Iterator[str]:
    plain = _INDEX.sub("", text)
    for reading in (text, plain):
        yield reading
        yield _PREFIX.sub("", reading, count=1)
    bare = _PREFIX.sub("", plain, count=1)
    for reading in (bare, _GLUED_INDEX.sub("", bare)):
        yield reading
        yield reading.rpartition(".")[2]


def spoken_name(header: str) -> str:
    """The name a call's id holds, tool or not; `""` if the id is of a kind that holds none."""
    text = header.strip()[:_LONGEST_NAME]
    bare = _PREFIX.sub("", _INDEX.sub("", text), count=1)
    if _FOREIGN_ID.match(text) or _FOREIGN_ID.match(bare):
        return ""
    return bare


def name_of_arguments(text: str, tools: Mapping[str, ToolSpec]) -> NameFound | None:
    """The tool that a call means whose id names none, told by its argument text."""
    try:
        value: Any = read_value(text).value
    except UnreadableError:
        return None
    if not is_object(value):
        return None
    if named := name_inside(value, tools):
        name, rest = named
        return NameFound(
            name=name,
            arguments=json.dumps(rest, ensure_ascii=False, separators=(",", ":")),
            how=f"the name {name!r} stood inside the arguments",
        )
    name = fitting_tool(value, tools)
    if name is None:
        return None
    return NameFound(name=name, arguments=text, how=f"no name; {name!r} alone accepts the arguments")


def name_inside(arguments: JsonObject, tools: Mapping[str, ToolSpec]) -> tuple[str, JsonObject] | None:
    """The tool that arguments name themselves, as `{"name": TOOL, …}`, and the arguments without the name."""
    for key in _NAME_KEYS:
        named = arguments.get(key)
        if not isinstance(named, str) or (name := resolve_name(named, tools)) is None:
            continue
        if key in _properties(tools[name]):
            continue
        rest = {other: value for other, value in arguments.items() if other != key}
        for wrapper in _ARGUMENT_KEYS:
            if list(rest) == [wrapper] and is_object(rest[wrapper]):
                return name, rest[wrapper]
        return name, rest
    return None


def fitting_tool(arguments: JsonObject, tools: Mapping[str, ToolSpec]) -> str | None:
    """The one tool whose schema alone accepts `arguments`, or `None` if there is none or several.

    Tools that declare every argument go before tools that would merely put up with it.
    """
    accepting = [name for name, spec in tools.items() if fits(arguments, spec.parameters)]
    declaring = [name for name in accepting if arguments.keys() <= _properties(tools[name]).keys()]
    for candidates in (declaring, accepting):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            return None
    return None


def _properties(spec: ToolSpec) -> JsonObject:
    properties: object = spec.parameters.get("properties")
    return properties if is_object(properties) else {}
