"""A Python function's parameters → the JSON Schema of its arguments, and back to keyword arguments."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import docstring_parser
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from kimi_agent.errors import ToolDefinitionError
from kimi_agent.json_types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kimi_agent.json_types import JsonObject

_KINDS = inspect.Parameter


@dataclass(frozen=True, slots=True)
class BindingFault:
    """One argument that does not fit its parameter."""

    path: tuple[str | int, ...]
    message: str
    value: Any


class BindingError(ValueError):
    """Arguments do not fit the function's parameters."""

    def __init__(self, faults: list[BindingFault]) -> None:
        super().__init__("; ".join(f"{_path(fault.path)}: {fault.message}" for fault in faults))
        self.faults = faults


class Signature:
    """What a function takes, seen as one JSON object.

    Raises on construction:
        ToolDefinitionError: a parameter cannot be passed by name, has no annotation, or has one that has
            no JSON Schema.
    """

    def __init__(self, function: Callable[..., Any], *, context_type: type | None = None) -> None:
        self.name = _name_of(function)
        target = _target_of(function)
        documentation = docstring_parser.parse(inspect.getdoc(target) or inspect.getdoc(function) or "")
        self.description = "\n\n".join(
            part for part in (documentation.short_description, documentation.long_description) if part
        )
        comments = {
            param.arg_name.lstrip("*"): param.description
            for param in documentation.params
            if param.description
        }
        hints = _hints_of(target, self.name)
        self.context_parameter: str | None = None
        self._passes_extra = False
        self._names: dict[str, str] = {}
        self._always_passed: set[str] = set()
        fields: dict[str, Any] = {}
        for place, parameter in enumerate(inspect.signature(function).parameters.values()):
            hint = hints.get(parameter.name, parameter.annotation)
            if place == 0 and context_type is not None and hint is context_type:
                self.context_parameter = parameter.name
                continue
            self._add(fields, parameter, hint, comments.get(parameter.name))
        self._model = self._build(fields)
        self.parameters = self._schema()

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The validated keyword arguments for a call.

        Raises:
            BindingError: `arguments` do not fit.
        """
        try:
            bound = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            raise BindingError(
                [
                    BindingFault(path=tuple(fault["loc"]), message=fault["msg"], value=fault.get("input"))
                    for fault in error.errors(include_url=False, include_context=False)
                ]
            ) from None
        passed = bound.model_fields_set | self._always_passed
        given = {name: getattr(bound, field) for field, name in self._names.items() if field in passed}
        return {**given, **(bound.model_extra or {})}

    def _add(
        self, fields: dict[str, Any], parameter: inspect.Parameter, hint: Any, comment: str | None
    ) -> None:
        if parameter.kind is _KINDS.VAR_KEYWORD:
            self._passes_extra = True
            return
        if parameter.kind in (_KINDS.VAR_POSITIONAL, _KINDS.POSITIONAL_ONLY):
            star = "*" if parameter.kind is _KINDS.VAR_POSITIONAL else ""
            raise ToolDefinitionError(
                f"tool {self.name!r}: parameter {star}{parameter.name} cannot be passed by name, and a model "
                "passes arguments by name only; make it a keyword parameter"
            )
        if hint is _KINDS.empty:
            raise ToolDefinitionError(
                f"tool {self.name!r}: parameter {parameter.name!r} has no annotation, so the model cannot be "
                f"told what to pass; write e.g. `{parameter.name}: str`"
            )
        # Parameters may be called what pydantic reserves, so fields have neutral names and aliases.
        field = f"p{len(self._names)}"
        self._names[field] = parameter.name
        required = parameter.default is _KINDS.empty
        if isinstance(parameter.default, FieldInfo):
            # The function's own default is pydantic's description of one, so the value is always passed.
            self._always_passed.add(field)
            hint, required = Annotated[hint, parameter.default], True
        default = PydanticUndefined if required else parameter.default
        described: dict[str, Any] = (
            {} if comment is None or _has_description(hint) else {"description": comment}
        )
        fields[field] = (hint, Field(default=default, alias=parameter.name, **described))

    def _build(self, fields: dict[str, Any]) -> type[BaseModel]:
        config = ConfigDict(
            extra="allow" if self._passes_extra else "forbid",
            arbitrary_types_allowed=False,
            protected_namespaces=(),
        )
        try:
            return create_model(self.name, __config__=config, **fields)
        except (PydanticUserError, TypeError, NameError) as error:
            raise ToolDefinitionError(f"tool {self.name!r}: {error}") from None

    def _schema(self) -> JsonObject:
        try:
            schema = self._model.model_json_schema(by_alias=True)
        except PydanticUserError as error:
            raise ToolDefinitionError(f"tool {self.name!r}: {error}") from None
        schema.pop("title", None)
        schema.pop("description", None)
        if not self._passes_extra:
            schema.pop("additionalProperties", None)
        schema.setdefault("properties", {})
        _drop_titles(schema)
        return schema


def _target_of(function: Callable[..., Any]) -> Any:
    """What holds the annotations: the function inside partials, the method of a callable object."""
    target: Any = function
    while isinstance(target, partial):
        target = target.func
    if inspect.isroutine(target) or inspect.isclass(target):
        return target
    return type(target).__call__


def _name_of(function: Callable[..., Any]) -> str:
    target: Any = function
    while isinstance(target, partial):
        target = target.func
    name: str = getattr(target, "__name__", type(target).__name__)
    if name == "<lambda>":
        raise ToolDefinitionError(
            "a lambda has no name the model could call; use a function, or Tool(name=…)"
        )
    return name


def _hints_of(target: Any, name: str) -> dict[str, Any]:
    try:
        return get_type_hints(target, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise ToolDefinitionError(
            f"tool {name!r}: an annotation cannot be resolved ({error}); types used in a tool's signature "
            "have to stand at module level"
        ) from None


def _has_description(hint: Any) -> bool:
    return any(
        isinstance(extra, FieldInfo) and extra.description for extra in getattr(hint, "__metadata__", ())
    )


def _drop_titles(schema: Any) -> None:
    """Remove the titles pydantic makes of names: they tell the model nothing and cost tokens."""
    if is_array(schema):
        for part in schema:
            _drop_titles(part)
        return
    if not is_object(schema):
        return
    for key, part in list(schema.items()):
        if key == "title" and isinstance(part, str):
            del schema[key]
        elif key in ("properties", "$defs"):
            for entry in part.values():
                _drop_titles(entry)
        elif key not in ("default", "enum", "const", "examples"):
            _drop_titles(part)


def _path(path: tuple[str | int, ...]) -> str:
    text = "$"
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text
