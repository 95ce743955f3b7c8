"""The parts of the project's Markdown pages that tests look at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```([\w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*\Z", re.DOTALL)
_PRINTS = re.compile(r"\s*<!-- prints -->\s*\Z")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    """Where its first line stands, from 1."""
    language: str
    text: str
    not_run: str | None
    """Why it is not run, as a comment above it says."""
    prints: str | None
    """What it prints, if a `text` block that is marked so follows."""

    @property
    def place(self) -> str:
        """Page and line."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    matches = list(_FENCE.finditer(text))
    for place, match in enumerate(matches):
        reason = _NOT_RUN.search(text, 0, match.start())
        following = matches[place + 1] if place + 1 < len(matches) else None
        is_followed = following is not None and _PRINTS.match(text[match.end() : following.start()])
        yield Block(
            page=page,
            line=text.count("\n", 0, match.start()) + 2,
            language=match[1],
            text=match[2],
            not_run=reason[1] if reason else None,
            prints=following[2] if following is not None and is_followed else None,
        )


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """The `#…` targets of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(page)):
        plain = re.sub(r"[^\w\- ]", "", heading.lower().replace("`", ""))
        anchor = base = plain.replace(" ", "-")
        number = 0
        while anchor in found:
            number += 1
            anchor = f"{base}-{number}"
        found.add(anchor)
    return found
