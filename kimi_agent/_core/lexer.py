"""Text → plain text and markers, however the text was cut."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import StrEnum

M = TypeVar("M", bound="StrEnum")


class Lexer(Generic[M]):
    """Splits text into plain pieces (`str`) and members of a marker enum.

    Every marker starts with `<` and holds no other `<`, so only the last `<` of a piece can begin an
    unfinished marker. What is held back is therefore shorter than the longest marker, and each
    character is looked at once.
    """

    __slots__ = ("_by_text", "_held", "_longest", "_prefixes", "_split")

    def __init__(self, markers: Iterable[M]) -> None:
        self._by_text = {str(marker): marker for marker in markers}
        self._longest = max(map(len, self._by_text))
        self._prefixes = frozenset(text[:end] for text in self._by_text for end in range(1, len(text)))
        longest_first = sorted(self._by_text, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")").split
        self._held = ""

    @property
    def held(self) -> str:
        """The beginning of what may become a marker."""
        return self._held

    def feed(self, text: str) -> list[str | M]:
        """The tokens that are certain after `text`; plain pieces are never empty."""
        if self._held:
            text = self._held + text
            self._held = ""
        last = self.unfinished(text)
        if last != -1:
            self._held = text[last:]
            text = text[:last]
        return self._tokens(text)

    def unfinished(self, text: str) -> int:
        """Where at the end of `text` a marker begins that more text may complete, or -1."""
        last = text.rfind("<", max(0, len(text) - self._longest + 1))
        return last if last != -1 and text[last:] in self._prefixes else -1

    def defused(self, text: str) -> str:
        """`text` with every marker in it broken by a space, so that it can be shown."""
        if "<" not in text:
            return text
        pieces = self._split(text)
        pieces[1::2] = [f"{marker[0]} {marker[1:]}" for marker in pieces[1::2]]
        return "".join(pieces)

    def close(self) -> list[str | M]:
        """What was held back: no marker came of it, so it is text."""
        held, self._held = self._held, ""
        return [held] if held else []

    def _tokens(self, text: str) -> list[str | M]:
        if "<" not in text:
            return [text] if text else []
        # With one group in the pattern, every second piece of the split is a marker.
        return [
            self._by_text[piece] if place % 2 else piece
            for place, piece in enumerate(self._split(text))
            if piece
        ]
