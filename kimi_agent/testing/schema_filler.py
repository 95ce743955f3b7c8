"""Schema + facts → a value that the schema accepts and the prompt makes plausible."""

import re
from collections.abc import Iterator
from typing import Any

from kimi_agent.testing.facts import MAX_THINGS, Facts, words_of
from kimi_agent.testing.json_values import JsonObject, as_count, as_list, as_object
from kimi_agent.testing.pattern_text import matching_text

MAX_DEPTH = 8
"""Where recursive schemas end: optional parts are left out and arrays are empty."""

MAX_NESTING = 40
"""How deep required parts may nest; below it values are `null`."""

MAX_ITEMS = 1_000
MAX_CHARACTERS = 10_000
"""What of a required size is kept to."""

FINEST_STEP = 1e-9
"""A smaller `multipleOf` is not kept to."""

MAX_STEPS = 2_000
"""Parts of a schema that are looked at; after that values are `null`. Ends `allOf` in circles."""

# Parameters that take a text rather than the name of one thing.
TEXT_WORDS = frozenset(
    """
    body code command comment content description input instruction message note prompt query
    question request search sentence sql statement summary task text title todo topic
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
EXPRESSION_WORDS = frozenset({"expression", "equation", "formula", "calculation"})
PATH_WORDS = frozenset({"file", "filename", "filepath", "path"})
TOPIC_WORDS = frozenset({"keyword", "q", "query", "search", "topic"})

_TOPIC = re.compile(r"\b(?:for|about)\s+([^?!]{1,200}?)[.?!]?(?:$|\n)")

FORMATS = {
    "date": "2026-01-15",
    "date-time": "2026-01-15T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.com",
}


class SchemaFiller:
    """Fills one set of arguments: each name and number of the prompt is used once, in order."""

    def __init__(self, root: JsonObject, facts: Facts) -> None:
        self._root = root
        self._facts = facts
        self._names = iter(facts.quoted + tuple(name for name in facts.names if name not in facts.quoted))
        self._numbers = iter(facts.numbers)
        self._last_name: str | None = None
        self._steps = 0

    def arguments(self) -> JsonObject:
        """Arguments for the root schema: the required ones, and optional ones the prompt speaks of."""
        return self._object(self._resolved(self._root), depth=0)

    def value(self, schema: object, name: str = "", depth: int = 0) -> Any:
        """A value for `schema`; `name` is what the field is called."""
        if depth > MAX_NESTING:
            return None
        schema = self._resolved(schema)
        if self._steps > MAX_STEPS:
            return None
        if "const" in schema:
            return schema["const"]
        if options := as_list(schema.get("enum")):
            spoken = mentioned(options, self._facts)
            default = schema.get("default")
            return spoken if spoken is not None else default if default in options else options[0]
        return self._typed(schema, name, depth)

    def _typed(self, schema: JsonObject, name: str, depth: int) -> Any:
        value: Any = None
        match kind_of(schema):
            case "integer" | "number" as kind:
                value = self._number(schema, whole=kind == "integer")
            case "boolean":
                value = True
            case "array":
                value = self._array(schema, name, depth)
            case "object":
                value = self._object(schema, depth)
            case "null":
                pass
            case _:
                value = self._string(schema, name)
        return value

    def _resolved(self, schema: object, depth: int = 0) -> JsonObject:
        """`schema` with references followed, `allOf` joined and one branch of a union chosen."""
        self._steps += 1
        found = as_object(schema) if depth <= MAX_DEPTH and self._steps <= MAX_STEPS else {}
        for _ in range(MAX_DEPTH):
            branches = as_list(found.get("anyOf")) or as_list(found.get("oneOf"))
            if reference := found.get("$ref"):
                found = {**self._referenced(str(reference)), **without(found, "$ref")}
            elif parts := as_list(found.get("allOf")):
                found = joined(
                    [without(found, "allOf"), *(self._resolved(part, depth + 1) for part in parts)]
                )
            elif branches:
                resolved = [as_object(branch) for branch in branches]
                chosen = next((branch for branch in resolved if branch.get("type") != "null"), resolved[0])
                found = {**without(found, "anyOf", "oneOf"), **chosen}
            else:
                break
        return found

    def _referenced(self, reference: str) -> JsonObject:
        found: object = self._root
        for step in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
            found = as_object(found).get(step.replace("~1", "/").replace("~0", "~"))
        return as_object(found)

    def _object(self, schema: JsonObject, depth: int) -> JsonObject:
        properties = as_object(schema.get("properties"))
        wanted = [name for name in as_list(schema.get("required")) if isinstance(name, str)]
        if depth < MAX_DEPTH:
            wanted += [
                name for name, field in properties.items() if name not in wanted and self._is_spoken_of(field)
            ]
        if not wanted and depth == 0 and self._facts.names:
            # Every field is optional: the first one that can take what the prompt names.
            texts = [name for name in properties if kind_of(self._resolved(properties[name])) == "string"]
            wanted = texts[:1]
        missing = (as_count(schema.get("minProperties")) or 0) - len(wanted)
        wanted += [name for name in properties if name not in wanted][: max(0, missing)]
        return {name: self.value(properties.get(name), name, depth + 1) for name in wanted}

    def _is_spoken_of(self, field: object) -> bool:
        options = as_list(self._resolved(field).get("enum"))
        return mentioned(options, self._facts) is not None

    def _array(self, schema: JsonObject, name: str, depth: int) -> list[Any]:
        least = min(as_count(schema.get("minItems")) or 0, MAX_ITEMS)
        most = as_count(schema.get("maxItems")) or max(least, MAX_THINGS)
        items = self._resolved(schema.get("items"))
        if depth >= MAX_DEPTH and not least:
            return []
        values = [self.value(each, name, depth + 1) for each in as_list(schema.get("prefixItems"))]
        for value in self._items(items, name, depth):
            if len(values) >= most:
                break
            if value not in values or not schema.get("uniqueItems"):
                values.append(value)
        while values and len(values) < least:
            values.append(another(values, items) if schema.get("uniqueItems") else values[-1])
        return values

    def _items(self, items: JsonObject, name: str, depth: int) -> Iterator[Any]:
        """One item for each thing the prompt names, or one where it names none."""
        if options := as_list(items.get("enum")):
            spoken = [option for option in options if mentioned([option], self._facts) is not None]
            yield from spoken or options
            return
        kind = kind_of(items)
        things = {"string": self._names, "integer": self._numbers, "number": self._numbers}.get(
            kind, iter(())
        )
        found = False
        for thing in things:
            found = True
            yield (
                self._fitted(items, str(thing))
                if kind == "string"
                else fitted_number(items, thing, whole=kind == "integer")
            )
        if not found:
            yield self.value(items, name, depth + 1)

    def _number(self, schema: JsonObject, *, whole: bool) -> int | float:
        return fitted_number(schema, next(self._numbers, None), whole=whole)

    def _string(self, schema: JsonObject, name: str) -> str:
        return self._fitted(schema, self._said(schema, name))

    def _said(self, schema: JsonObject, name: str) -> str:
        """The part of the prompt that a field of this name asks for."""
        facts, words = self._facts, set(words_of(name))
        by_kind = {"date": facts.dates, "email": facts.emails, "uri": facts.urls, "url": facts.urls}
        kind = str(schema.get("format", ""))
        for known, found in by_kind.items():
            if found and (known == kind or known in words):
                return found[0]
        if kind in FORMATS:
            return FORMATS[kind]
        by_word = (
            (EXPRESSION_WORDS, facts.expressions),
            (PATH_WORDS, facts.paths),
            (TOPIC_WORDS, facts.quoted),
        )
        for known, found in by_word:
            if found and words & known:
                return found[0]
        if words & TOPIC_WORDS and (topic := _TOPIC.search(facts.text)):
            return topic[1]
        if words & TEXT_WORDS:
            return facts.quoted[0] if facts.quoted else said_after_colon(facts.text) or facts.text
        return self._name(words) or str(schema.get("default", "")) or facts.text

    def _name(self, words: set[str]) -> str | None:
        for preposition, meant in (
            ("from", {"from", "origin", "source"}),
            ("to", {"to", "destination", "target"}),
        ):
            if words & meant and (
                found := re.search(rf"\b{preposition} ([A-Z][\w-]+(?: [A-Z][\w-]+)*)", self._facts.text)
            ):
                return found[1]
        self._last_name = next(self._names, self._last_name)
        return self._last_name

    def _fitted(self, schema: JsonObject, text: str) -> str:
        """`text` made to keep the schema's lengths and pattern."""
        if isinstance(pattern := schema.get("pattern"), str):
            candidates = (
                text,
                *self._facts.quoted,
                *self._facts.names,
                *map(str, self._facts.numbers),
                *FORMATS.values(),
            )
            text = matching_text(pattern, candidates) or text
        least = min(as_count(schema.get("minLength")) or 0, MAX_CHARACTERS)
        return text[: as_count(schema.get("maxLength"))].ljust(least, ".")


def without(schema: JsonObject, *keys: str) -> JsonObject:
    """`schema` less `keys`."""
    return {key: value for key, value in schema.items() if key not in keys}


def joined(schemas: list[JsonObject]) -> JsonObject:
    """One schema that asks for all of `schemas`."""
    whole: JsonObject = {}
    for schema in schemas:
        properties = {**as_object(whole.get("properties")), **as_object(schema.get("properties"))}
        required = [*as_list(whole.get("required")), *as_list(schema.get("required"))]
        whole = {**whole, **schema}
        if properties:
            whole["properties"] = properties
        if required:
            whole["required"] = list(dict.fromkeys(map(str, required)))
    return whole


def kind_of(schema: JsonObject) -> str:
    """The JSON type a value for `schema` should have; `""` if any will do."""
    named = schema.get("type")
    if isinstance(named, list):
        named = next((kind for kind in as_list(schema["type"]) if kind != "null"), "null")
    if isinstance(named, str):
        return named
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema else ""


def mentioned(options: list[Any], facts: Facts) -> Any:
    """The first of `options` that the prompt names, `None` if there is none."""
    for option in options:
        words = set(words_of(str(option)))
        if isinstance(option, str) and words and (words <= facts.words or abbreviates(option, facts.words)):
            return option
        if isinstance(option, int | float) and not isinstance(option, bool) and option in facts.numbers:
            return option
    return None


def abbreviates(option: str, words: frozenset[str]) -> bool:
    """Whether a letter stands for a temperature scale the prompt names."""
    scales = {"celsius", "celsiu", "fahrenheit", "kelvin"} & words
    return len(option) == 1 and any(scale.startswith(option.lower()) for scale in scales)


def fitted_number(schema: JsonObject, wanted: object, *, whole: bool) -> int | float:
    """`wanted`, or the least plausible number, moved to where the schema allows it."""
    step = schema.get("multipleOf")
    unit = step if isinstance(step, int | float) and step > FINEST_STEP else 1 if whole else 0
    low, high = (
        bound(schema, "minimum", "exclusiveMinimum", unit or 1e-6),
        bound(schema, "maximum", "exclusiveMaximum", -(unit or 1e-6)),
    )
    value: float = wanted if isinstance(wanted, int | float) else 1 if low is None else low
    value = value if low is None else max(value, low)
    value = value if high is None else min(value, high)
    if unit:
        value = round(value / unit) * unit
        value += unit if low is not None and value < low else 0
    return int(value) if whole or (isinstance(value, float) and value.is_integer()) else value


def bound(schema: JsonObject, inclusive: str, exclusive: str, inside: float) -> float | None:
    """The last allowed number on one side, `None` if it is open."""
    limits = [schema[inclusive]] if isinstance(schema.get(inclusive), int | float) else []
    other = schema.get(exclusive)
    if isinstance(other, int | float) and not isinstance(other, bool):
        limits.append(other + inside)
    return (max if inside > 0 else min)(limits, default=None)


def another(values: list[Any], items: JsonObject) -> Any:
    """A value like the last one that is not among `values`."""
    last = values[-1]
    if isinstance(last, int | float):
        return fitted_number(items, last + 1, whole=isinstance(last, int))
    return f"{last} {len(values)}" if isinstance(last, str) else last


def said_after_colon(text: str) -> str:
    """What follows the first `: `, as in "Save a note: buy milk"; `""` without one."""
    return text.partition(": ")[2].strip()
