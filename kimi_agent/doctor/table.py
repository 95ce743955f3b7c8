"""A report as lines of text."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kimi_agent.doctor.examination import CHECKS
from kimi_agent.doctor.finding import VERDICTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kimi_agent.doctor.finding import Finding, Report, Verdict

WIDTH: Final = 100
_GAP: Final = "  "
_VERDICT_WIDTH: Final = max(map(len, VERDICTS))
_TITLE_WIDTH: Final = max(len(check.title) for check in CHECKS)
_INDENT: Final = " " * (_VERDICT_WIDTH + len(_GAP) + _TITLE_WIDTH + len(_GAP))
_COLOURS: Final[dict[Verdict, str]] = {"ok": "32", "warn": "33", "fail": "1;31", "skip": "2"}
_WORDS: Final[dict[Verdict, tuple[str, str]]] = {
    "fail": ("failed", "failed"),
    "warn": ("warning", "warnings"),
    "ok": ("ok", "ok"),
    "skip": ("skipped", "skipped"),
}
_NOT_SHOWN: Final = "?"
_MANY: Final = 3


class Table:
    """Turns findings into lines of at most `WIDTH` characters, one finding after the other."""

    def __init__(self, *, colour: bool = False) -> None:
        self._colour = colour
        self._remedies: dict[str, str] = {}
        """Each remedy told so far, with the title of the first finding that had it."""
        self._skipped: list[Finding] = []
        """The latest findings, if they were skipped for one and the same reason."""

    def rows(self, finding: Finding) -> Iterator[str]:
        """The lines that can be shown now that `finding` is there.

        Checks skipped in a row for the same reason make one line, which comes when the row has ended.
        """
        if self._skipped and finding.seen != self._skipped[0].seen:
            yield from self._skipped_rows()
        if finding.verdict == "skip":
            self._skipped.append(finding)
        else:
            yield from self._rows_of(finding)

    def _skipped_rows(self) -> Iterator[str]:
        skipped, self._skipped = self._skipped, []
        if len(skipped) < _MANY:
            for finding in skipped:
                yield from self._rows_of(finding)
        else:
            yield from self._rows_of(replace(skipped[0], title=f"{len(skipped)} more checks"))

    def _rows_of(self, finding: Finding) -> Iterator[str]:
        first, *others = _wrapped(finding.seen)
        verdict = self._painted(finding.verdict.ljust(_VERDICT_WIDTH), _COLOURS[finding.verdict])
        title = finding.title.ljust(_TITLE_WIDTH)
        if finding.verdict == "skip":
            title, first = self._painted(title, "2"), self._painted(first, "2")
        yield f"{verdict}{_GAP}{title}{_GAP}{first}".rstrip()
        for line in others:
            yield _INDENT + line
        if finding.remedy:
            same = self._remedies.setdefault(finding.remedy, finding.title)
            remedy = finding.remedy if same == finding.title else f"as for {same}"
            label = "" if remedy.startswith("nothing to do") else "fix: "
            for line in _wrapped(label + remedy, " " * len(label)):
                yield _INDENT + self._painted(line, "36")

    def closing(self, report: Report) -> Iterator[str]:
        """The last lines: how many checks came to what, and how to start the server."""
        yield from self._skipped_rows()
        yield ""
        yield ", ".join(
            self._painted(f"{count} {_WORDS[verdict][count != 1]}", _COLOURS[verdict])
            for verdict in VERDICTS
            if (count := report.count(verdict))
        )
        if report.start_command:
            yield ""
            yield "Start the server like this, with whatever other flags it had:"
            yield from command_lines(report.start_command)

    def _painted(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text


def command_lines(command: str) -> Iterator[str]:
    """A command to copy, broken before its flags so that no line is too long."""
    words = _printable(command).split(" ")
    line = "  " + words[0]
    for word in words[1:]:
        # A flag and its value stay together as far as a break before the flag can see to it.
        if word.startswith("-") and len(line) + 1 + len(word) + _TITLE_WIDTH > WIDTH - 2:
            yield f"{line} \\"
            line = f"    {word}"
        else:
            line = f"{line} {word}"
    yield line


def _wrapped(text: str, hanging: str = "") -> list[str]:
    # Words without a space in them, such as paths, are broken; hyphens stay, flags are full of them.
    lines = textwrap.wrap(
        _printable(text), WIDTH - len(_INDENT), subsequent_indent=hanging, break_on_hyphens=False
    )
    return lines or [""]


def _printable(text: str) -> str:
    """`text` without what could control a terminal: it comes from the server."""
    return "".join(letter if letter.isprintable() else _NOT_SHOWN for letter in text)
