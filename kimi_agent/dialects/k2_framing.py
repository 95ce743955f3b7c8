"""How the prompts of the K2 generations differ. Data only.

Sources, read October 2026: the chat templates and tokenizer wrappers published with the weights of
`moonshotai/Kimi-K2-Instruct` (first release and later fix), `Kimi-K2-Thinking`, `Kimi-K2.5` and
`Kimi-K2.6`; their renders are kept in `tests/data/golden/`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from kimi_agent.dialects.k2_format import K2Marker

K2_BRACKET_TOKENS: Final = ("[BOS]", "[EOS]", "[EOT]", "[UNK]", "[PAD]")
"""Tokens of the K2 tokenizer that are no markers of the format."""

K2_VIDEO_PLACEHOLDER: Final = "<|kimi_k25_video_placeholder|>"
"""No token: K2.5's processor replaces this text by the frames of a video."""

# The first templates wrote a begin token that the tokenizer does not have.
K2_TEXT_MODEL_MEDIA_BEGIN: Final = "<|media_start|>"

_IMAGE_TAIL = f"image{K2Marker.MEDIA_CONTENT}{K2Marker.MEDIA_PAD}{K2Marker.MEDIA_END}\n"

TOOLS_NAME: Final = "tool_declare"
RESULT_HEADING: Final = "## Return of "


@dataclass(frozen=True, slots=True, kw_only=True)
class K2Framing:
    """What one generation puts into the framing that all K2 generations share."""

    tool_list: Literal["json_as_given", "json_sorted", "typescript"] = "json_sorted"
    default_system: str = ""
    """System prompt where the conversation does not begin with one; `""` for none."""
    after_default_system: str = ""
    """Text behind the default system prompt's end marker."""
    greets_empty_history: bool = False
    """Whether the default system prompt also stands for no messages at all."""
    result_separator: str = "\n"
    """Between the heading of a tool result and its content."""
    image: str = f"{K2Marker.MEDIA_BEGIN}{_IMAGE_TAIL}"
    video: str = ""
    """`""`: a video part leaves no trace, unless it has a `text`."""

    # The first release ignored a message's name, made up the ids of calls, wrote the arguments' JSON
    # text as a JSON string once more, and showed a list of content parts as Python does.
    names_in_headers: bool = True
    ids_as_given: bool = True
    string_arguments_as_given: bool = True
    result_parts_as_text: bool = True

    thinks: bool = False
    """Whether assistant messages of the history have a thinking block."""
    thinking_switch: bool = False
    """Whether the template knows `thinking`, and the generation prompt opens the block itself."""
    preserve_switch: bool = False
    """Whether the template knows `preserve_thinking`."""
    always_preserves: bool = False


_INSTRUCT = K2Framing(
    default_system="You are Kimi, an AI assistant created by Moonshot AI.",
    after_default_system="\n",
    image=f"{K2_TEXT_MODEL_MEDIA_BEGIN}{_IMAGE_TAIL}",
)
_K2_5 = K2Framing(
    tool_list="typescript", video=f"{K2_VIDEO_PLACEHOLDER}\n", thinks=True, thinking_switch=True
)
_K2_6 = replace(_K2_5, preserve_switch=True)

K2_FRAMINGS: Final = {
    "k2-0711": replace(
        _INSTRUCT,
        tool_list="json_as_given",
        default_system="You are a helpful assistant",
        after_default_system="",
        # A backslash and an n: the template meant a newline.
        result_separator=r"\n",
        names_in_headers=False,
        ids_as_given=False,
        string_arguments_as_given=False,
        result_parts_as_text=False,
    ),
    "k2": _INSTRUCT,
    "k2-thinking": replace(_INSTRUCT, after_default_system="", greets_empty_history=True, thinks=True),
    "k2.5": _K2_5,
    "k2.6": _K2_6,
    "k2.7": replace(_K2_6, always_preserves=True),
}
"""By the generation's name. `k2` is K2-Instruct, also 0905, with the template as fixed in 2025."""
