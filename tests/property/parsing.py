"""What the text parser makes of a text, in forms that tests compare."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kimi_agent._core.k2_text import K2TextParser
from kimi_agent.dialects.k2_format import K2Marker
from kimi_agent.dialects.k3_format import K3Marker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kimi_agent._core.transcript import Output, ParsedText

Start = Literal["answer", "reasoning"]
STARTS: tuple[Start, ...] = ("answer", "reasoning")

_MARKER = re.compile(
    "|".join(re.escape(marker) for marker in sorted((*K2Marker, *K3Marker), key=len, reverse=True))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a user of the parser sees: what was shown, in order and joined, and the whole."""

    shown: tuple[Output, ...]
    parsed: ParsedText


def read(pieces: Iterable[str], *, start: Start = "answer") -> Seen:
    """What the parser makes of `pieces`."""
    parser = K2TextParser(start=start)
    outputs: list[Output] = []
    for piece in pieces:
        outputs += parser.feed(piece)
    closing, parsed = parser.close()
    return Seen(shown=tuple(merged([*outputs, *closing])), parsed=parsed)


def merged(outputs: Iterable[Output]) -> list[Output]:
    """`outputs` with neighbours of the same kind joined."""
    joined: list[Output] = []
    for kind, text in outputs:
        if joined and joined[-1][0] == kind != "withdraw":
            joined[-1] = (kind, joined[-1][1] + text)
        else:
            joined.append((kind, text))
    return joined


def shown_as(kind: Literal["text", "reasoning"], outputs: Iterable[Output]) -> list[str]:
    """The texts of one kind that stood on a screen: one for each stretch between withdrawals."""
    stretches = [""]
    for each, text in outputs:
        if each == "withdraw" and kind == "text":
            stretches.append("")
        elif each == kind:
            stretches[-1] += text
    return stretches


def has_marker(text: str | None) -> bool:
    """Whether a whole marker stands in `text`."""
    return text is not None and _MARKER.search(text) is not None


def without_markers(text: str) -> str:
    """`text` less its markers, each taken out once."""
    return _MARKER.sub("", text)


def letters(*texts: str | None) -> Counter[str]:
    """How often each character that is not white space stands in `texts`."""
    return Counter(character for text in texts if text for character in text if not character.isspace())


def is_in_order(part: str, whole: str) -> bool:
    """Whether the characters of `part`, white space aside, stand in `whole` in the same order."""
    rest = iter(whole)
    return all(character in rest for character in part if not character.isspace())


def all_parts(parsed: ParsedText) -> Sequence[str]:
    """Every text that `parsed` holds."""
    calls = (*parsed.calls, *parsed.thought_calls)
    return [
        parsed.content,
        parsed.reasoning or "",
        *(text for call in calls for text in (call.header, call.arguments)),
    ]
