"""Recorded HTTP exchanges of real engines, and what a user must get from each. See README.md."""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One request and the answer an engine gave, byte for byte."""

    engine: str
    config: str
    case: str
    server_command: str
    """How the engine was started."""

    method: str
    path: str
    request: Any
    """The decoded JSON body; `""` where the request had none."""

    status: int
    headers: Mapping[str, str]
    body: str
    """The answer as text; for a stream all server-sent events, in their order."""

    @property
    def id(self) -> str:
        """`engine/config/case`."""
        return f"{self.engine}/{self.config}/{self.case}"

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream of events (a refused stream is not)."""
        return "event-stream" in self.headers.get("content-type", "")


def load() -> Iterator[Recording]:
    """Every recording, ordered by engine, configuration and case."""
    for packed in sorted(HERE.glob("*/*.jsonl.xz")):
        with lzma.open(packed, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield Recording(**json.loads(line))


def expected() -> dict[str, dict[str, Any]]:
    """What a user must get, by recording id."""
    found: dict[str, dict[str, Any]] = {}
    for listing in sorted(HERE.glob("*/*.expected.json")):
        prefix = f"{listing.parent.name}/{listing.name.removesuffix('.expected.json')}"
        entries = json.loads(listing.read_text(encoding="utf-8"))
        found.update({f"{prefix}/{case}": entry for case, entry in entries.items()})
    return found
