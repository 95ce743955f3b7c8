"""Whether a JSON value fits a JSON Schema, and where it does not.

Covers the keywords that tool schemas use. A keyword that is not known here accepts everything: a
check that is too mild costs one tool error, one that is too strict would refuse a good call.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import regex

from kimi_agent.json_types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kimi_agent.json_types import JsonObject

_MAX_DEPTH = 64
_MAX_WORK = 100_000
_PATTERN_TIMEOUT_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One place where a value does not fit."""

    path: str
    """E.g. `$.items[2].name`; `$` is the whole value."""

    message: str
    schema: Any
    """The part of the schema that does not accept it."""


def first_violation(value: object, schema: JsonObject) -> Violation | None:
    """The first place where `value` does not fit `schema`, or `None`."""
    return next(_Check(schema).run(value, schema, "$", 0), None)


def fits(value: object, schema: JsonObject) -> bool:
    """Whether `value` fits `schema`."""
    return first_violation(value, schema) is None


def is_type(value: object, name: object) -> bool:
    """Whether `value` is of the JSON Schema type called `name`; unknown names accept everything."""
    check = _TYPES.get(name) if isinstance(name, str) else None
    return check is None or check(value)


def resolve(schema: object, root: JsonObject) -> object:
    """`schema` with a local `$ref` at its top followed; what cannot be found accepts everything."""
    for _ in range(_MAX_DEPTH):
        reference: object = schema.get("$ref") if is_object(schema) else None
        if not isinstance(reference, str):
            return schema
        schema = _lookup(reference, root)
    return {}


def _lookup(reference: str, root: JsonObject) -> object:
    if not reference.startswith("#"):
        return {}
    place: Any = root
    for key in reference[1:].split("/")[1:]:
        name = key.replace("~1", "/").replace("~0", "~")
        place = place.get(name, {}) if is_object(place) else {}
    return place


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return _is_number(value) and (isinstance(value, int) or float(value).is_integer())  # pyright: ignore[reportArgumentType]


_TYPES: dict[str, Callable[[object], bool]] = {
    "object": is_object,
    "array": is_array,
    "string": lambda value: isinstance(value, str),
    "number": _is_number,
    "integer": _is_integer,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def _equal(one: object, other: object) -> bool:
    """Equality of JSON values: `True` is not `1`."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


class _Check:
    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._work = 0

    def run(self, value: Any, schema: Any, path: str, depth: int) -> Iterator[Violation]:
        self._work += 1
        # Schemas that refer to themselves in alternatives would double the work at each level.
        if depth > _MAX_DEPTH or self._work > _MAX_WORK:
            return
        known = resolve(schema, self._root)
        if known is False:
            yield Violation(path=path, message="no value is allowed here", schema=schema)
        elif is_object(known):
            yield from _type(value, known, path)
            yield from _choices(value, known, path)
            yield from self._combined(value, known, path, depth)
            yield from self._inside(value, known, path, depth)

    def _inside(self, value: Any, schema: JsonObject, path: str, depth: int) -> Iterator[Violation]:
        if is_object(value):
            yield from self._object(value, schema, path, depth)
        elif is_array(value):
            yield from self._array(value, schema, path, depth)
        elif isinstance(value, str):
            yield from _string(value, schema, path)
        elif _is_number(value):
            yield from _number(value, schema, path)

    def _fits(self, value: Any, schema: Any, depth: int) -> bool:
        return next(self.run(value, schema, "$", depth + 1), None) is None

    def _combined(self, value: Any, schema: JsonObject, path: str, depth: int) -> Iterator[Violation]:
        for part in _list(schema.get("allOf")):
            yield from self.run(value, part, path, depth + 1)
        for keyword in ("anyOf", "oneOf"):
            branches = _list(schema.get(keyword))
            if branches and not any(self._fits(value, branch, depth) for branch in branches):
                yield Violation(path=path, message="fits none of the alternatives", schema=schema)
        if "not" in schema and self._fits(value, schema["not"], depth):
            yield Violation(path=path, message="is excluded", schema=schema)

    def _object(self, value: JsonObject, schema: JsonObject, path: str, depth: int) -> Iterator[Violation]:
        properties = _dict(schema.get("properties"))
        for name in _list(schema.get("required")):
            if name not in value:
                part = properties.get(name, schema)
                yield Violation(path=path, message=f"{name!r} is required", schema=part)
        patterns = _dict(schema.get("patternProperties"))
        rest: Any = schema.get("additionalProperties", True)
        for name, entry in value.items():
            place = f"{path}.{name}"
            if name in properties:
                yield from self.run(entry, properties[name], place, depth + 1)
            elif patterns and any(_matches(pattern, name) for pattern in patterns):
                continue
            elif rest is False:
                known = ", ".join(map(str, properties)) or "none"
                yield Violation(path=place, message=f"is not known; allowed: {known}", schema=schema)
            else:
                yield from self.run(entry, rest, place, depth + 1)
        yield from _size(len(value), schema, path, ("minProperties", "maxProperties"), "entries")

    def _array(self, value: list[Any], schema: JsonObject, path: str, depth: int) -> Iterator[Violation]:
        first = _list(schema.get("prefixItems"))
        items: Any = schema.get("items")
        if is_array(items):
            first, items = items, schema.get("additionalItems")
        for place, entry in enumerate(value):
            part: Any = first[place] if place < len(first) else items
            yield from self.run(entry, part, f"{path}[{place}]", depth + 1)
        yield from _size(len(value), schema, path, ("minItems", "maxItems"), "items")


def _list(value: Any) -> list[Any]:
    return value if is_array(value) else []


def _dict(value: Any) -> JsonObject:
    return value if is_object(value) else {}


def _type(value: Any, schema: JsonObject, path: str) -> Iterator[Violation]:
    wanted: Any = schema.get("type")
    names: list[Any] = wanted if is_array(wanted) else [wanted]
    if wanted is not None and not any(is_type(value, name) for name in names):
        expected = " or ".join(map(str, names))
        yield Violation(path=path, message=f"is {_name_of(value)}, expected {expected}", schema=schema)


def _name_of(value: object) -> str:
    for name in ("null", "boolean", "integer", "number", "string", "array", "object"):
        if _TYPES[name](value):
            return name
    return type(value).__name__


def _choices(value: Any, schema: JsonObject, path: str) -> Iterator[Violation]:
    choices: Any = schema.get("enum")
    if is_array(choices) and not any(_equal(value, choice) for choice in choices):
        allowed = ", ".join(repr(choice) for choice in choices[:20])
        yield Violation(path=path, message=f"is {value!r:.80}, expected one of {allowed}", schema=schema)
    if "const" in schema and not _equal(value, schema["const"]):
        yield Violation(path=path, message=f"is {value!r:.80}, expected {schema['const']!r}", schema=schema)


def _size(
    size: int, schema: JsonObject, path: str, keywords: tuple[str, str], unit: str
) -> Iterator[Violation]:
    low, high = schema.get(keywords[0]), schema.get(keywords[1])
    if _is_number(low) and size < low:  # pyright: ignore[reportOperatorIssue]
        yield Violation(path=path, message=f"has {size} {unit}, at least {low} are needed", schema=schema)
    if _is_number(high) and size > high:  # pyright: ignore[reportOperatorIssue]
        yield Violation(path=path, message=f"has {size} {unit}, at most {high} are allowed", schema=schema)


def _string(value: str, schema: JsonObject, path: str) -> Iterator[Violation]:
    yield from _size(len(value), schema, path, ("minLength", "maxLength"), "characters")
    pattern: Any = schema.get("pattern")
    if isinstance(pattern, str) and not _matches(pattern, value):
        yield Violation(path=path, message=f"does not match {pattern!r}", schema=schema)


def _matches(pattern: str, text: str) -> bool:
    """Whether `pattern` is found in `text`; a pattern that is wrong or takes too long accepts everything."""
    try:
        return regex.search(pattern, text, timeout=_PATTERN_TIMEOUT_S) is not None
    except (regex.error, TimeoutError):
        return True


_BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (operator.lt, "at least"),
    "maximum": (operator.gt, "at most"),
    "exclusiveMinimum": (operator.le, "more than"),
    "exclusiveMaximum": (operator.ge, "less than"),
}


def _number(value: float, schema: JsonObject, path: str) -> Iterator[Violation]:
    for keyword, (is_broken, words) in _BOUNDS.items():
        bound: Any = schema.get(keyword)
        if _is_number(bound) and is_broken(value, bound):
            yield Violation(path=path, message=f"is {value}, must be {words} {bound}", schema=schema)
    step: Any = schema.get("multipleOf")
    if _is_number(step) and step > 0 and not _is_multiple(value, step):
        yield Violation(path=path, message=f"is {value}, must be a multiple of {step}", schema=schema)


def _is_multiple(value: float, step: float) -> bool:
    try:
        quotient = value / step
    except OverflowError:
        return True
    return math.isclose(quotient, round(quotient), abs_tol=1e-9) if math.isfinite(quotient) else True
