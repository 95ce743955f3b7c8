"""K2's text format: markers → answer, reasoning and raw calls.

The machine (markers that are not in `TRANSITIONS` for a state are dropped there)::

    ANSWER ──section──▶ SECTION ──call──▶ HEADER ──arguments──▶ ARGUMENTS
      ▲  ▲                 ▲                                        │
      │  └──section end────┴──────────────call end──────────────────┘
      └── think ▶ REASONING: a section inside it ends the thought, unless `</think>` still comes
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from kimi_agent._core.json_text import StringTracker
from kimi_agent._core.k2_grammar import (
    ID,
    ID_AFTER_OBJECT,
    NEXT_CALL,
    PLAIN_STATES,
    SAME_AS,
    TRANSITIONS,
    State,
)
from kimi_agent._core.lenient_json import is_json_object, object_end, split_object
from kimi_agent._core.lexer import Lexer
from kimi_agent._core.transcript import Output, ParsedText, RawCall, Transcript, tail_of
from kimi_agent.dialects.k2_format import CALL_ID_PREFIX, LONGEST_K2_MARKER, K2Marker
from kimi_agent.dialects.k3_format import K3Marker

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_REWINDS = 16
_LONGEST_HEADER = 512
_LONGEST_HEADER_WITH_SPACES = 64
_SPACE = re.compile(r"\s*")


class K2TextParser:
    """Reads one text channel of a reply; `feed` it pieces, then `close` it.

    Never raises on any text, loses none of it and shows no marker.
    """

    def __init__(self, *, start: Literal["answer", "reasoning"] = "answer") -> None:
        self._lexer = Lexer((*K2Marker, *K3Marker))
        self._state = State.REASONING if start == "reasoning" else State.ANSWER
        self._transcript = Transcript(in_thought=start == "reasoning")
        self._buffer: list[str] = []
        """Section text, header or arguments, by state."""
        self._header = ""
        self._strings = StringTracker()
        self._arguments_length = 0
        self._hidden_at: int | None = None
        """Where in the arguments the first marker inside a string stands."""
        self._closing_piece: int | None = None
        """The last piece of the arguments that holds a closing brace."""
        self._rewinds = 0
        self._after_marker = False
        self._open_edge = False
        """Whether some shown text ended, at a marker, in what looks like the start of another one."""

    def feed(self, text: str) -> Sequence[Output]:
        """What can be shown after `text`."""
        if "<" not in text and self._state in PLAIN_STATES and not self._lexer.held:
            if text:
                self._show(text)
        else:
            self._consume(self._lexer.feed(text))
        return self._transcript.take_outputs()

    def close(
        self, *, thought_closed: bool = False, cut: bool = False
    ) -> tuple[Sequence[Output], ParsedText]:
        """What is left to show, and the whole.

        `thought_closed` says that something outside this text ended the thought it began in, `cut` that
        the output limit ended the text, so that an open string is unfinished rather than badly written.
        """
        self._consume(self._lexer.close())
        while not cut and self._state is State.ARGUMENTS and self._can_rewind():
            self._rewind()
        self._end_of_text(cut=cut)
        if thought_closed and self._transcript.thought_open:
            self._transcript.close_thought()
        parsed = self._transcript.parsed()
        return self._transcript.take_outputs(), parsed

    # --- tokens --------------------------------------------------------------------------------

    def _consume(self, tokens: Sequence[str]) -> None:
        for token in tokens:
            if isinstance(token, K2Marker):
                self._on_marker(SAME_AS.get(token, token), token)
            elif isinstance(token, K3Marker) and self._state in PLAIN_STATES:
                self._note_edge()
            else:
                self._on_text(token)

    def _on_text(self, text: str) -> None:
        match self._state:
            case State.SECTION | State.HEADER:
                self._on_header_text(text)
            case State.ARGUMENTS:
                self._add_arguments(text)
            case _:
                self._show(text)

    def _on_header_text(self, text: str) -> None:
        """Collect what may be an id; anything else between markers is answer text, shown at once."""
        self._buffer.append(text)
        waiting = "".join(self._buffer)
        text = waiting.lstrip()
        # Bounded, or white space without end would be copied again and again.
        waiting = waiting[: len(waiting) - len(text)][:_LONGEST_HEADER] + text
        header, brace, rest = text.partition("{")
        if self._is_prose(header) or (brace and self._state is State.SECTION and not ID.match(header)):
            self._buffer = []
            self._enter_answer()
            self._show(self._lexer.defused(waiting))
        elif brace:
            # The arguments marker is missing: the JSON begins right after the id.
            self._header = header.strip()
            self._state = State.ARGUMENTS
            self._begin_arguments()
            self._add_arguments(brace + rest)
        else:
            self._buffer = [waiting]

    def _is_prose(self, header: str) -> bool:
        if len(header) > _LONGEST_HEADER:
            return True
        longest = 0 if self._state is State.SECTION else _LONGEST_HEADER_WITH_SPACES
        return _has_inner_space(header) and len(header.rstrip()) > longest

    def _note_edge(self) -> None:
        self._after_marker = True
        if not self._open_edge:
            tail = self._transcript.tail(LONGEST_K2_MARKER)
            self._open_edge = self._lexer.unfinished(tail) != -1

    def _on_marker(self, marker: K2Marker, spelled: K2Marker) -> None:
        if self._state is State.ARGUMENTS and self._strings.inside and self._rewinds < _MAX_REWINDS:
            if self._hidden_at is None:
                self._hidden_at = self._arguments_length
            self._add_arguments(str(spelled))
            return
        target = TRANSITIONS.get((self._state, marker))
        if target is None:
            self._note_edge()
            if marker is K2Marker.ARGUMENTS_BEGIN and self._state is State.ANSWER:
                self._begin_arguments_after_answer()
            elif self._state is State.ARGUMENTS:
                self._on_marker_in_arguments(marker)
        elif self._state is State.ARGUMENTS and self._can_rewind():
            self._rewind()
            self._on_marker(marker, spelled)
        else:
            self._leave(marker)
            self._note_edge()
            self._enter(target, marker)

    def _on_marker_in_arguments(self, marker: K2Marker) -> None:
        next_call = None
        if marker is K2Marker.ARGUMENTS_BEGIN and self._closing_piece is not None:
            tail = tail_of(self._buffer[self._closing_piece :], _LONGEST_HEADER)
            next_call = ID_AFTER_OBJECT.search(tail)
        if next_call is None:
            # Dropped, but its neighbours must not become a marker.
            self._add_arguments(" ")
            return
        # The end of this call and the beginning of the next are both missing.
        whole = "".join(self._buffer)
        self._buffer = [whole[: len(whole) - len(next_call[0])]]
        self._end_call(closed=True)
        self._header = next_call[0].strip()
        self._begin_arguments()

    def _leave(self, marker: K2Marker) -> None:
        """Finish what the current state was collecting."""
        match self._state:
            case State.ARGUMENTS:
                self._end_call(closed=True)
            case State.HEADER:
                self._end_header(marker)
            case State.SECTION:
                self._end_section_text(marker)
            case _:  # plain text leaves nothing to finish
                pass

    def _enter(self, target: State, marker: K2Marker) -> None:
        if marker is K2Marker.THINK_END:
            self._transcript.close_thought()
        elif marker is K2Marker.THINK_BEGIN:
            self._transcript.begin_thought()
        if target is State.ANSWER:
            self._enter_answer()
            return
        self._state = target
        if target is State.ARGUMENTS:
            self._begin_arguments()

    # --- text ----------------------------------------------------------------------------------

    def _show(self, text: str) -> None:
        if self._after_marker:
            self._after_marker = False
            if self._open_edge:
                # Taking a marker out must not make its neighbours one: `<|im_<|im_end|>end|>`.
                self._transcript.separate()
        self._transcript.show(text)

    def _enter_answer(self) -> None:
        self._state = State.ANSWER
        self._transcript.enter_answer()

    # --- calls ---------------------------------------------------------------------------------

    def _begin_arguments(self) -> None:
        self._buffer = []
        self._strings = StringTracker()
        self._arguments_length = 0
        self._hidden_at = None
        self._closing_piece = None

    def _add_arguments(self, text: str) -> None:
        if "}" in text:
            self._closing_piece = len(self._buffer)
        self._strings.feed(text)
        self._buffer.append(text)
        self._arguments_length += len(text)

    def _end_header(self, marker: K2Marker) -> None:
        text = "".join(self._buffer)
        self._buffer = []
        if marker is K2Marker.ARGUMENTS_BEGIN:
            self._header = text.strip()
        elif _has_inner_space(text):
            self._give_back(text)
        elif text.strip():
            # A call that was closed before any arguments began has none.
            self._transcript.add_call(
                RawCall(header=text.strip(), arguments="", closed=marker is not K2Marker.MESSAGE_END)
            )

    def _end_section_text(self, marker: K2Marker) -> None:
        text = "".join(self._buffer)
        self._buffer = []
        if marker is K2Marker.ARGUMENTS_BEGIN:
            self._header = text.strip()
        else:
            self._give_back(text)

    def _begin_arguments_after_answer(self) -> None:
        """An arguments marker with no opener: a call if the text just before it is an id."""
        tail = self._transcript.tail(_LONGEST_HEADER)
        start = tail.rfind(CALL_ID_PREFIX)
        if start == -1 or not ID.match(tail[start:]):
            return
        self._transcript.cut_tail(len(tail) - start)
        self._note_edge()
        self._header = tail[start:].strip()
        self._state = State.ARGUMENTS
        self._begin_arguments()

    def _end_call(self, *, closed: bool) -> None:
        arguments = "".join(self._buffer)
        self._buffer = []
        self._hidden_at = None
        if _has_inner_space(self._header) and not is_json_object(arguments):
            # Prose about the format, not a call.
            self._give_back(f"{self._header} {arguments}")
            return
        place = 0 if is_json_object(arguments) else self._add_run(arguments)
        self._transcript.add_call(RawCall(header=self._header, arguments=arguments[place:], closed=closed))

    def _add_run(self, arguments: str) -> int:
        """Take off calls that follow each other with no marker between, all but the last.

        Returns where the last one's arguments begin.
        """
        place = 0
        while (end := object_end(arguments, _SPACE.match(arguments, place).end())) is not None:  # pyright: ignore[reportOptionalMemberAccess] - matches anywhere
            next_call = NEXT_CALL.match(arguments, end)
            if next_call is None:
                break
            self._transcript.add_call(
                RawCall(header=self._header, arguments=arguments[place:end], closed=True)
            )
            self._header = next_call[1]
            place = next_call.end()
        return place

    def _give_back(self, text: str) -> None:
        if not text.strip():
            return
        state = self._state
        self._enter_answer()
        self._show(self._lexer.defused(text))
        self._state = state

    def _can_rewind(self) -> bool:
        """Whether markers inside strings made the arguments unreadable, so that they were none."""
        return (
            self._hidden_at is not None
            and self._rewinds < _MAX_REWINDS
            and not is_json_object("".join(self._buffer))
        )

    def _rewind(self) -> None:
        """Read again from the first marker inside a string, as structure: the string was never closed.

        Bounded, so that hostile text cannot make the cost quadratic; past the bound strings hide nothing.
        """
        self._rewinds += 1
        whole, cut = "".join(self._buffer), self._hidden_at
        self._begin_arguments()
        self._buffer = [whole[:cut]]
        self._closing_piece = 0
        self._arguments_length = len(self._buffer[0])
        lexer = Lexer((*K2Marker, *K3Marker))
        self._consume([*lexer.feed(whole[cut:]), *lexer.close()])

    # --- the end -------------------------------------------------------------------------------

    def _end_of_text(self, *, cut: bool) -> None:
        text = "".join(self._buffer)
        match self._state:
            case State.ARGUMENTS:
                self._end_in_arguments(text)
            case State.HEADER:
                self._buffer = []
                if _has_inner_space(text) or not (cut or ID.match(text)):
                    self._give_back(text)
                else:
                    self._transcript.add_call(RawCall(header=text.strip(), arguments="", closed=False))
            case State.SECTION:
                self._buffer = []
                self._give_back(text)
            case _:  # plain text leaves nothing to finish
                pass

    def _end_in_arguments(self, arguments: str) -> None:
        split = split_object(arguments)
        if split is None or not split[1].strip():
            self._end_call(closed=False)
            return
        # The end markers are missing and the answer goes on behind the whole JSON.
        self._buffer = [split[0]]
        self._end_call(closed=False)
        self._give_back(split[1])


def _has_inner_space(text: str) -> bool:
    return len(text.split(maxsplit=1)) > 1
