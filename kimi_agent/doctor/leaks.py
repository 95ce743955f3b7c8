"""Markers of the model's own format in texts where no client should see them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kimi_agent.dialects.k2_format import K2Marker
from kimi_agent.dialects.k3_format import K3Marker

if TYPE_CHECKING:
    from kimi_agent.doctor.observed_reply import ObservedReply

LeakKind: TypeAlias = Literal["call", "thought", "framing"]

_K2_CALLS: Final = (
    K2Marker.SECTION_BEGIN,
    K2Marker.SINGULAR_SECTION_BEGIN,
    K2Marker.CALL_BEGIN,
    K2Marker.ARGUMENTS_BEGIN,
    K2Marker.CALL_END,
    K2Marker.SECTION_END,
    K2Marker.SINGULAR_SECTION_END,
)
_K2_THOUGHTS: Final = (K2Marker.THINK_BEGIN, K2Marker.THINK_END)
_K2_FRAMES: Final = (
    K2Marker.MESSAGE_END,
    K2Marker.MIDDLE,
    K2Marker.ASSISTANT,
    K2Marker.USER,
    K2Marker.SYSTEM,
)
# Engines that strip special tokens leave this of a call.
_BARE_CALL: Final = re.compile(r"functions\.[\w.-]{1,200}:\d{1,6}\s{0,4}\{")
_K3_TAG: Final = re.compile(r"<\|(?:open|close)\|>(think|tools|call|argument)\b")


@dataclass(frozen=True, slots=True)
class Leak:
    """A marker that came through."""

    kind: LeakKind
    marker: str
    """As it was seen."""

    text_format: Literal["k2", "k3"]
    """The grammar it belongs to."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A leak, and where it was seen."""

    leak: Leak
    field: str
    """The field of the reply: `content` or the one with the reasoning."""

    probe: str
    """What had been asked, e.g. `tool call`."""


def sightings(reply: ObservedReply, probe: str) -> list[Sighting]:
    """Every leak of a reply, one for each kind and field."""
    texts = {"content": reply.content, **reply.reasoning}
    return [Sighting(leak, field, probe) for field, text in texts.items() for leak in leaks_in(text)]


def leaks_in(text: str) -> list[Leak]:
    """The first marker of each kind in `text`."""
    found: dict[LeakKind, Leak] = {}
    for leak in (*_k3_leaks(text), *_k2_leaks(text)):
        found.setdefault(leak.kind, leak)
    return list(found.values())


def _k2_leaks(text: str) -> list[Leak]:
    kinds: tuple[tuple[LeakKind, tuple[str, ...]], ...] = (
        ("call", _K2_CALLS),
        ("thought", _K2_THOUGHTS),
        ("framing", _K2_FRAMES),
    )
    leaks = [Leak(kind, str(marker), "k2") for kind, markers in kinds for marker in markers if marker in text]
    if bare := _BARE_CALL.search(text):
        leaks.append(Leak("call", bare[0], "k2"))
    return leaks


def _k3_leaks(text: str) -> list[Leak]:
    leaks = [Leak("thought" if tag[1] == "think" else "call", tag[0], "k3") for tag in _K3_TAG.finditer(text)]
    if any(marker in text for marker in K3Marker):
        leaks.append(Leak("framing", next(str(marker) for marker in K3Marker if marker in text), "k3"))
    return leaks
