"""Tool names as servers take them, and ids as models know them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# Moonshot: letters, digits, underscores and dashes, a letter or underscore first (platform docs, October
# 2026). Letters of every script are let pass: self-hosted servers take them, and a model reads them.
_UNSAFE: Final = re.compile(r"[^\w-]")
_LONGEST: Final = 64


def wire_names(names: Iterable[str]) -> dict[str, str]:
    """For each tool name the one to send: itself, or a like one that servers take; all distinct."""
    own = list(names)
    taken = {name for name in own if _is_safe(name)}
    sent: dict[str, str] = {}
    for name in own:
        sent[name] = name if _is_safe(name) else _free(_like(name), taken)
        taken.add(sent[name])
    return sent


def safe_name(name: str) -> str:
    """`name`, or a like one that servers take."""
    return name if _is_safe(name) else _like(name)


def _is_safe(name: str) -> bool:
    return (
        len(name) <= _LONGEST * 2 and not _UNSAFE.search(name) and not name[:1].isdigit() and name[:1] != "-"
    )


def _like(name: str) -> str:
    like = _UNSAFE.sub("_", name)[:_LONGEST]
    return like if like[:1].isalpha() or like[:1] == "_" else f"_{like}"


def _free(like: str, taken: set[str]) -> str:
    name, number = like, 2
    while name in taken:
        name, number = f"{like}_{number}", number + 1
    return name
