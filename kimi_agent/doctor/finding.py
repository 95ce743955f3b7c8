"""What an examination brings to light: `Finding`, one a check, and `Report`, all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_agent.json_types import JsonObject

Verdict: TypeAlias = Literal["ok", "warn", "fail", "skip"]
"""`ok`: as it should be. `warn`: works, but not as well as it could. `fail`: something that matters does not
work. `skip`: could not be checked, or does not apply."""

VERDICTS: Final[tuple[Verdict, ...]] = ("fail", "warn", "ok", "skip")
"""The most urgent first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one check."""

    check: str = ""
    """Its name in reports, e.g. `tool_call`."""

    title: str = ""
    """Its name for people, e.g. `tool call`."""

    verdict: Verdict
    seen: str
    """What the server did."""

    remedy: str = ""
    """What to do about it; `""` if there is nothing to do."""

    wants_flags: bool = False
    """Whether the server has to be started with other flags."""

    duration_s: float = 0.0

    def to_json(self) -> JsonObject:
        """The finding as an object."""
        return {
            "check": self.check,
            "title": self.title,
            "verdict": self.verdict,
            "seen": self.seen,
            "remedy": self.remedy,
            "duration_s": round(self.duration_s, 3),
        }


def ok(seen: str, remedy: str = "") -> Finding:
    """All is well."""
    return Finding(verdict="ok", seen=seen, remedy=remedy)


def warn(seen: str, remedy: str = "") -> Finding:
    """It works, but could do better."""
    return Finding(verdict="warn", seen=seen, remedy=remedy)


def fail(seen: str, remedy: str = "") -> Finding:
    """Something that matters does not work."""
    return Finding(verdict="fail", seen=seen, remedy=remedy)


def skip(reason: str) -> Finding:
    """Not checked."""
    return Finding(verdict="skip", seen=reason)


def needing_flags(finding: Finding) -> Finding:
    """`finding`, put right by starting the server with other flags."""
    return replace(finding, wants_flags=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings about one deployment."""

    base_url: str
    api: str
    model: str | None
    """The id the checks went on with; `None` if there was none to ask."""

    engine: str | None
    generation: str | None
    context_tokens: int | None
    findings: Sequence[Finding]

    start_command: str = ""
    """How to start the server so that the failures by missing flags are gone; `""` if nothing is missing."""

    @property
    def is_healthy(self) -> bool:
        """Whether no check that matters failed."""
        return all(finding.verdict != "fail" for finding in self.findings)

    def count(self, verdict: Verdict) -> int:
        """How many checks came to `verdict`."""
        return sum(finding.verdict == verdict for finding in self.findings)

    def to_json(self) -> JsonObject:
        """The report as an object."""
        return {
            "base_url": self.base_url,
            "api": self.api,
            "model": self.model,
            "engine": self.engine,
            "generation": self.generation,
            "context_tokens": self.context_tokens,
            "is_healthy": self.is_healthy,
            "counts": {verdict: self.count(verdict) for verdict in VERDICTS},
            "start_command": self.start_command,
            "checks": [finding.to_json() for finding in self.findings],
        }
