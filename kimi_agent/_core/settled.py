"""What a request asked for and what its reply means, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimi_agent.messages import Message, ToolSpec
    from kimi_agent.results import Repair, Usage

Problem: TypeAlias = Literal["unknown_tool", "invalid_arguments", "truncated"]
"""Why a call must not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledCall:
    """A call of the reply with its fate."""

    index: int
    id: str
    name: str
    arguments: Any
    """The decoded object, or the raw text if it could not be decoded."""
    arguments_text: str
    """Valid JSON for the history."""
    problem: Problem | None = None
    recovered: bool = False
    """Found in text rather than reported by the server."""
    explanation: str = ""
    """What the model is told about the problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledReply:
    """What a reply means."""

    content: str
    reasoning: str | None
    calls: tuple[SettledCall, ...]
    finish_reason: str
    raw_finish_reason: str | None
    usage: Usage
    repairs: tuple[Repair, ...]
    calls_refused: bool = False
    """Calls came although none were asked for, and were dropped."""

    def message(self) -> Message:
        """The assistant message for the history."""
        message: Message = {"role": "assistant"}
        if self.content.strip() or not self.calls:
            message["content"] = self.content
        if self.reasoning is not None:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments_text},
                }
                for call in self.calls
            ]
        return message


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the request asked for, as far as it decides how the reply is understood."""

    step: int
    tools: Mapping[str, ToolSpec]
    calls_allowed: bool = True
    """False if no tools were offered, or `tool_choice` was `none`."""
    raw_calls_allowed: bool = True
    raw_text: bool = False
    """Whether raw text was asked for, so that calls found in it are no repair."""
    max_output_tokens: int | None = None
    calls_before: int = 0
    """Calls the conversation already holds."""
