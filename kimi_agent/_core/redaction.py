"""Texts that leave the process without what looks like a secret."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from kimi_agent.json_types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECRETS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:sk|pk|rk|xox[abp])-[A-Za-z0-9_-]{12,}",
        r"\b(?:ghp|gho|hf)_[A-Za-z0-9]{12,}",
        r"\bAKIA[A-Z0-9]{12,}",
        r"\bbearer\s+[A-Za-z0-9._~+/=-]{8,}",
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*",
        r"(?<=://)[^\s/@:]{1,256}:[^\s/@]{1,256}(?=@)",
        r"""(?<=[?&\s"'])(?:api[_-]?key|token|secret|password|passwd|authorization)["']?\s?[=:]\s?["']?[^\s&"',;]{3,}""",
    )
)
_LONGEST: Final = 300
_LONGEST_ANSWER: Final = 10_000
_HIDDEN: Final = "[hidden]"


def one_line(text: str) -> str:
    """The first line of `text`, cut to a readable length, with what looks like a secret replaced."""
    return without_secrets(text.strip().split("\n", 1)[0][: _LONGEST * 2])[:_LONGEST]


def without_secrets(text: str, known: Iterable[str] = ()) -> str:
    """`text` with the `known` secrets, and whatever looks like one, replaced."""
    for secret in known:
        text = text.replace(secret, _HIDDEN)
    for pattern in _SECRETS:
        text = pattern.sub(_HIDDEN, text)
    return text


def hide(value: Any, known: Iterable[str] = ()) -> Any:
    """A decoded JSON value with the secrets in its texts replaced; long texts are cut."""
    if isinstance(value, str):
        return without_secrets(value[:_LONGEST_ANSWER], known)
    if is_object(value):
        return {key: hide(entry, known) for key, entry in value.items()}
    if is_array(value):
        return [hide(entry, known) for entry in value]
    return value
