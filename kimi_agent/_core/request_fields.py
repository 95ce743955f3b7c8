"""What a caller asks of the model → the fields of a request, as engine and generation want them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kimi_agent.json_types import is_object
from kimi_agent.results import Repair

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimi_agent._core.lessons import Learned
    from kimi_agent.dialects import Engine, Generation
    from kimi_agent.json_types import JsonObject
    from kimi_agent.options import ModelOptions

_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
_FIXED: Final = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "n", "logprobs")


def request_fields(
    options: ModelOptions, engine: Engine, generation: Generation, names: Mapping[str, str] = _NO_NAMES
) -> tuple[JsonObject, list[Repair]]:
    """The fields that `options` ask for, and what could not be asked; `names` are the tools' on the wire.

    Recommended sampling is added where the server leaves it open and the caller said nothing.
    """
    repairs: list[Repair] = []
    fields: JsonObject = {
        "temperature": _temperature(options, engine, generation),
        "top_p": options.top_p,
        engine.output_limit_field: options.max_output_tokens,
        "tool_choice": _tool_choice(options.tool_choice, names),
        "parallel_tool_calls": options.parallel_tool_calls,
        "seed": options.seed,
        "stop": options.stop,
        "presence_penalty": options.presence_penalty,
        "frequency_penalty": options.frequency_penalty,
        "response_format": options.response_format,
        "reasoning_effort": options.effort,
        engine.thinking_field: _thinking(options, engine, generation, repairs),
    }
    fields = {name: value for name, value in fields.items() if value is not None}
    fields.update(options.extra_body)
    if engine.fixes_sampling and generation.fixed_sampling:
        for name in _FIXED:
            if name in fields:
                del fields[name]
                repairs.append(_dropped(name, f"{engine.name} fixes it for {generation.name}"))
    return fields, repairs


def with_lessons(fields: JsonObject, learned: Learned) -> JsonObject:
    """`fields` as a server that has refused some of them wants them."""
    changed = {learned.renamed.get(name, name): value for name, value in fields.items()}
    if learned.tool_choice is not None and "tools" in changed:
        changed["tool_choice"] = learned.tool_choice
    thinking: Any = changed.get("thinking")
    if learned.thinking_without_keep and is_object(thinking):
        changed["thinking"] = {key: value for key, value in thinking.items() if key != "keep"}
    return {name: value for name, value in changed.items() if name not in learned.dropped}


def _temperature(options: ModelOptions, engine: Engine, generation: Generation) -> float | None:
    if options.temperature is not None:
        return options.temperature
    if engine.fixes_sampling and generation.fixed_sampling:
        return None
    instant = options.thinking is False and generation.thinking == "optional"
    return generation.instant_temperature if instant else generation.temperature


def _tool_choice(choice: str | JsonObject | None, names: Mapping[str, str]) -> str | JsonObject | None:
    if choice is None or choice in ("auto", "none", "required"):
        return choice
    name: Any = choice
    if not isinstance(choice, str):
        function: Any = choice.get("function")
        name = function.get("name") if is_object(function) else None
    if not isinstance(name, str):
        return choice
    return {"type": "function", "function": {"name": names.get(name, name)}}


def _thinking(
    options: ModelOptions, engine: Engine, generation: Generation, repairs: list[Repair]
) -> JsonObject | None:
    thinking, keep = options.thinking, options.keep_reasoning
    if thinking is None and keep is None:
        return None
    by_template = generation.template_switch and engine.thinking_field == "chat_template_kwargs"
    if thinking is False and generation.thinking == "always" and not by_template:
        repairs.append(_dropped("thinking", f"{generation.name} always thinks; it cannot be switched off"))
        return None
    if generation.thinking == "never":
        if thinking or keep:
            repairs.append(_dropped("thinking", f"{generation.name} does not think"))
        return None
    if keep and generation.keep_reasoning == "loop":
        repairs.append(_dropped("keep_reasoning", f"{generation.name} keeps the running tool loop's only"))
        keep = None
    return _THINKING[engine.thinking_field](thinking is not False, keep)


def _moonshot_thinking(thinks: bool, keep: bool | None) -> JsonObject:  # noqa: FBT001 - a row of the table below
    return {"type": "enabled" if thinks else "disabled", **({"keep": "all"} if keep and thinks else {})}


def _template_thinking(thinks: bool, keep: bool | None) -> JsonObject:  # noqa: FBT001 - as above
    return {"thinking": thinks, **({} if keep is None else {"preserve_thinking": keep})}


def _openrouter_thinking(thinks: bool, _keep: bool | None) -> JsonObject:  # noqa: FBT001 - as above
    return {"enabled": thinks}


_THINKING: Final = {
    "thinking": _moonshot_thinking,
    "chat_template_kwargs": _template_thinking,
    "reasoning": _openrouter_thinking,
}


def _dropped(name: str, reason: str) -> Repair:
    return Repair(kind="field_dropped", where="request", detail=f"{name} is not sent: {reason}")
