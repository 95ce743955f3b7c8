"""What the model may call: `@tool`, `Tool`, `ToolContext`, `ToolError`, `Approval`."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from kimi_agent._core.arguments import describe_violation, shown_schema
from kimi_agent._core.schema_check import first_violation
from kimi_agent._core.signature import BindingError, Signature
from kimi_agent.errors import KimiAgentError, ToolDefinitionError
from kimi_agent.json_types import is_object
from kimi_agent.messages import ToolCall, ToolSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kimi_agent.json_types import JsonObject


class ToolError(KimiAgentError):
    """Raised inside a tool, it speaks to the model: its message is the call's result, marked as error."""


class InvalidArgumentsError(ToolError):
    """The model's arguments do not fit the tool; the message tells it where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool may know about its call; a first parameter of this type receives it."""

    call: ToolCall
    step: int
    """The step whose reply held the call, from 1."""

    deps: Any = None
    """What the caller gave to `run` or `stream` as `deps`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """The answer to whether a call may run."""

    allowed: bool = True
    reason: str = ""
    """Told to the model if the call is denied."""

    arguments: JsonObject | None = None
    """Run the call with these instead."""

    @classmethod
    def allow(cls, *, arguments: JsonObject | None = None) -> Approval:
        """Let the call run, with other arguments if any are given."""
        return cls(allowed=True, arguments=arguments)

    @classmethod
    def deny(cls, reason: str = "") -> Approval:
        """Do not run the call, and tell the model why."""
        return cls(allowed=False, reason=reason)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tool:
    """Something the model may call.

    Built from a function by `tool`, or by hand from a JSON Schema: then `function` gets one dict, the
    arguments, which have been checked against `parameters`.
    """

    name: str
    description: str = ""
    parameters: JsonObject = field(default_factory=lambda: {"type": "object", "properties": {}})
    function: Callable[..., Any]

    timeout_s: float | None = None
    """Seconds one call may take; `None` leaves it to `RunLimits.tool_timeout_s`."""

    signature: Signature | None = None
    """How arguments become keyword arguments; `None` for a tool built by hand."""

    def __post_init__(self) -> None:
        if not str(self.name).strip():
            raise ToolDefinitionError(f"a tool needs a name, got {self.name!r}")
        if not callable(self.function):
            raise ToolDefinitionError(f"tool {self.name!r}: function must be callable, got {self.function!r}")
        if not is_object(self.parameters):
            raise ToolDefinitionError(
                f"tool {self.name!r}: parameters must be a JSON Schema object, got {self.parameters!r}"
            )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it were not a tool."""
        return self.function(*args, **kwargs)

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters)

    @property
    def is_async(self) -> bool:
        """Whether the function must be awaited rather than run in a thread."""
        target: Any = self.function
        while isinstance(target, partial):
            target = target.func
        called = getattr(target, "__call__", None)  # noqa: B004 - the method itself is looked at
        return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(called)

    def prepare(
        self, arguments: Mapping[str, Any], context: ToolContext, *, spec: ToolSpec | None = None
    ) -> Callable[[], Any]:
        """The call, with validated arguments, ready to be made; `spec` is the tool as the model knows it.

        Raises:
            InvalidArgumentsError: the arguments do not fit.
        """
        spec = spec or self.spec
        if self.signature is None:
            violation = first_violation(dict(arguments), self.parameters)
            if violation is not None:
                raise InvalidArgumentsError(describe_violation(violation, spec))
            return partial(self.function, dict(arguments))
        try:
            bound = self.signature.bind(arguments)
        except BindingError as error:
            raise InvalidArgumentsError(_faults_told(error, spec)) from None
        if self.signature.context_parameter is not None:
            bound[self.signature.context_parameter] = context
        return partial(self.function, **bound)


def tool(function: Callable[..., Any]) -> Tool:
    """Offer `function` to the model.

    Shape: a plain or `async` function, method, partial or callable object whose parameters can be passed
    by name. Its name, its docstring (Google, NumPy or reST) and its annotations become the declaration. A
    first parameter annotated `ToolContext` is left out of it and gets the context of the call. The result
    may be a `str` or anything JSON can hold.

    The tool can still be called like the function.

    Errors while running: raise `ToolError("what to do instead")` to speak to the model. Any other
    exception is logged, and the model is told that the tool failed.

    Raises:
        ToolDefinitionError: a parameter has no annotation or cannot be passed by name.
    """
    signature = Signature(function, context_type=ToolContext)
    return Tool(
        name=signature.name,
        description=signature.description,
        parameters=signature.parameters,
        function=function,
        signature=signature,
    )


def tools_by_name(tools: Iterable[Callable[..., Any] | Tool]) -> dict[str, Tool]:
    """`tools` by name, functions made into tools.

    Raises:
        ToolDefinitionError: two have the same name, or one cannot be a tool.
    """
    if callable(tools):
        raise ToolDefinitionError("tools must be a list, e.g. tools=[my_function]")
    named: dict[str, Tool] = {}
    for one in tools:
        if not callable(one):
            raise ToolDefinitionError(f"tools must be functions or Tool values, got {one!r}")
        made = one if isinstance(one, Tool) else tool(one)
        if made.name in named:
            raise ToolDefinitionError(
                f"two tools are called {made.name!r}; the model could not tell them apart"
            )
        named[made.name] = made
    return named


def _faults_told(error: BindingError, spec: ToolSpec) -> str:
    seen = "; ".join(f"{fault.message} (got {fault.value!r:.120})" for fault in error.faults[:3])
    return (
        f"The arguments of {spec.wire_name!r} do not fit: {error}. Seen: {seen}. "
        f"The schema is: {shown_schema(spec.parameters)}"
    )
