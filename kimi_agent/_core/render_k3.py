"""Messages and tools → the prompt text of K3 (XTML).

Servers encode markers and text apart, so that text cannot forge a marker. Here both are one string:
whoever sends it to `/v1/completions` has to neutralise untrusted text first (`control_tokens`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kimi_agent._core.prompt_json import compact_json, deep_sorted, spaced_json
from kimi_agent._core.prompt_message import calls_of, content_text, printed
from kimi_agent.dialects.k3_format import (
    K3_DEFAULT_EFFORT,
    K3_EFFORT_SENTENCE,
    K3_EFFORTS,
    K3_IMAGE_PLACEHOLDER,
    K3_NEW_TOOLS_HEADING,
    K3_NO_EFFORT,
    K3_RESPONSE_FORMAT_SENTENCE,
    K3_SCHEMA_HEADING,
    K3_TOOL_CHOICE_SENTENCES,
    K3_TOOLS_HEADING,
    K3Marker,
    K3Tag,
)
from kimi_agent.errors import ConfigurationError, InvalidHistoryError
from kimi_agent.json_types import is_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_agent.json_types import JsonObject
    from kimi_agent.messages import Message

_IMAGE_TYPES = ("image", "image_url")


def render_k3(
    messages: Sequence[Message],
    tools: Sequence[JsonObject] = (),
    *,
    thinking: bool = True,
    effort: str | None = None,
    tool_choice: object = None,
    response_format: object = None,
    add_generation_prompt: bool = True,
) -> str:
    """The prompt, byte for byte as K3's encoder and the servers around it render it.

    `effort` is `low`, `high` or `max`, the default; `none` turns thinking off. Of `tool_choice` only
    `required` and `none` leave a trace, of `response_format` only JSON objects and JSON schemas.

    Raises:
        ConfigurationError: a message, a tool or the effort is none the encoder takes; the text says where.
    """
    if effort not in (None, K3_NO_EFFORT, *K3_EFFORTS):
        raise ConfigurationError(f"effort is {effort!r}; K3 takes {', '.join(K3_EFFORTS)} or {K3_NO_EFFORT}")
    thinking = thinking and effort != K3_NO_EFFORT
    pieces: list[str] = []
    if tools:
        pieces.append(_tool_declaration(tools, K3_TOOLS_HEADING, "tools"))
    if thinking:
        sentence = K3_EFFORT_SENTENCE.format(effort=effort or K3_DEFAULT_EFFORT)
        pieces.append(_system("thinking-effort", sentence))
    pieces += _MessageWriter(thinking=thinking).messages(messages)
    if isinstance(tool_choice, str) and tool_choice in K3_TOOL_CHOICE_SENTENCES:
        pieces.append(_system("tool-choice", K3_TOOL_CHOICE_SENTENCES[tool_choice]))
    pieces.append(_response_format(response_format))
    if add_generation_prompt:
        channel = K3Tag.THINK if thinking else K3Tag.RESPONSE
        pieces += (_open(K3Tag.MESSAGE, role="assistant"), _open(channel))
    return "".join(pieces)


# --- tags ----------------------------------------------------------------------------------------


def _open(tag: K3Tag, **attributes: object) -> str:
    written = "".join(f' {key}="{_escaped(value)}"' for key, value in attributes.items())
    return f"{K3Marker.OPEN}{tag}{written}{K3Marker.SEP}"


def _close(tag: K3Tag) -> str:
    return f"{K3Marker.CLOSE}{tag}{K3Marker.SEP}"


def _escaped(value: object) -> str:
    return printed(value).replace("&", "&amp;").replace('"', "&quot;")


def _channel(tag: K3Tag, body: str, **attributes: object) -> str:
    return f"{_open(tag, **attributes)}{body}{_close(tag)}"


def _message(body: str, **attributes: object) -> str:
    return _channel(K3Tag.MESSAGE, body, **attributes) + K3Marker.MESSAGE_END


def _system(kind: str, body: str) -> str:
    return _message(body, role="system", type=kind)


def _fenced(value: object, place: str) -> str:
    return f"```json\n{compact_json(deep_sorted(value, place=place), place=place)}\n```"


def _tool_declaration(tools: object, heading: str, place: str) -> str:
    return _system("tool-declare", heading + _fenced(tools, place))


def _response_format(response_format: Any) -> str:
    kind: Any = response_format.get("type") if is_object(response_format) else response_format
    if kind not in ("json_object", "json_schema"):
        return ""
    body = K3_RESPONSE_FORMAT_SENTENCE.format(kind=kind)
    if kind == "json_schema":
        body += K3_SCHEMA_HEADING + _fenced(_response_schema(response_format), "response_format")
    return _system("response-format", body)


def _response_schema(response_format: Any) -> Any:
    wrapper: Any = response_format.get("json_schema") if is_object(response_format) else None
    if not is_object(wrapper):
        return wrapper
    return wrapper.get("schema", wrapper.get("json_schema", wrapper))


# --- messages ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Calls:
    """The calls of the latest assistant message, and how many results have followed it."""

    names: list[str] = field(default_factory=list[str])
    positions: dict[str, int] = field(default_factory=dict[str, int])
    results: int = 0


class _MessageWriter:
    def __init__(self, *, thinking: bool) -> None:
        self._thinking = thinking
        self._calls = _Calls()

    def messages(self, messages: Sequence[Message]) -> list[str]:
        pieces: list[str] = []
        place = 0
        while place < len(messages):
            end = place
            while end < len(messages) and messages[end].get("role") == "tool":
                end += 1
            if end > place:
                pieces += self._results(messages[place:end], place)
                place = end
            else:
                pieces.append(self._message(messages[place], place))
                place += 1
        return pieces

    def _message(self, message: Message, place: int) -> str:
        role: Any = message.get("role")
        if role == "system" and (tools := message.get("tools")):
            return _tool_declaration(tools, K3_NEW_TOOLS_HEADING, f"messages[{place}].tools")
        if role not in ("system", "user", "assistant"):
            raise InvalidHistoryError(
                f"messages[{place}].role is {role!r}; K3 knows system, user, assistant and tool"
            )
        attributes: JsonObject = {"role": role}
        if name := message.get("name"):
            attributes["name"] = name
        body = self._assistant(message, place) if role == "assistant" else _content(message, place)
        return _message(body, **attributes)

    def _assistant(self, message: Message, place: int) -> str:
        body = ""
        if self._thinking:
            reasoning: Any = message.get("reasoning_content") or message.get("reasoning") or ""
            text = printed(reasoning)
            body = _channel(K3Tag.THINK, text if text.strip() else "")
        body += _channel(K3Tag.RESPONSE, _content(message, place))
        self._calls = _Calls()
        calls = calls_of(message, place)
        written = [self._call(call, position, where) for position, (where, call) in enumerate(calls, start=1)]
        return body + _channel(K3Tag.TOOLS, "".join(written)) if written else body

    def _call(self, call: JsonObject, position: int, where: str) -> str:
        function: Any = call.get("function", call)
        if not is_object(function) or function.get("name") is None:
            raise InvalidHistoryError(f"{where} has no function.name; K3 needs it")
        name = printed(function["name"])
        self._calls.names.append(name)
        if call.get("id") is not None:
            self._calls.positions.setdefault(printed(call["id"]), position)
        body = _arguments(function.get("arguments"), f"{where}.function.arguments")
        return _channel(K3Tag.CALL, body, tool=name, index=position)

    # --- results ---------------------------------------------------------------------------------

    def _results(self, run: Sequence[Message], place: int) -> list[str]:
        """A run of results: in the order of the calls if each is matched by its id, else as sent."""
        offsets = list(range(len(run)))
        positions = [self._position(message) for message in run]
        matched = all(positions)
        if matched:
            offsets.sort(key=positions.__getitem__)
        written: list[str] = []
        for offset in offsets:
            self._calls.results += 1
            message, where = run[offset], place + offset
            if matched:
                name: Any = self._calls.names[positions[offset] - 1]
            else:
                name = self._result_name(message, where)
            body = _content(message, where)
            written.append(_message(body, role="tool", tool=name, index=self._calls.results))
        return written

    def _position(self, message: Message) -> int:
        """The call that a result answers, from 1; 0 if its id is none of theirs."""
        identity: Any = message.get("tool_call_id", message.get("id"))
        return 0 if identity is None else self._calls.positions.get(printed(identity), 0)

    def _result_name(self, message: Message, place: int) -> Any:
        name: Any = message.get("tool", message.get("name"))
        if name is not None:
            return name
        if self._calls.results <= len(self._calls.names):
            return self._calls.names[self._calls.results - 1]
        raise InvalidHistoryError(
            f"messages[{place}] answers no call: its id is {message.get('tool_call_id')!r}, it has no name, "
            f"and the assistant before it makes {len(self._calls.names)} calls; give it the id of its call"
        )


def _content(message: Message, place: int) -> str:
    return content_text(message.get("content"), f"messages[{place}].content", _part)


def _part(part: JsonObject, where: str) -> str:
    kind = part.get("type")
    if kind in _IMAGE_TYPES:
        return K3_IMAGE_PLACEHOLDER
    if "text" not in part:
        raise InvalidHistoryError(
            f"{where} is a part of type {kind!r}; a K3 prompt holds only text and images, so leave it out"
        )
    return printed(part["text"])


# --- arguments -----------------------------------------------------------------------------------


def _arguments(arguments: Any, where: str) -> str:
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return ""
    value: Any = arguments
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            return _channel(K3Tag.JSON, arguments, type="object")
    if not is_object(value):
        raise InvalidHistoryError(
            f"{where} holds {type(value).__name__}; K3 takes a JSON object, as text or as it is"
        )
    return "".join(
        _channel(
            K3Tag.ARGUMENT,
            one if isinstance(one, str) else spaced_json(one, place=where),
            key=key,
            type=_type_name(one),
        )
        for key, one in value.items()
    )


def _type_name(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if is_object(value) else "array"
