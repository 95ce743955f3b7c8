"""Tools → the TypeScript declarations that K2.5 and later read.

The original is `tool_declaration_ts.py`, published with the weights of K2.5 (October 2026). It gives up
on schemas it does not know, and then the whole list of tools is written as JSON instead; so this module
has to give up exactly where it does.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kimi_agent.json_types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kimi_agent.json_types import JsonObject

_INDENT: Final = "  "
_SEPARATOR: Final = ",\n"
_DEFINITIONS: Final = "#/$defs/"
_ROOT_NAME: Final = "parameters"

_UNION_MEMBERS: Final[Mapping[str, str]] = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "{}",
    "array": "Array<any>",
}
_CONSTRAINTS: Final[Mapping[str, Sequence[str]]] = {
    "string": ("maxLength", "minLength", "pattern"),
    "number": ("maximum", "minimum"),
    "integer": ("maximum", "minimum"),
    "array": ("maxItems", "minItems"),
}
_ENUM_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
}


class TypeScriptError(ValueError):
    """A tool's schema has no TypeScript form; the list of tools is then written as JSON."""


def typescript_declarations(tools: Iterable[Any]) -> str:
    """The declarations of all function tools, keys in the order given; `""` if there is none.

    Raises:
        TypeScriptError: a schema uses what has no TypeScript form, e.g. `oneOf`, `allOf`, `const`, a
            reference outside `$defs`, a description without a type; or it is no schema at all.
    """
    functions: list[str] = []
    for tool in tools:
        name = "a tool"
        try:
            if tool.get("type") == "function" and (function := tool.get("function", {})):
                name = repr(function.get("name", "function"))
                functions.append(_FunctionWriter().declaration(function))
        except TypeScriptError as error:
            raise TypeScriptError(f"{name}: {error}") from None
        # Whatever else breaks the original on a malformed schema: it turns to JSON all the same.
        except (AttributeError, KeyError, TypeError, RecursionError) as error:
            raise TypeScriptError(f"{name}: malformed schema: {type(error).__name__}: {error}") from None
    if not functions:
        return ""
    return "# Tools\n\n## functions\nnamespace functions {\n" + "\n".join(functions) + "\n}\n"


class _Field(NamedTuple):
    optional: bool
    name: str
    text: str


class _FunctionWriter:
    """Writes one function; knows the definitions met so far and whether `#` was referred to."""

    def __init__(self) -> None:
        self._definitions: JsonObject = {}
        self._refers_to_root = False

    def declaration(self, function: JsonObject) -> str:
        parameters: Any = function.get("parameters") or {}
        fields, signature = self._object_fields(parameters, "")
        lines: list[str] = []
        if self._refers_to_root:
            # The interface of the root keeps the order given and has no index signature.
            lines.append(f"interface {_ROOT_NAME} {_braces([field.text for field in fields], '')}")
            root_type = _ROOT_NAME
        else:
            root_type = _braces(_ordered(fields) + signature, "")
        for name, schema in list(self._definitions.items()):
            text = self._type(schema, "")
            if description := schema.get("description", ""):
                lines.append(_comment(description, ""))
            lines.append(f"interface {name} {text}")
        if description := function.get("description"):
            lines.append(_comment(description, ""))
        lines.append(f"type {function.get('name', 'function')} = (_: {root_type}) => any;")
        return "\n".join(lines)

    # --- types -----------------------------------------------------------------------------------

    def _type(self, schema: Any, indent: str) -> str:
        if isinstance(schema, bool):
            return "any" if schema else "null"
        if not is_object(schema):
            raise TypeScriptError(f"Invalid JSON Schema object: {schema}")
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        if "anyOf" in schema:
            return " | ".join([self._type(branch, indent) for branch in schema["anyOf"]])
        if "enum" in schema:
            return _enum(schema)
        if "type" in schema:
            return self._typed(schema, indent)
        if not schema:
            return "any"
        raise TypeScriptError(f"Invalid JSON Schema object: {schema}")

    def _typed(self, schema: JsonObject, indent: str) -> str:
        kind = schema["type"]
        if is_array(kind):
            return " | ".join([_UNION_MEMBERS[member] for member in kind])
        if kind == "object":
            fields, signature = self._object_fields(schema, indent)
            return _braces(_ordered(fields) + signature, indent)
        if kind == "array":
            return self._array(schema, indent)
        return "number" if kind == "integer" else str(kind)

    def _array(self, schema: JsonObject, indent: str) -> str:
        items = schema.get("items")
        if not items:
            return "Array<any>"
        inner = indent + _INDENT
        if comments := _comments(items, inner):
            return "\n".join(("Array<", *comments, inner + self._type(items, inner), indent + ">"))
        return f"Array<{self._type(items, indent)}>"

    def _reference(self, reference: str) -> str:
        if reference == "#":
            self._refers_to_root = True
            return _ROOT_NAME
        if not reference.startswith(_DEFINITIONS):
            raise TypeScriptError(f"Unsupported reference format: {reference}")
        # The original looks at the last part only, so it does not find what lies inside a definition.
        name = reference.rpartition("/")[2]
        if name not in self._definitions:
            raise TypeScriptError(f"Reference not found: {reference}")
        if not is_object(self._definitions[name]):
            raise TypeScriptError(f"definition {name!r} is no object")
        return name

    # --- objects ---------------------------------------------------------------------------------

    def _object_fields(self, schema: JsonObject, indent: str) -> tuple[list[_Field], list[str]]:
        """An object's properties in the order given, and its index signature if it has one."""
        if definitions := schema.get("$defs"):
            self._definitions.update(definitions.items())
        inner = indent + _INDENT
        signature = self._index_signature(schema.get("additionalProperties"), inner)
        if "properties" not in schema:
            return [], signature
        properties: JsonObject = schema["properties"]
        required = set(schema.get("required", []))
        return [
            self._field(name, value, inner, optional=name not in required)
            for name, value in properties.items()
        ], signature

    def _field(self, name: str, schema: Any, indent: str, *, optional: bool) -> _Field:
        lines = _comments(schema, indent)
        default = schema.get("default") if is_object(schema) else None
        if default is not None:
            lines.append(f"{indent}// Default: {_default(default)}")
        lines.append(f"{indent}{name}{'?' if optional else ''}: {self._type(schema, indent)}")
        return _Field(optional, name, "\n".join(lines))

    def _index_signature(self, schema: Any, indent: str) -> list[str]:
        if schema is None:
            return []
        if schema is False:
            value = "never"
        elif schema is True:
            value = "any"
        elif is_object(schema):
            value = self._type(schema, indent)
        else:
            raise TypeScriptError(f"Unknown additionalProperties: {schema}")
        return [f"{indent}[k: string]: {value}"]


def _ordered(fields: Iterable[_Field]) -> list[str]:
    """Required properties first, each group by name."""
    return [field.text for field in sorted(fields)]


def _braces(fields: Sequence[str], indent: str) -> str:
    return f"{{\n{_SEPARATOR.join(fields)}\n{indent}}}" if fields else "{}"


def _comment(description: str, indent: str) -> str:
    return "\n".join(f"{indent}// {line}" if line else "" for line in description.split("\n"))


def _comments(schema: Any, indent: str) -> list[str]:
    """The lines above a property or an array's item: its description, then its constraints."""
    if not is_object(schema):
        return []
    lines: list[str] = []
    if description := schema.get("description", ""):
        lines.append(_comment(description, indent))
    constraints = [f"{key}: {schema[key]}" for key in _constraint_keys(schema) if key in schema]
    if constraints:
        lines.append(f"{indent}// {', '.join(constraints)}")
    return lines


def _constraint_keys(schema: JsonObject) -> Sequence[str]:
    kind = schema.get("type")
    if not isinstance(kind, str) or not schema.keys().isdisjoint(("$ref", "anyOf", "enum")):
        return ()
    return _CONSTRAINTS.get(kind, ())


def _default(value: Any) -> str:
    # Python's own words for booleans, as the original has it.
    return repr(value) if isinstance(value, int | float) else json.dumps(value, ensure_ascii=False)


def _enum(schema: JsonObject) -> str:
    values = schema["enum"]
    if "type" in schema:
        _check_enum(values, _enum_type(schema["type"]))
    return " | ".join([f'"{value}"' if isinstance(value, str) else str(value) for value in values])


def _enum_type(kind: Any) -> Any:
    if not is_array(kind):
        return kind
    if len(kind) == 1:
        return kind[0]
    if len(kind) != 2 or "null" not in kind:  # noqa: PLR2004 a type, or a type and null
        raise TypeScriptError(f"Enum type {kind} is not supported")
    return kind[0] if kind[0] != "null" else kind[1]


def _check_enum(values: Iterable[Any], kind: Any) -> None:
    classes = _ENUM_TYPES.get(kind)
    for value in values:
        if classes is not None and value is not None and not isinstance(value, classes):
            raise TypeScriptError(f"Enum value {value} is not of type {kind}")
