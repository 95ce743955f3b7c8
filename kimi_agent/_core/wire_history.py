"""Messages as they are sent: ids the model was trained on, names and fields the server takes."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kimi_agent._core.call_name import call_id
from kimi_agent._core.wire_names import safe_name
from kimi_agent.json_types import is_array, is_object
from kimi_agent.messages import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimi_agent._core.lessons import Learned
    from kimi_agent.dialects import Engine, Generation
    from kimi_agent.json_types import JsonObject
    from kimi_agent.messages import Message

_PLAIN_KEYS: Final = ("role", "name", "content", "tool_calls", "tool_call_id", "partial", "tools")
_REASONING_KEYS: Final = ("reasoning_content", "reasoning")


class WireHistory:
    """Turns messages into what is sent, one after the other; what was made never changes.

    The messages must be whole: every call answered right behind its message, in call order.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        generation: Generation,
        learned: Learned,
        names: Mapping[str, str],
        rendered: bool = False,
    ) -> None:
        self._engine = engine
        self._renumbers = engine.call_ids == "k2" and generation.text_format == "k2"
        self._learned = learned
        self._rendered = rendered
        self._names = names
        self._calls = 0
        self._open: deque[tuple[Any, str]] = deque()
        """Ids of the last reply's calls, as given and as sent, still without result."""
        self._images: list[Any] = []
        """Images of results, to follow them in a user message."""

    def add(self, message: Message) -> list[Message]:
        """What is sent for `message`: usually one message."""
        role = message.get("role")
        images = self._take_images() if role != "tool" else []
        wire = {key: message[key] for key in _PLAIN_KEYS if message.get(key) is not None}
        if role == "assistant":
            self._write_assistant(message, wire)
        elif role == "tool":
            if not self._open and (self._rendered or self._learned.answered_calls_only):
                return []
            self._write_result(wire)
        elif role == "developer" and (self._rendered or self._learned.developer_as_system):
            wire["role"] = "system"
        content: Any = wire.get("content")
        if self._learned.plain_text_content and is_array(content) and all(map(_is_text, content)):
            wire["content"] = text_of(content)
        tools: Any = wire.pop("tools", None) if role == "system" and self._learned.static_tools else None
        return [*images] if tools and not wire.get("content") else [*images, wire]

    def flush(self) -> list[Message]:
        """What has to follow the last message before a request is sent."""
        return self._take_images()

    def _write_assistant(self, message: Message, wire: Message) -> None:
        calls: Any = wire.pop("tool_calls", None)
        spoken: list[str] = [message[key] for key in _REASONING_KEYS if isinstance(message.get(key), str)]
        reasoning: str | None = next(filter(None, spoken), spoken[0] if spoken else None)
        if reasoning is None and calls and self._learned.reasoning_required:
            reasoning = ""
        if reasoning is not None:
            wire.update(dict.fromkeys(self._engine.reasoning_fields, reasoning))
        if not calls:
            return
        self._open.clear()
        wire["tool_calls"] = [self._wire_call(call) for call in calls]
        if not wire.get("content"):
            # Moonshot refuses empty text beside calls, and the absent key is understood everywhere.
            wire.pop("content", None)

    def _wire_call(self, call: Any) -> JsonObject:
        function: Any = call.get("function")
        function = function if is_object(function) else {}
        spoken = str(function.get("name") or "")
        name = self._names.get(spoken) or safe_name(spoken)
        identity = call.get("id")
        is_usable = isinstance(identity, str) and identity and all(identity != sent for _, sent in self._open)
        sent = identity if is_usable and not self._renumbers else call_id(name, self._calls)
        self._calls += 1
        self._open.append((identity, sent))
        arguments: Any = function.get("arguments")
        if not isinstance(arguments, str):
            # Spaced as the chat templates space the JSON of an object.
            arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False, default=str)
        return {"id": sent, "type": "function", "function": {"name": name, "arguments": arguments}}

    def _write_result(self, wire: Message) -> None:
        # By the reference form a result has no name; some templates would show it as the speaker.
        wire.pop("name", None)
        wire["tool_call_id"] = self._sent_id(wire.get("tool_call_id"))
        content: Any = wire.get("content")
        takes_images = self._engine.images_in_results and not self._learned.text_only_results
        if is_array(content) and not takes_images:
            self._images += [part for part in content if not _is_text(part)]
            wire["content"] = text_of(content) or "[the image follows in the next message]"
        wire.setdefault("content", "")

    def _sent_id(self, identity: Any) -> Any:
        """The id that was sent for a call: results come in call order, ids may repeat."""
        for place, (given, sent) in enumerate(self._open):
            if given == identity:
                del self._open[place]
                return sent
        return identity

    def _take_images(self) -> list[Message]:
        if not self._images:
            return []
        images, self._images = self._images, []
        return [{"role": "user", "content": images}]


def _is_text(part: Any) -> bool:
    return is_object(part) and part.get("type") == "text"


def tools_of_messages(messages: Sequence[Message]) -> list[JsonObject]:
    """The tools that system messages bring, in order."""
    found: list[JsonObject] = []
    for message in messages:
        tools: Any = message.get("tools")
        if message.get("role") == "system" and is_array(tools):
            found += [tool for tool in tools if is_object(tool)]
    return found
