"""Facts about JSON text that is still arriving."""

from __future__ import annotations


class ObjectTracker:
    """Whether the JSON text seen so far has closed the first bracket it opened."""

    __slots__ = ("_depth", "_strings", "closed")

    def __init__(self) -> None:
        self.closed = False
        self._depth = 0
        self._strings = StringTracker()

    def feed(self, text: str) -> None:
        """Take more of the text."""
        for character in text:
            self._strings.feed(character)
            if self._strings.inside or character not in "{}[]":
                continue
            self._depth += 1 if character in "{[" else -1
            self.closed = self.closed or self._depth <= 0


class StringTracker:
    """Whether the end of the JSON text seen so far lies inside a string literal.

    Each character is looked at once; nothing is kept.
    """

    __slots__ = ("_escaped", "inside")

    def __init__(self) -> None:
        self.inside = False
        self._escaped = False

    def feed(self, text: str) -> None:
        """Take more of the text."""
        if not self._escaped and '"' not in text and "\\" not in text:
            return
        place = 1 if self._escaped and text else 0
        self._escaped = self._escaped and not text
        while place < len(text):
            if not self.inside:
                place = text.find('"', place) + 1
                if not place:
                    return
                self.inside = True
                continue
            place = self._leave_string(text, place)

    def _leave_string(self, text: str, place: int) -> int:
        quote = text.find('"', place)
        end = quote if quote != -1 else len(text)
        escape = text.find("\\", place, end)
        if escape == -1:
            self.inside = quote == -1
            return end + 1
        self._escaped = escape + 1 == len(text)
        return escape + 2
