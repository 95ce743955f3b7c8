"""Notices a model that keeps making the same calls and getting the same results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

# Moonshot's own server reminds at the third, fifth and eighth repetition (platform docs, October 2026).
REMIND_AT: Final = 3
REFUSE_AT: Final = 5


class LoopGuard:
    """Counts, for each call, how often it brought the same result since anything new happened.

    A cycle of several calls is noticed like a single one: within it nothing is new.
    """

    def __init__(self, max_repeats: int | None) -> None:
        self._max_repeats = max_repeats
        self._last: dict[Hashable, tuple[str, int]] = {}

    def refuses(self, name: str, arguments: Any) -> bool:
        """Whether the call has repeated itself too often to be run once more."""
        _, count = self._last.get(_key(name, arguments), ("", 0))
        return self._max_repeats is not None and count + 1 >= REFUSE_AT

    def note(self, name: str, arguments: Any, result: str, *, refused: bool = False) -> int:
        """Count one outcome; the number of times the call has now brought this result."""
        key = _key(name, arguments)
        last, count = self._last.get(key, ("", 0))
        if count and (refused or result == last):
            self._last[key] = (last, count + 1)
            return count + 1
        # Something new: whatever repeated before may have been waiting for it.
        self._last = {other: (text, 1) for other, (text, _) in self._last.items()}
        self._last[key] = (result, 1)
        return 1

    def is_loop(self, count: int) -> bool:
        """Whether `count` repetitions end the run."""
        return self._max_repeats is not None and count >= self._max_repeats

    def reminder(self, count: int) -> str:
        """What to tell the model beside the result, or `""`."""
        if self._max_repeats is None or count < REMIND_AT:
            return ""
        return (
            f"\n\n[This same call has now brought this same result {count} times. Repeating it will not "
            "change the result: use what you have, try something else, or answer.]"
        )


def refusal(name: str) -> str:
    """What the model is told instead of a result."""
    return (
        f"Not run: {name!r} was called again with the same arguments and would bring the same result. "
        "Use the result you have, try something else, or answer."
    )


def _key(name: str, arguments: Any) -> Hashable:
    return name, json.dumps(arguments, sort_keys=True, ensure_ascii=False, default=str)
