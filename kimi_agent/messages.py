"""What is said: Chat Completions messages as plain JSON, and the values the core works on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from kimi_agent.json_types import JsonObject, is_array, is_object

Message: TypeAlias = dict[str, Any]
"""One Chat Completions message as a plain dict: any database, log or framework can hold it."""

ContentPart: TypeAlias = dict[str, Any]
"""One content part, e.g. `{"type": "text", "text": "…"}` or `{"type": "image_url", …}`."""


class FunctionCallDict(TypedDict):
    """The `function` of a tool call as Chat Completions writes it."""

    name: str
    arguments: str


class ToolCallDict(TypedDict):
    """A tool call as Chat Completions writes it."""

    id: str
    type: Literal["function"]
    function: FunctionCallDict


class AssistantMessageDict(TypedDict):
    """An assistant message as this package writes it."""

    role: Literal["assistant"]
    content: NotRequired[str]
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCallDict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a reply, ready to be carried out."""

    index: int
    """Place in the reply, from 0."""

    id: str
    """The label that pairs the call with its result in the history."""

    name: str
    """The tool's own name."""

    arguments: JsonObject
    """Decoded arguments."""

    step: int = 0
    """The step whose reply held the call, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str = ""
    parameters: JsonObject = field(default_factory=lambda: {"type": "object", "properties": {}})
    """JSON Schema of the arguments object."""

    sent_name: str = ""
    """The name it goes by on the wire, if servers refuse its own."""

    @property
    def wire_name(self) -> str:
        """The name it goes by on the wire."""
        return self.sent_name or self.name

    def to_json(self) -> JsonObject:
        """The entry of the request's `tools` list."""
        function: JsonObject = {"name": self.wire_name}
        if self.description:
            function["description"] = self.description
        function["parameters"] = self.parameters
        return {"type": "function", "function": function}


def text_of(content: object) -> str:
    """The text of a message's `content`: a string as it is, the text parts of a list joined, else `""`."""
    if isinstance(content, str):
        return content
    if not is_array(content):
        return ""
    parts: list[Any] = content
    return "".join(part["text"] for part in parts if is_object(part) and isinstance(part.get("text"), str))
