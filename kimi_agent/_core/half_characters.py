"""Characters that a gateway cut in two, put together again."""

from __future__ import annotations

import re

_HALF = re.compile("[\ud800-\udfff]")
_FIRST_HALF = re.compile("[\ud800-\udbff]\\Z")
_LOST = "\ufffd"


def joined_halves(text: str) -> str:
    """`text` with UTF-16 halves joined; a half without its other half is lost, as U+FFFD says."""
    if text.isascii() or not _HALF.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class HalfJoiner:
    """Joins halves that come in different pieces; holds back one half at most."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """The text that is whole after `text`."""
        if not self._held and text.isascii():
            return text
        text = self._held + text
        self._held = ""
        if _FIRST_HALF.search(text, max(0, len(text) - 1)):
            self._held = text[-1]
            text = text[:-1]
        return joined_halves(text)

    def close(self) -> str:
        """What is left: a half that stayed alone."""
        held, self._held = self._held, ""
        return _LOST if held else ""
