"""A text that a simple regular expression accepts, for string schemas with a `pattern`."""

import re

MAX_PATTERN_CHARACTERS = 200
MAX_TRIED_CHARACTERS = 24
"""Longer texts are not matched: a pattern may take exponential time."""

_ATOM = re.compile(r"\\(.)|\[(\^?)((?:\\.|[^\]\\])+)\]|([^\\\[\](){}*+?|.^$])|(\.)")
_COUNT = re.compile(r"\{(\d{1,3})(?:,\d{0,3})?\}|([*+?])")
_CLASSES = {"d": "7", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a"}
_LETTERS = "a7A-_ .:/@"


def accepts(pattern: str, text: str) -> bool:
    """Whether `text` is short and holds what `pattern` looks for (JSON Schema does not anchor)."""
    try:
        return len(text) <= MAX_TRIED_CHARACTERS and re.search(pattern, text) is not None
    except (re.error, RecursionError, OverflowError):
        return False


def matching_text(pattern: str, candidates: tuple[str, ...]) -> str | None:
    """A candidate that `pattern` accepts, else a text made from it; `None` if neither is found.

    Literals, classes and counts are understood; of alternatives the first is taken.
    """
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        return None
    made = made_text(pattern)
    tried = [*candidates, *([] if made is None else [made])]
    return next((text for text in tried if accepts(pattern, text)), None)


def made_text(pattern: str) -> str | None:
    """A text built atom by atom; `None` at the first thing not understood."""
    pattern = re.sub(r"\((?:\?:)?([^()|]*)\|?[^()]*\)(?![*+?{])", r"\1", pattern).strip("^$")
    made: list[str] = []
    at = 0
    while at < len(pattern):
        atom = _ATOM.match(pattern, at)
        if atom is None:
            return None
        at = atom.end()
        count = _COUNT.match(pattern, at)
        at = count.end() if count else at
        repeated = 1 if count is None else int(count[1] or (count[2] == "+"))
        made.append(letter_of(atom) * repeated)
    return "".join(made)


def letter_of(atom: re.Match[str]) -> str:
    """One character the atom stands for."""
    escaped, negated, members, literal, _ = atom.groups()
    if escaped is not None:
        return _CLASSES.get(escaped, escaped)
    if members is None:
        return literal or "a"
    if not negated:
        return _CLASSES.get(members[1], members[1]) if members.startswith("\\") else members[0]
    return next((letter for letter in _LETTERS if accepts(f"^{atom[0]}$", letter)), "a")
