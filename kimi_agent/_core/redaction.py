"""Texts that leave the process without what looks like a secret."""

from __future__ import annotations

import re
from typing import Final

_SECRETS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:sk|pk|rk|ghp|gho|xox[abp]|hf|AKIA)[-_]?[A-Za-z0-9_-]{12,}",
        r"\bbearer\s+[A-Za-z0-9._~+/=-]{8,}",
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*",
        r"(?<=://)[^\s/@:]{1,256}:[^\s/@]{1,256}(?=@)",
        r"""(?<=[?&\s"'])(?:api[_-]?key|token|secret|password|passwd|authorization)["']?\s?[=:]\s?["']?[^\s&"',;]{3,}""",
    )
)
_LONGEST: Final = 300


def one_line(text: str) -> str:
    """The first line of `text`, cut to a readable length, with what looks like a secret replaced."""
    line = text.strip().split("\n", 1)[0][: _LONGEST * 2]
    for secret in _SECRETS:
        line = secret.sub("[hidden]", line)
    return line[:_LONGEST]
