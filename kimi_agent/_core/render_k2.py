"""Messages and tools → the prompt text of a K2 generation.

Every message is `MARK name <|im_middle|> body <|im_end|>`; what differs between the generations is in
`dialects/k2_framing.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kimi_agent._core.prompt_json import compact_json, deep_sorted, spaced_json
from kimi_agent._core.prompt_message import calls_of, content_text, printed
from kimi_agent._core.typescript import TypeScriptError, typescript_declarations
from kimi_agent.dialects.k2_format import CALL_ID_PREFIX, K2Marker
from kimi_agent.dialects.k2_framing import RESULT_HEADING, TOOLS_NAME
from kimi_agent.errors import InvalidHistoryError
from kimi_agent.json_types import is_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_agent.dialects.k2_framing import K2Framing
    from kimi_agent.json_types import JsonObject
    from kimi_agent.messages import Message

_MARKS: Final = {"user": K2Marker.USER, "assistant": K2Marker.ASSISTANT}
_IMAGE_TYPES: Final = ("image", "image_url")
_VIDEO_TYPES: Final = ("video", "video_url")


def render_k2(
    messages: Sequence[Message],
    tools: Sequence[JsonObject] = (),
    *,
    framing: K2Framing,
    thinking: bool = True,
    preserve_thinking: bool = False,
    add_generation_prompt: bool = True,
) -> str:
    """The prompt, byte for byte as the official template of `framing` renders it.

    A template that does not know `thinking` or `preserve_thinking` is not told of them.

    Raises:
        ConfigurationError: a message or a tool is none the template could render; the text says where.
    """
    if not framing.thinking_switch:
        thinking = True
    preserve = framing.always_preserves or (framing.preserve_switch and preserve_thinking)
    writer = _MessageWriter(framing, _first_kept_thought(messages, thinking=thinking, preserve=preserve))
    pieces = [_tool_declaration(tools, framing), _default_system(messages, framing)]
    pieces += [writer.message(message, place) for place, message in enumerate(messages)]
    if add_generation_prompt:
        pieces.append(_generation_prompt(framing, thinking=thinking))
    return "".join(pieces)


def tool_list_text(tools: Sequence[JsonObject], framing: K2Framing) -> str:
    """The list of tools in the form that `framing` shows it.

    Raises:
        ConfigurationError: the list cannot be written as JSON.
    """
    if framing.tool_list == "json_as_given":
        return spaced_json(tools, place="tools")
    ordered = deep_sorted(tools, place="tools")
    if framing.tool_list == "typescript":
        try:
            text = typescript_declarations(ordered)
        except TypeScriptError:
            text = ""
        if text:
            return text
    return compact_json(ordered, place="tools")


def _tool_declaration(tools: Sequence[JsonObject], framing: K2Framing) -> str:
    return _framed(K2Marker.SYSTEM, TOOLS_NAME, tool_list_text(tools, framing)) if tools else ""


def _default_system(messages: Sequence[Message], framing: K2Framing) -> str:
    wanted = messages[0].get("role") != "system" if messages else framing.greets_empty_history
    if not wanted or not framing.default_system:
        return ""
    return _framed(K2Marker.SYSTEM, "system", framing.default_system) + framing.after_default_system


def _generation_prompt(framing: K2Framing, *, thinking: bool) -> str:
    opening = f"{K2Marker.ASSISTANT}assistant{K2Marker.MIDDLE}"
    if not framing.thinking_switch:
        return opening
    return opening + (K2Marker.THINK_BEGIN if thinking else _thought(""))


def _first_kept_thought(messages: Sequence[Message], *, thinking: bool, preserve: bool) -> int:
    """From which message on reasoning is shown: behind the last answer, so only in the running tool loop."""
    if not thinking:
        return len(messages)
    if preserve:
        return 0
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.get("role") == "assistant" and not message.get("tool_calls"):
            return place + 1
    return 0


def _framed(mark: K2Marker, name: str, body: str) -> str:
    return f"{mark}{name}{K2Marker.MIDDLE}{body}{K2Marker.MESSAGE_END}"


def _thought(text: str) -> str:
    return f"{K2Marker.THINK_BEGIN}{text}{K2Marker.THINK_END}"


class _MessageWriter:
    def __init__(self, framing: K2Framing, first_kept_thought: int) -> None:
        self._framing = framing
        self._first_kept_thought = first_kept_thought

    def message(self, message: Message, place: int) -> str:
        role = message.get("role")
        if not isinstance(role, str):
            raise InvalidHistoryError(f"messages[{place}].role is {role!r}; it has to be a string")
        named = message.get("name") if self._framing.names_in_headers else None
        mark = _MARKS.get(role, K2Marker.SYSTEM)
        return _framed(mark, printed(named or role), self._body(role, message, place))

    def _body(self, role: str, message: Message, place: int) -> str:
        if role == "tool":
            return self._result(message, place)
        text = content_text(message.get("content"), f"messages[{place}].content", self._part)
        if role != "assistant":
            return text
        if self._framing.thinks:
            # A missing key is an empty thought; an explicit null is printed, as the template does.
            kept = place >= self._first_kept_thought
            text = _thought(printed(message.get("reasoning_content", "")) if kept else "") + text
        return text + self._calls(message, place)

    def _result(self, message: Message, place: int) -> str:
        content: Any = message.get("content", "")
        if self._framing.result_parts_as_text:
            text = content_text(content, f"messages[{place}].content", self._part)
        else:
            text = printed(content)
        heading = f"{RESULT_HEADING}{printed(message.get('tool_call_id', ''))}"
        return heading + self._framing.result_separator + text

    # --- calls -----------------------------------------------------------------------------------

    def _calls(self, message: Message, place: int) -> str:
        calls = calls_of(message, place)
        pieces = [self._call(call, position, where) for position, (where, call) in enumerate(calls)]
        return f"{K2Marker.SECTION_BEGIN}{''.join(pieces)}{K2Marker.SECTION_END}" if pieces else ""

    def _call(self, call: JsonObject, position: int, where: str) -> str:
        function: Any = call.get("function")
        if not is_object(function) or "arguments" not in function:
            raise InvalidHistoryError(f"{where} has no function.arguments; the template needs them")
        identity = call.get("id", "") if self._framing.ids_as_given else self._made_up_id(function, position)
        arguments = function["arguments"]
        if not isinstance(arguments, str) or not self._framing.string_arguments_as_given:
            arguments = spaced_json(arguments, place=f"{where}.function.arguments")
        header = f"{K2Marker.CALL_BEGIN}{printed(identity)}{K2Marker.ARGUMENTS_BEGIN}"
        return f"{header}{arguments}{K2Marker.CALL_END}"

    @staticmethod
    def _made_up_id(function: JsonObject, position: int) -> str:
        return f"{CALL_ID_PREFIX}{printed(function.get('name', ''))}:{position}"

    def _part(self, part: JsonObject, _where: str) -> str:
        kind = part.get("type")
        if kind in _IMAGE_TYPES:
            return self._framing.image
        if kind in _VIDEO_TYPES and self._framing.video:
            return self._framing.video
        return printed(part.get("text", ""))
