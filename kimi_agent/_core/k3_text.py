"""K3's text format: tags → answer, reasoning and raw calls.

A tag is `<|open|>NAME key="value"…<|sep|>` or `<|close|>NAME<|sep|>`. The machine (tags that are not in
`TRANSITIONS` for a state are dropped there, their text stays)::

    ANSWER ──open tools──▶ TOOLS ──open call──▶ CALL ──open argument──▶ ARGUMENT
      ▲  ▲                  ▲                  │ ▲ └────open json────▶ JSON
      │  └───close tools────┴───close call─────┘ └──close argument, close json
      └── open think ▶ REASONING: tools or a response inside it end it, unless its own end still comes
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING, Literal

from kimi_agent._core.k3_call import K3Call
from kimi_agent._core.lexer import Lexer
from kimi_agent._core.transcript import Output, ParsedText, Transcript
from kimi_agent.dialects.k2_format import K2Marker
from kimi_agent.dialects.k3_format import LONGEST_K3_TAG, K3Marker, K3Tag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Another family's markers are noise in an answer. `<think>` is not among them: to K3 it is a plain word.
_FOREIGN = tuple(marker for marker in K2Marker if marker.startswith("<|"))
_MARKERS = (*map(str, K3Marker), *map(str, _FOREIGN))
_LONGEST = max(map(len, _MARKERS))
_BEGINNINGS = frozenset(marker[:end] for marker in _MARKERS for end in range(1, len(marker) + 1))

_TAG = re.compile(r"""\s*+([A-Za-z_][\w.-]*+)((?:\s++[\w.-]++="[^"]*+")*+)\s*+""")
_CUT_TAG = re.compile(
    r"""\s*+([A-Za-z_][\w.-]*+)((?:\s++[\w.-]++="[^"]*+")*+(?:\s++(?:[\w.-]++(?:=(?:"[^"]*+)?)?)?)?)"""
)
_ATTRIBUTE = re.compile(r"""([\w.-]++)="([^"]*+)(?:"|\Z)""")
_TAGS: Mapping[str, K3Tag] = {str(tag): tag for tag in K3Tag}


class State(Enum):
    """Where in the format the reader is."""

    ANSWER = auto()
    REASONING = auto()
    TOOLS = auto()
    CALL = auto()
    ARGUMENT = auto()
    JSON = auto()


_S, _T = State, K3Tag
_OPEN, _CLOSE = K3Marker.OPEN, K3Marker.CLOSE
_PLAIN_STATES = frozenset({State.ANSWER, State.REASONING})

TRANSITIONS: Mapping[tuple[State, K3Marker, K3Tag], State] = {
    (_S.ANSWER, _OPEN, _T.THINK): _S.REASONING,
    # The prompt opened the thought, so a parser-less server sends only its end.
    (_S.ANSWER, _CLOSE, _T.THINK): _S.ANSWER,
    (_S.ANSWER, _OPEN, _T.TOOLS): _S.TOOLS,
    # A call without the channel around it.
    (_S.ANSWER, _OPEN, _T.CALL): _S.CALL,
    (_S.REASONING, _CLOSE, _T.THINK): _S.ANSWER,
    # K3 leaves out the end of its thought now and then (vLLM PR 53249).
    (_S.REASONING, _OPEN, _T.RESPONSE): _S.ANSWER,
    (_S.REASONING, _OPEN, _T.TOOLS): _S.TOOLS,
    (_S.REASONING, _OPEN, _T.CALL): _S.CALL,
    (_S.TOOLS, _OPEN, _T.CALL): _S.CALL,
    (_S.TOOLS, _CLOSE, _T.TOOLS): _S.ANSWER,
    # The end of the tools is missing.
    (_S.TOOLS, _OPEN, _T.RESPONSE): _S.ANSWER,
    (_S.TOOLS, _OPEN, _T.THINK): _S.REASONING,
    (_S.TOOLS, _CLOSE, _T.THINK): _S.ANSWER,
    (_S.TOOLS, _CLOSE, _T.MESSAGE): _S.ANSWER,
    (_S.CALL, _OPEN, _T.ARGUMENT): _S.ARGUMENT,
    (_S.CALL, _OPEN, _T.JSON): _S.JSON,
    (_S.CALL, _CLOSE, _T.CALL): _S.TOOLS,
    # The end of the call is missing.
    (_S.CALL, _OPEN, _T.CALL): _S.CALL,
    (_S.CALL, _OPEN, _T.TOOLS): _S.TOOLS,
    (_S.CALL, _CLOSE, _T.TOOLS): _S.ANSWER,
    (_S.CALL, _OPEN, _T.RESPONSE): _S.ANSWER,
    (_S.CALL, _OPEN, _T.THINK): _S.REASONING,
    (_S.CALL, _CLOSE, _T.THINK): _S.ANSWER,
    (_S.CALL, _CLOSE, _T.MESSAGE): _S.ANSWER,
    # Values are not escaped, so only their own end ends them: any other tag inside is text.
    (_S.ARGUMENT, _CLOSE, _T.ARGUMENT): _S.CALL,
    (_S.JSON, _CLOSE, _T.JSON): _S.CALL,
}

_VALUE_TAGS: Mapping[State, K3Tag] = {State.ARGUMENT: K3Tag.ARGUMENT, State.JSON: K3Tag.JSON}


class K3TextParser:
    """Reads one text channel of a reply; `feed` it pieces, then `close` it.

    Never raises on any text, loses none of it and shows no marker of K3, nor the tool and message
    markers of K2. Text outside all channels is answer.
    """

    def __init__(self, *, start: Literal["answer", "reasoning"] = "answer") -> None:
        self._lexer = Lexer((*K3Marker, *_FOREIGN))
        self._state = State.REASONING if start == "reasoning" else State.ANSWER
        self._transcript = Transcript(in_thought=start == "reasoning")
        self._tag_marker: K3Marker | None = None
        """The marker before a tag that is still arriving."""
        self._tag: list[str] = []
        self._tag_length = 0
        self._blank: list[str] | None = []
        """White space between calls, until anything else comes; then it is text: `None`."""
        self._call = K3Call("")
        self._after_marker = False
        self._open_edges: set[str] = set()
        """Beginnings of markers that some shown text ended in where a marker was taken out."""

    def feed(self, text: str) -> Sequence[Output]:
        """What can be shown after `text`."""
        plain = self._state in _PLAIN_STATES and self._tag_marker is None
        if plain and "<" not in text and not self._lexer.held:
            if text:
                self._show(text)
        else:
            self._consume(self._lexer.feed(text))
        return self._transcript.take_outputs()

    def close(
        self, *, thought_closed: bool = False, cut: bool = False
    ) -> tuple[Sequence[Output], ParsedText]:
        """What is left to show, and the whole.

        `thought_closed` says that something outside this text ended the thought it began in. `cut` changes
        nothing here: a K3 value has an end marker of its own, so an unfinished one is told by its absence.
        """
        del cut
        self._consume(self._lexer.close())
        if self._tag_marker is not None:
            self._end_in_tag(self._tag_marker)
        if self._state in _VALUE_TAGS:
            self._call.end_value(closed=False)
            self._state = State.CALL
        if self._state is State.CALL:
            self._end_call(closed=False)
        if thought_closed and self._transcript.thought_open:
            self._transcript.close_thought()
        parsed = self._transcript.parsed()
        return self._transcript.take_outputs(), parsed

    # --- tokens ----------------------------------------------------------------------------------

    def _consume(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            if isinstance(token, K3Marker):
                self._on_marker(token)
            elif isinstance(token, K2Marker):
                self._give_up_tag()
                self._drop(token)
            elif self._tag_marker is None:
                self._on_text(token)
            else:
                self._on_tag_text(token)

    def _on_marker(self, marker: K3Marker) -> None:
        if marker is K3Marker.SEP and self._tag_marker is not None:
            self._on_tag(self._tag_marker)
            return
        self._give_up_tag()
        in_value = self._state in _VALUE_TAGS
        if marker is _CLOSE or (marker is _OPEN and not in_value):
            self._tag_marker = marker
        elif marker is K3Marker.MESSAGE_END and not in_value:
            self._step(_CLOSE, K3Tag.MESSAGE, {})
        else:
            self._drop(marker)

    def _on_text(self, text: str) -> None:
        match self._state:
            case State.ANSWER | State.REASONING:
                self._show(text)
            case State.TOOLS:
                self._on_text_between_calls(text)
            case State.CALL:
                self._call.add_text(text)
            case _:
                self._call.add_value(text)

    def _on_text_between_calls(self, text: str) -> None:
        if self._blank is not None:
            self._blank.append(text)
            if not text.strip():
                return
            text = "".join(self._blank)
            self._blank = None
        self._give_back(text)

    def _drop(self, marker: str) -> None:
        """Leave out a marker that means nothing here; inside a value it is text."""
        if self._state in _VALUE_TAGS:
            self._call.add_value(marker)
        else:
            self._note_edge()

    # --- tags ------------------------------------------------------------------------------------

    def _on_tag_text(self, text: str) -> None:
        self._tag.append(text)
        self._tag_length += len(text)
        if self._tag_length > LONGEST_K3_TAG:
            self._give_up_tag()

    def _take_tag(self) -> str:
        text = "".join(self._tag)
        self._tag = []
        self._tag_length = 0
        self._tag_marker = None
        return text

    def _give_up_tag(self) -> None:
        """What followed an opening or closing marker is no tag: it is text."""
        if self._tag_marker is not None:
            self._drop(self._tag_marker)
            if text := self._take_tag():
                self._on_text(text)

    def _on_tag(self, marker: K3Marker) -> None:
        text = "".join(self._tag)
        match = _TAG.fullmatch(text)
        tag = _TAGS.get(match[1]) if match else None
        in_value = self._state in _VALUE_TAGS
        if match is None or (in_value and (self._state, marker, tag) not in TRANSITIONS):
            self._give_up_tag()
            self._drop(K3Marker.SEP)
            return
        self._take_tag()
        if tag is None:
            self._note_edge()
        else:
            self._step(marker, tag, _attributes(match[2]))

    def _end_in_tag(self, marker: K3Marker) -> None:
        """The text ended in a tag, or in text behind a lone marker."""
        text = "".join(self._tag)
        match = _CUT_TAG.fullmatch(text)
        name = match[1] if match else ""
        tag = _TAGS.get(name)
        if self._state in _VALUE_TAGS:
            if not str(_VALUE_TAGS[self._state]).startswith(text.strip()):
                self._give_up_tag()
        elif match and tag is not None:
            self._take_tag()
            self._step(marker, tag, _attributes(match[2]))
        elif text.strip() and not (name == text.strip() and any(known.startswith(name) for known in _TAGS)):
            self._give_up_tag()

    # --- the machine -----------------------------------------------------------------------------

    def _step(self, marker: K3Marker, tag: K3Tag, attributes: Mapping[str, str]) -> None:
        self._note_edge()
        target = TRANSITIONS.get((self._state, marker, tag))
        if target is None:
            return
        if self._state in _VALUE_TAGS:
            self._call.end_value(closed=True)
        elif self._state is State.CALL and target not in _VALUE_TAGS:
            self._end_call(closed=True)
        self._state = target
        self._blank = []
        if marker is _OPEN:
            self._begin(tag, attributes)
        elif tag is K3Tag.THINK:
            self._transcript.close_thought()
        if target is State.ANSWER:
            self._transcript.enter_answer()

    def _begin(self, tag: K3Tag, attributes: Mapping[str, str]) -> None:
        match tag:
            case K3Tag.THINK:
                if not self._transcript.thought_open:
                    self._transcript.begin_thought()
            case K3Tag.CALL:
                self._call = K3Call(attributes.get("tool", "").strip())
            case K3Tag.ARGUMENT:
                self._call.begin_argument(attributes.get("key", ""), attributes.get("type", ""))
            case K3Tag.JSON:
                self._call.begin_json()
            case _:
                pass  # the other channels keep nothing of their own

    def _end_call(self, *, closed: bool) -> None:
        call, text = self._call.ended(closed=closed)
        if call is not None:
            self._transcript.add_call(call)
        if text.strip():
            self._give_back(text)

    # --- text ------------------------------------------------------------------------------------

    def _note_edge(self) -> None:
        self._after_marker = True
        tail = self._transcript.tail(_LONGEST)
        begin = self._lexer.unfinished(tail)
        if begin != -1:
            self._open_edges.add(tail[begin:])

    def _show(self, text: str) -> None:
        if self._after_marker:
            self._after_marker = False
            if any(edge + text[0] in _BEGINNINGS for edge in self._open_edges):
                # Taking a tag out must not make its neighbours a marker: `<|op<|sep|>en|>`. Which texts
                # are neighbours in the end is not yet known, so every open edge counts.
                self._transcript.separate()
        self._transcript.show(text)

    def _give_back(self, text: str) -> None:
        self._transcript.enter_answer()
        self._show(text)


def _attributes(text: str) -> Mapping[str, str]:
    """The attributes of a tag; only the two characters that K3 escapes are put back."""
    return {
        match[1]: match[2].replace("&quot;", '"').replace("&amp;", "&") for match in _ATTRIBUTE.finditer(text)
    }
