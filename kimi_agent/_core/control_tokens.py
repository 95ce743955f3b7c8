"""Control tokens in text that must not control anything.

A prompt sent to `/v1/completions` is one string, and the tokenizer honours a control token wherever it
stands: in a web page that a tool fetched, it would end the message and begin another.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from kimi_agent.dialects.k2_format import K2Marker
from kimi_agent.dialects.k2_framing import K2_BRACKET_TOKENS, K2_TEXT_MODEL_MEDIA_BEGIN, K2_VIDEO_PLACEHOLDER
from kimi_agent.dialects.k3_format import K3_IMAGE_PLACEHOLDER, K3Marker
from kimi_agent.errors import ConfigurationError
from kimi_agent.json_types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTROL_TOKENS: Final = (
    *map(str, K2Marker),
    *K2_BRACKET_TOKENS,
    K2_TEXT_MODEL_MEDIA_BEGIN,
    K2_VIDEO_PLACEHOLDER,
    *map(str, K3Marker),
    K3_IMAGE_PLACEHOLDER,
)
"""Of all generations, with the placeholders that servers replace by media."""

# The 256 places at the end of the vocabulary that have no name of their own have this one.
_RESERVED: Final = r"<\|reserved_token_\d+\|>"
_PATTERN: Final = re.compile("|".join((*map(re.escape, CONTROL_TOKENS), _RESERVED)))


def neutralised(text: str) -> str:
    """`text` with a space behind the first character of each control token: `< |im_end|>`.

    No token holds a space, so nothing that is left can be one. A zero-width character would look nicer,
    but programs on the way may drop those, and the token would be whole again; and a model that is
    asked to repeat the text can write a space.
    """
    return _PATTERN.sub(_with_space, text)


def neutralised_value(value: Any) -> Any:
    """A copy of a JSON value, each string and key in it neutralised.

    Raises:
        ConfigurationError: it is nested too deeply.
    """
    try:
        return _copy(value)
    except RecursionError:
        raise ConfigurationError("a value is nested too deeply to be searched for control tokens") from None


def control_tokens(value: Any) -> tuple[str, ...]:
    """The control tokens in the strings and keys of a JSON value, each once, in order of appearance.

    Raises:
        ConfigurationError: it is nested too deeply.
    """
    try:
        return tuple(dict.fromkeys(token for text in _texts(value) for token in _PATTERN.findall(text)))
    except RecursionError:
        raise ConfigurationError("a value is nested too deeply to be searched for control tokens") from None


def _copy(value: Any) -> Any:
    if isinstance(value, str):
        return neutralised(value)
    if is_array(value):
        return [_copy(item) for item in value]
    if is_object(value):
        return {neutralised(key): _copy(item) for key, item in value.items()}
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_array(value):
        for item in value:
            yield from _texts(item)
    elif is_object(value):
        for key, item in value.items():
            yield key
            yield from _texts(item)


def _with_space(match: re.Match[str]) -> str:
    token = match[0]
    return f"{token[0]} {token[1:]}"
