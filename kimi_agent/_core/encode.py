"""Messages, tools and options → the bytes of a request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from kimi_agent.errors import ConfigurationError
from kimi_agent.json_types import is_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimi_agent.dialects import Engine
    from kimi_agent.json_types import JsonObject
    from kimi_agent.messages import Message, ToolSpec
    from kimi_agent.options import ModelOptions

_MESSAGE_KEYS: Final = ("role", "name", "content", "tool_calls", "tool_call_id", "partial", "tools")
_REASONING_KEYS: Final = ("reasoning_content", "reasoning")


class RequestEncoder:
    """Builds the bodies of one conversation's requests.

    A message is encoded once, when it is first sent; later bodies join the same bytes, so that the
    messages of one request are a byte prefix of those of the next.
    """

    def __init__(
        self, *, model: str, tools: Mapping[str, ToolSpec], options: ModelOptions, engine: Engine
    ) -> None:
        self.model = model
        self._engine = engine
        self._encoded: list[bytes] = []
        fields = request_fields(options, engine)
        fields.update(options.extra_body)
        if tools:
            fields["tools"] = [spec.to_json() for spec in tools.values()]
        else:
            fields.pop("tool_choice", None)
            fields.pop("parallel_tool_calls", None)
        self._head = b'{"model":' + to_json(model) + b',"messages":['
        self._tail = _members(fields)
        forced = fields.get("tool_choice") not in (None, "auto", "none")
        # A call that is forced at every step would never let the model answer.
        self._later_tail = _members({**fields, "tool_choice": "auto"}) if forced else self._tail

    def body(self, messages: Sequence[Message], *, stream: bool, first: bool = True) -> bytes:
        """The request for `messages`, which begin with those of the call before.

        `first` tells the first step of a turn: a forced tool choice holds for that step only.

        Raises:
            ConfigurationError: a message cannot be written as JSON.
        """
        for position in range(len(self._encoded), len(messages)):
            message = wire_message(messages[position], self._engine)
            self._encoded.append(to_json(message, place=f"messages[{position}]"))
        streaming = b',"stream":true,"stream_options":{"include_usage":true}' if stream else b""
        tail = self._tail if first else self._later_tail
        return b"".join((self._head, b",".join(self._encoded), b"]", tail, streaming, b"}"))


def request_fields(options: ModelOptions, engine: Engine) -> JsonObject:
    """The body fields that `options` ask for, under the names `engine` knows."""
    fields: JsonObject = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        engine.output_limit_field: options.max_output_tokens,
        "tool_choice": _tool_choice(options.tool_choice),
        "parallel_tool_calls": options.parallel_tool_calls,
        "seed": options.seed,
        "stop": options.stop,
        "presence_penalty": options.presence_penalty,
        "frequency_penalty": options.frequency_penalty,
        "response_format": options.response_format,
        "reasoning_effort": options.effort,
        engine.thinking_field: _thinking(options, engine),
    }
    return {name: value for name, value in fields.items() if value is not None}


def wire_message(message: Message, engine: Engine) -> Message:
    """`message` as it is sent: known keys only, reasoning under the names the engine reads."""
    wire: Message = {key: message[key] for key in _MESSAGE_KEYS if message.get(key) is not None}
    if message.get("role") != "assistant":
        return wire
    calls: Any = wire.pop("tool_calls", None)
    reasoning = next((message[key] for key in _REASONING_KEYS if isinstance(message.get(key), str)), None)
    if reasoning is not None:
        wire.update(dict.fromkeys(engine.reasoning_fields, reasoning))
    if calls:
        wire["tool_calls"] = [_wire_call(call) for call in calls]
        if not wire.get("content"):
            # Moonshot refuses empty text beside calls, and the absent key is understood everywhere.
            wire.pop("content", None)
    return wire


def to_json(value: object, *, place: str = "request") -> bytes:
    """`value` as compact JSON.

    Raises:
        ConfigurationError: it holds something JSON cannot.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{place} cannot be written as JSON: {error}") from None
    # A lone surrogate cannot be sent; it stands for text that was lost before.
    return text.encode("utf-8", "replace")


def _wire_call(call: Any) -> JsonObject:
    function: Any = call.get("function")
    if not is_object(function):
        function = {}
    arguments: Any = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = to_json({} if arguments is None else arguments).decode()
    return {
        "id": call.get("id"),
        "type": "function",
        "function": {"name": function.get("name"), "arguments": arguments},
    }


def _thinking(options: ModelOptions, engine: Engine) -> JsonObject | None:
    if options.thinking is None and options.keep_reasoning is None:
        return None
    thinks = options.thinking is not False
    if engine.thinking_field == "thinking":
        kept: JsonObject = {"keep": "all"} if options.keep_reasoning else {}
        return {"type": "enabled" if thinks else "disabled", **kept}
    kept = {} if options.keep_reasoning is None else {"preserve_thinking": options.keep_reasoning}
    return {"thinking": thinks, **kept}


def _tool_choice(choice: str | JsonObject | None) -> str | JsonObject | None:
    if choice is None or not isinstance(choice, str) or choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def _members(fields: JsonObject) -> bytes:
    return b"".join(
        b"," + to_json(name) + b":" + to_json(value, place=name) for name, value in fields.items()
    )
