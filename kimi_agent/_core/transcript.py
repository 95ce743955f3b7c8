"""What a text says, in stretches: answer, thought, and calls whose fate the rest of the text decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Output: TypeAlias = tuple[Literal["text", "reasoning", "withdraw"], str]
"""Something to show at once. `withdraw` takes back all text shown so far."""


Kind: TypeAlias = Literal["answer", "thought", "after_thought"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCall:
    """A call found in text."""

    header: str
    """What stood where the id or name belongs, stripped."""

    arguments: str
    """What stood where the arguments belong."""

    closed: bool
    """False if the text ended inside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedText:
    """A whole text, taken apart."""

    content: str = ""
    reasoning: str | None = None
    calls: tuple[RawCall, ...] = ()
    thought_closed: bool = True
    """False if the text ended in a thought that nothing ended."""
    thought_calls: tuple[RawCall, ...] = ()
    """Calls inside closed thoughts: considered by the model, not made."""


NO_TEXT = ParsedText()


@dataclass(slots=True)
class _Passage:
    """A stretch of text and calls that shares one fate."""

    kind: Kind
    """`after_thought`: follows a call section inside a thought that may still be closed."""
    pieces: list[str] = field(default_factory=list[str])
    calls: list[RawCall] = field(default_factory=list[RawCall])


class Transcript:
    """Collects passages and says what can be shown at once; `parsed` is the whole, at the end.

    A call section inside a thought ends the thought, unless the thought's end marker still comes: then
    everything since the thought began was thought, calls included.
    """

    def __init__(self, *, in_thought: bool) -> None:
        self.thought_open = in_thought
        self._thought_begun = in_thought
        self._passages = [_Passage("thought" if in_thought else "answer")]
        self._pending: list[_Passage] = []
        """The passages of kind `after_thought`."""
        self._outputs: list[Output] = []
        self._separate = False

    def take_outputs(self) -> list[Output]:
        """What has become showable since the last call."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def show(self, text: str) -> None:
        """Add text where the transcript stands."""
        passage = self._passages[-1]
        if self._separate:
            text, self._separate = " " + text, False
        passage.pieces.append(text)
        self._outputs.append(("text" if passage.kind == "answer" else "reasoning", text))

    def separate(self) -> None:
        """Put a space before the next text, so that it cannot make a marker with the text before."""
        self._separate = True

    def add_call(self, call: RawCall) -> None:
        """Add a call where the transcript stands."""
        if self.thought_open and self._passages[-1].kind == "thought":
            self._begin("after_thought")
        self._passages[-1].calls.append(call)

    def enter_answer(self) -> None:
        """What follows is answer, or will be if nothing closes the open thought."""
        kind = "after_thought" if self.thought_open else "answer"
        if self._passages[-1].kind != kind:
            self._begin(kind)

    def begin_thought(self) -> None:
        """What follows is reasoning; a thought that was still open has ended before."""
        if self.thought_open:
            self._settle_after_thought()
        self.thought_open = self._thought_begun = True
        self._begin("thought")

    def close_thought(self) -> None:
        """A thought's end: all since its beginning was thought.

        Without a beginning, everything so far was: the later K2 models start inside the thought, so a
        server without reasoning parser sends only its end.
        """
        if self.thought_open:
            for passage in self._pending:
                passage.kind = "thought"
            self._pending.clear()
        elif not self._thought_begun:
            if any(passage.pieces for passage in self._passages):
                self._outputs.append(("withdraw", ""))
            for passage in self._passages:
                passage.kind = "thought"
                self._outputs.extend(("reasoning", piece) for piece in passage.pieces)
        self.thought_open = False
        self._thought_begun = True

    def _begin(self, kind: Kind) -> None:
        passage = _Passage(kind)
        self._passages.append(passage)
        if kind == "after_thought":
            self._pending.append(passage)

    def tail(self, length: int) -> str:
        """The last `length` characters of the passage under way."""
        return tail_of(self._passages[-1].pieces, length)

    def cut_tail(self, length: int) -> None:
        """Take the last `length` characters off the passage under way."""
        pieces = self._passages[-1].pieces
        while length:
            piece = pieces.pop()
            if len(piece) > length:
                pieces.append(piece[:-length])
            length = max(0, length - len(piece))

    def parsed(self) -> ParsedText:
        """The whole; nothing may be added after."""
        if self.thought_open:
            self._settle_open_thought()
        answers = [passage for passage in self._passages if passage.kind == "answer"]
        thoughts = [passage for passage in self._passages if passage.kind == "thought"]
        return ParsedText(
            content=_text_of(answers),
            reasoning=_text_of(thoughts) if self._thought_begun else None,
            calls=tuple(call for passage in answers for call in passage.calls),
            thought_closed=not self.thought_open,
            thought_calls=tuple(call for passage in thoughts for call in passage.calls),
        )

    def _settle_open_thought(self) -> None:
        """Nothing closed the thought: what followed a call section in it is answer.

        So is what follows a lone opening marker in the middle of an answer.
        """
        self._settle_after_thought()
        first, last = self._passages[0], self._passages[-1]
        if first.kind == "answer" and "".join(first.pieces).strip() and last.kind == "thought":
            self._make_answer(last)
            self.thought_open = False

    def _settle_after_thought(self) -> None:
        for passage in self._pending:
            self._make_answer(passage)
        self._pending.clear()

    def _make_answer(self, passage: _Passage) -> None:
        passage.kind = "answer"
        self._outputs.extend(("text", piece) for piece in passage.pieces)


def tail_of(pieces: Sequence[str], length: int) -> str:
    """The last `length` characters of `pieces`, joined; no more of them is copied."""
    tail = ""
    for piece in reversed(pieces):
        if len(tail) >= length:
            break
        tail = piece[-length:] + tail
    return tail[-length:]


def _text_of(passages: Sequence[_Passage]) -> str:
    pieces: Iterable[str] = (piece for passage in passages for piece in passage.pieces)
    return "".join(pieces)
