"""The literal tokens, tags and sentences of K3's text format. Data only.

Source: `encoding_k3.py` and the tokenizer configuration of `moonshotai/Kimi-K3`, read October 2026;
renders of it are kept in `tests/data/golden/kimi-k3.jsonl`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class K3Marker(StrEnum):
    """A control token of K3. A tag stands between `OPEN` or `CLOSE` and `SEP`."""

    OPEN = "<|open|>"
    CLOSE = "<|close|>"
    SEP = "<|sep|>"
    MESSAGE_END = "<|end_of_msg|>"


class K3Tag(StrEnum):
    """What a tag may open or close."""

    MESSAGE = "message"
    THINK = "think"
    RESPONSE = "response"
    TOOLS = "tools"
    CALL = "call"
    ARGUMENT = "argument"
    JSON = "json"


LONGEST_K3_TAG: Final = 1024
"""Characters between `OPEN` or `CLOSE` and `SEP` past which they are text. Tool names end at 256."""

K3_IMAGE_PLACEHOLDER: Final = "<|kimi_image_placeholder|>"
"""No token: K3's processor replaces this text by the pieces of an image."""

K3_EFFORTS: Final = ("low", "high", "max")
K3_DEFAULT_EFFORT: Final = "max"
"""What servers render if the request names none (vLLM, llama.cpp)."""
K3_NO_EFFORT: Final = "none"
"""The effort that means: do not think."""

K3_TOOLS_HEADING: Final = "# Tools\nHere are the available tools, described in JSONSchema.\n\n"
K3_NEW_TOOLS_HEADING: Final = (
    "## New Tools Available\n"
    "The system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\n"
    "Here are the specs for the extended tools.\n\n"
)

# `medium` is named here although the encoder refuses it.
K3_EFFORT_SENTENCE: Final = (
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response "
    "channel), supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort={effort}`."
)
K3_TOOL_CHOICE_SENTENCES: Final = {
    "required": "The system is invoked with `tool_choice=required`.\n"
    "You MUST call tools in the next message.",
    "none": "The system is invoked with `tool_choice=none`.\n"
    "You MUST NOT call any tools in the next message.",
}
"""Other choices are not rendered."""
K3_RESPONSE_FORMAT_SENTENCE: Final = (
    "The system is invoked with `response_format={kind}`.\n"
    "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting."
)
K3_SCHEMA_HEADING: Final = "\nThe JSON data must match the following schema:\n"
