"""The grammar of K2's text format as a table: which marker leads from where to where."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING

from kimi_agent.dialects.k2_format import K2Marker

if TYPE_CHECKING:
    from collections.abc import Mapping

ID = re.compile(r"\s*(?:functions[.:][^\s{}]+|[^\s{}:]+:\d+)\s*\Z")
"""An id that fills the rest of a text."""

ID_AFTER_OBJECT = re.compile(r"(?<=\})\s*(?:functions[.:][^\s{}]+|[^\s{}:]+:\d+)\s*\Z")
"""An id that ends a text, behind the closing brace of arguments."""

NEXT_CALL = re.compile(r"\s*(functions[.:][^\s{}]{1,256})\s{0,16}(?=\{)")
"""The id of a call that follows another with no marker between."""


class State(Enum):
    """Where in the format the reader is."""

    ANSWER = auto()
    REASONING = auto()
    SECTION = auto()
    HEADER = auto()
    ARGUMENTS = auto()


_S, _M = State, K2Marker
PLAIN_STATES = frozenset({State.ANSWER, State.REASONING})

TRANSITIONS: Mapping[tuple[State, K2Marker], State] = {
    (_S.ANSWER, _M.SECTION_BEGIN): _S.SECTION,
    # A call without the section around it (quantised builds; vLLM's reasoning parser).
    (_S.ANSWER, _M.CALL_BEGIN): _S.HEADER,
    (_S.ANSWER, _M.THINK_BEGIN): _S.REASONING,
    # K2.5 and later start inside the thought, so a parser-less server sends only its end.
    (_S.ANSWER, _M.THINK_END): _S.ANSWER,
    (_S.REASONING, _M.THINK_END): _S.ANSWER,
    # K2 may call a tool without closing its reasoning.
    (_S.REASONING, _M.SECTION_BEGIN): _S.SECTION,
    (_S.REASONING, _M.CALL_BEGIN): _S.HEADER,
    (_S.SECTION, _M.CALL_BEGIN): _S.HEADER,
    # The call marker is missing: the text before was the header.
    (_S.SECTION, _M.ARGUMENTS_BEGIN): _S.ARGUMENTS,
    # Both call and arguments markers are missing: header and JSON stand side by side.
    (_S.SECTION, _M.CALL_END): _S.SECTION,
    (_S.SECTION, _M.SECTION_END): _S.ANSWER,
    (_S.SECTION, _M.MESSAGE_END): _S.ANSWER,
    (_S.SECTION, _M.THINK_END): _S.ANSWER,
    (_S.HEADER, _M.ARGUMENTS_BEGIN): _S.ARGUMENTS,
    # The arguments marker is missing.
    (_S.HEADER, _M.CALL_END): _S.SECTION,
    (_S.HEADER, _M.CALL_BEGIN): _S.HEADER,
    (_S.HEADER, _M.SECTION_BEGIN): _S.SECTION,
    (_S.HEADER, _M.SECTION_END): _S.ANSWER,
    (_S.HEADER, _M.MESSAGE_END): _S.ANSWER,
    (_S.HEADER, _M.THINK_END): _S.ANSWER,
    (_S.ARGUMENTS, _M.CALL_END): _S.SECTION,
    # The end of the call is missing.
    (_S.ARGUMENTS, _M.CALL_BEGIN): _S.HEADER,
    (_S.ARGUMENTS, _M.SECTION_BEGIN): _S.SECTION,
    (_S.ARGUMENTS, _M.SECTION_END): _S.ANSWER,
    (_S.ARGUMENTS, _M.MESSAGE_END): _S.ANSWER,
    (_S.ARGUMENTS, _M.THINK_END): _S.ANSWER,
}

SAME_AS: Mapping[K2Marker, K2Marker] = {
    K2Marker.SINGULAR_SECTION_BEGIN: K2Marker.SECTION_BEGIN,
    K2Marker.SINGULAR_SECTION_END: K2Marker.SECTION_END,
}
