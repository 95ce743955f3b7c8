"""The finish reasons that servers write, in the words of Chat Completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

FINISH_REASONS: Final[Mapping[str, str]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    # Words of relays and of servers that answer in another API's terms.
    "end_turn": "stop",
    "stop_sequence": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "complete": "stop",
    "completed": "stop",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "tool_call": "tool_calls",
    "function_call": "tool_calls",
    "refusal": "content_filter",
}


def known_word(raw: str | None) -> str:
    """`stop`, `length`, `tool_calls`, `content_filter`, or `other`; none at all counts as `stop`."""
    return FINISH_REASONS.get(raw.lower(), "other") if raw else "stop"


def is_cut(raw: str | None) -> bool:
    """Whether the word says that the reply reached the output limit."""
    return known_word(raw) == "length"
