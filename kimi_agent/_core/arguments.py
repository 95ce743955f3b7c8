"""Argument text → the object a tool is called with; failures worded for the model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kimi_agent._core.lenient_json import UnreadableError, read_value
from kimi_agent._core.schema_check import Violation, first_violation, fits, is_type, resolve
from kimi_agent.json_types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimi_agent.json_types import JsonObject
    from kimi_agent.messages import ToolSpec

_WRAPPERS: Final = ("arguments", "parameters", "input", "args", "kwargs")
_MAX_DEPTH: Final = 32
_SCHEMA_SHOWN: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Decoded arguments."""

    value: JsonObject
    leniency: str | None = None
    """What had to be forgiven or unwrapped, in words."""


class MalformedArgumentsError(ValueError):
    """The text cannot be read as this tool's arguments; the message is worded for the model."""


def decode_arguments(text: str, spec: ToolSpec) -> Arguments:
    """The object that `text` holds, unwrapped where only the schema of `spec` makes it fit.

    The value is not validated here; only its shape is settled.

    Raises:
        MalformedArgumentsError: the text is not a JSON object and cannot be read as one.
    """
    try:
        reading = read_value(text)
    except UnreadableError as error:
        raise MalformedArgumentsError(
            f"The arguments of {spec.wire_name!r} are not valid JSON: {error}. "
            f"Send one JSON object that fits this schema: {shown_schema(spec.parameters)}"
        ) from None
    value, leniency = reading.value, reading.leniency
    if isinstance(value, str):
        value, leniency = _decoded_twice(value), "an object encoded twice"
    if not is_object(value):
        raise MalformedArgumentsError(
            f"The arguments of {spec.wire_name!r} must be one JSON object, got: {text.strip()[:200]}. "
            f"The schema is: {shown_schema(spec.parameters)}"
        )
    return _unwrapped(value, spec, leniency)


def describe_violation(violation: Violation, spec: ToolSpec) -> str:
    """What is wrong with a call's arguments, for the model: the place, the fault, the schema."""
    return (
        f"The arguments of {spec.wire_name!r} do not fit its schema: {violation.path} {violation.message}. "
        f"Schema there: {shown_schema(violation.schema)}. "
        f"Call the tool again with arguments that fit."
    )


def shown_schema(schema: Any) -> str:
    """A schema as text, cut to a length a model can take."""
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"), default=str)
    return text if len(text) <= _SCHEMA_SHOWN else text[:_SCHEMA_SHOWN] + "…"


def _decoded_twice(text: str) -> Any:
    try:
        return read_value(text).value
    except UnreadableError:
        return None


def _unwrapped(value: JsonObject, spec: ToolSpec, leniency: str | None) -> Arguments:
    schema = spec.parameters
    if first_violation(value, schema) is not None:
        for found, candidate in _candidates(value, spec):
            if fits(candidate, schema):
                return Arguments(value=candidate, leniency=found)
    return Arguments(value=value, leniency=leniency)


def _candidates(value: JsonObject, spec: ToolSpec) -> Iterator[tuple[str, JsonObject]]:
    schema = spec.parameters
    yield "a value encoded twice", _inner_decoded(value, schema, schema, 0)
    properties: Any = schema.get("properties")
    known: JsonObject = properties if is_object(properties) else {}
    for wrapper in _WRAPPERS:
        if wrapper in known or wrapper not in value or not value.keys() <= {wrapper, "name"}:
            continue
        inner = value[wrapper]
        if isinstance(inner, str):
            inner = _decoded_twice(inner)
        if is_object(inner):
            yield f"arguments inside {wrapper!r}", inner


def _inner_decoded(value: Any, schema: Any, root: JsonObject, depth: int) -> Any:
    """`value` with strings decoded where the schema wants no string and the text is JSON of its type."""
    part: Any = resolve(schema, root)
    if not is_object(part) or depth > _MAX_DEPTH:
        return value
    types: set[Any] = set(_types(part, root))
    if isinstance(value, str):
        return _decoded_as(value, types)
    if is_object(value):
        properties: Any = part.get("properties")
        if is_object(properties):
            return {
                name: _inner_decoded(entry, properties.get(name), root, depth + 1)
                for name, entry in value.items()
            }
    if is_array(value):
        return [_inner_decoded(entry, part.get("items"), root, depth + 1) for entry in value]
    return value


def _types(schema: JsonObject, root: JsonObject) -> Iterator[Any]:
    wanted: Any = schema.get("type")
    yield from wanted if is_array(wanted) else [wanted] if wanted is not None else []
    for keyword in ("anyOf", "oneOf"):
        branches: Any = schema.get(keyword)
        for branch in branches if is_array(branches) else []:
            resolved: Any = resolve(branch, root)
            if is_object(resolved):
                yield resolved.get("type")


def _decoded_as(text: str, types: set[Any]) -> Any:
    if not types or "string" in types or None in types:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if any(is_type(value, name) for name in types) else text
