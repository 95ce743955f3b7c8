"""Calls whose markers were stripped: `functions.NAME:N{…}` left at the end of plain text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kimi_agent._core.call_name import resolve_name
from kimi_agent._core.lenient_json import object_end
from kimi_agent._core.transcript import RawCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimi_agent.messages import ToolSpec

_HEADER = re.compile(r"functions\.([^\s{}]{1,256}?):(\d{1,9})\s{0,16}(?=\{)")
_SPACE = re.compile(r"\s*")
_MAX_STARTS: Final = 64


def find_bare_calls(text: str, tools: Mapping[str, ToolSpec]) -> tuple[str, tuple[RawCall, ...]]:
    """The text before a run of bare calls that ends `text`, and these calls; `(text, ())` if there is none.

    Every call of the run must name a tool of `tools` and hold whole JSON: this is what a server leaves
    that strips special tokens, and prose that merely mentions an id must stay prose.
    """
    if "functions." not in text:
        return text, ()
    # The last starts only: a run in earnest is short, and the bound keeps the cost linear.
    for start in [match.start() for match in _HEADER.finditer(text)][-_MAX_STARTS:]:
        calls = _run_from(text, start, tools)
        if calls:
            return text[:start], calls
    return text, ()


def _run_from(text: str, start: int, tools: Mapping[str, ToolSpec]) -> tuple[RawCall, ...]:
    calls: list[RawCall] = []
    place = start
    while place < len(text):
        header = _HEADER.match(text, place)
        if header is None or resolve_name(header[0], tools) is None:
            return ()
        end = object_end(text, header.end())
        if end is None:
            return ()
        calls.append(RawCall(header=header[0].strip(), arguments=text[header.end() : end], closed=True))
        place = _SPACE.match(text, end).end()  # pyright: ignore[reportOptionalMemberAccess] - matches anywhere
    return tuple(calls)
