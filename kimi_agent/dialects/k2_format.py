"""The literal tokens of the K2 generation's text format."""

from __future__ import annotations

from enum import StrEnum


class K2Marker(StrEnum):
    """A control token of K2, K2-Thinking, K2.5, K2.6 and K2.7.

    Source: `tokenizer_config.json` of `moonshotai/Kimi-K2-Instruct` and `Kimi-K2-Thinking`, read
    October 2026. A server that has no parser, or a parser that lost its place, passes them on as text.
    """

    SECTION_BEGIN = "<|tool_calls_section_begin|>"
    SECTION_END = "<|tool_calls_section_end|>"
    # The singular is not in the tokenizer; models write it now and then (vLLM's parser knows it too).
    SINGULAR_SECTION_BEGIN = "<|tool_call_section_begin|>"
    SINGULAR_SECTION_END = "<|tool_call_section_end|>"
    CALL_BEGIN = "<|tool_call_begin|>"
    ARGUMENTS_BEGIN = "<|tool_call_argument_begin|>"
    CALL_END = "<|tool_call_end|>"
    THINK_BEGIN = "<think>"
    THINK_END = "</think>"
    MESSAGE_END = "<|im_end|>"
    USER = "<|im_user|>"
    ASSISTANT = "<|im_assistant|>"
    SYSTEM = "<|im_system|>"
    MIDDLE = "<|im_middle|>"
    HEADER_BEGIN = "<|start_header_id|>"
    HEADER_END = "<|end_header_id|>"
    MEDIA_BEGIN = "<|media_begin|>"
    MEDIA_CONTENT = "<|media_content|>"
    MEDIA_END = "<|media_end|>"
    MEDIA_PAD = "<|media_pad|>"


LONGEST_K2_MARKER = max(len(marker) for marker in K2Marker)
"""Characters a reader may have to hold back to tell a marker from text."""

CALL_ID_PREFIX = "functions."
"""Ids are `functions.NAME:N`; N counts all calls of the conversation from 0."""
