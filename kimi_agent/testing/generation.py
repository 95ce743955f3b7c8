"""`Plan` → the tokens a K2 model would emit, cut where the request says, and views of them."""

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Literal, NamedTuple

from kimi_agent.testing.conversation import Choice
from kimi_agent.testing.k2_prompt import (
    ARGUMENT_BEGIN,
    CALL_BEGIN,
    CALL_END,
    SECTION_BEGIN,
    SECTION_END,
    THINK_CLOSE,
    THINK_OPEN,
)
from kimi_agent.testing.planner import Plan

CHARACTERS_PER_TOKEN = 4
"""What a prompt token is taken for. A real tokenizer counts differently."""

_PIECE = re.compile(r" ?[^\W\d_]{1,12}| ?\d{1,3}| ?[^\w\s]| ?_|\s")


class Kind(Enum):
    """What a token is part of."""

    REASONING = auto()
    CONTENT = auto()
    MARKER = auto()
    HEADER = auto()
    ARGUMENTS = auto()


class Token(NamedTuple):
    """One step of the model; `call` is the place of its call, from 0, or -1."""

    kind: Kind
    text: str
    call: int = -1


@dataclass(slots=True)
class CallText:
    """One call as the tokens have it, perhaps cut."""

    header: str = ""
    arguments: str = ""
    has_arguments: bool = False
    """Whether the marker between header and arguments was reached."""
    closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What the model emitted for one request, and what the reply has to repeat of the request."""

    tokens: tuple[Token, ...]
    finish: Literal["stop", "length"] = "stop"
    stop_string: str | None = None
    """The request's `stop` that ended it."""
    model: str = ""
    created: int = 0
    prompt_tokens: int = 0
    choice: Choice = "auto"
    offered_tools: bool = False
    """Whether the model saw tools."""
    include_usage: bool = False
    continuous_usage: bool = False
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def completion_tokens(self) -> int:
        """Tokens emitted; the stop token counts, as it does on real engines."""
        return len(self.tokens) + (self.finish == "stop" and self.stop_string is None)

    @property
    def reasoning_tokens(self) -> int:
        """Tokens of the reasoning, without its markers."""
        return sum(token.kind is Kind.REASONING for token in self.tokens)

    @property
    def raw(self) -> str:
        """The text with its markers, as `/v1/completions` gives it."""
        return "".join(token.text for token in self.tokens)

    def text(self, kind: Kind) -> str:
        """All text of one kind."""
        return "".join(token.text for token in self.tokens if token.kind is kind)

    def calls(self) -> list[CallText]:
        """The calls that were begun."""
        calls: dict[int, CallText] = {}
        for token in self.tokens:
            if token.call >= 0:
                add_to_call(calls.setdefault(token.call, CallText()), token)
        return list(calls.values())

    def unparsed(self, *, reasoning: bool = True) -> "Generation":
        """The same with all tokens as content: what is passed on where no parser runs.

        `reasoning=False` leaves the reasoning and its markers parsed.
        """
        kept = {Kind.CONTENT} if reasoning else {Kind.CONTENT, Kind.REASONING}
        thoughts = () if reasoning else (THINK_OPEN, THINK_CLOSE)
        return replace(
            self,
            tokens=tuple(
                token if token.kind in kept or token.text in thoughts else Token(Kind.CONTENT, token.text)
                for token in self.tokens
            ),
        )

    def as_text(self, text: str) -> "Generation":
        """The same with `text` instead of what was emitted after the reasoning."""
        thought = [token for token in self.tokens if token.kind is Kind.REASONING]
        return replace(self, tokens=(*thought, *pieces(Kind.CONTENT, text)))

    def without_calls(self) -> "Generation":
        """The same with the calls unseen; their tokens count nevertheless."""
        return replace(
            self,
            tokens=tuple(
                Token(Kind.MARKER, token.text) if token.call >= 0 else token for token in self.tokens
            ),
        )


def add_to_call(call: CallText, token: Token) -> None:
    """Take one more token of a call."""
    match token.kind:
        case Kind.HEADER:
            call.header += token.text
        case Kind.ARGUMENTS:
            call.arguments += token.text
        case _:
            call.has_arguments |= token.text == ARGUMENT_BEGIN
            call.closed |= token.text == CALL_END


def pieces_of(text: str) -> list[str]:
    """`text` in the pieces it is streamed in: words with the space before them, short numbers, signs."""
    return _PIECE.findall(text)


def prompt_tokens_in(characters: int) -> int:
    """Roughly how many tokens a prompt of so many characters has."""
    return -(-characters // CHARACTERS_PER_TOKEN)


def tokens_of(
    plan: Plan, call_ids: Sequence[str], arguments: Sequence[str], *, opens_thought: bool
) -> Iterator[Token]:
    """The tokens of a plan; `opens_thought` is false where the prompt ends with `<think>` already."""
    if plan.reasoning:
        if opens_thought:
            yield Token(Kind.MARKER, THINK_OPEN)
        yield from pieces(Kind.REASONING, plan.reasoning)
        yield Token(Kind.MARKER, THINK_CLOSE)
    yield from pieces(Kind.CONTENT, plan.content)
    if not call_ids:
        return
    yield Token(Kind.MARKER, SECTION_BEGIN)
    for place, (call_id, text) in enumerate(zip(call_ids, arguments, strict=True)):
        yield Token(Kind.MARKER, CALL_BEGIN, place)
        yield from pieces(Kind.HEADER, call_id, place)
        yield Token(Kind.MARKER, ARGUMENT_BEGIN, place)
        yield from pieces(Kind.ARGUMENTS, text, place)
        yield Token(Kind.MARKER, CALL_END, place)
    yield Token(Kind.MARKER, SECTION_END)


def pieces(kind: Kind, text: str, call: int = -1) -> Iterator[Token]:
    """`text` as tokens of one kind."""
    return (Token(kind, piece, call) for piece in pieces_of(text))


def cut(
    tokens: Iterable[Token], *, max_tokens: int | None, stops: Sequence[str]
) -> tuple[tuple[Token, ...], Literal["stop", "length"], str | None]:
    """The tokens up to the first stop string or the limit, why they end, and that stop string."""
    kept = tuple(tokens)
    raw = "".join(token.text for token in kept)
    found = min(((raw.index(stop), stop) for stop in stops if stop and stop in raw), default=None)
    if found is not None:
        kept = tuple(up_to(kept, found[0]))
    if max_tokens is not None and len(kept) >= max_tokens:
        return kept[:max_tokens], "length", None
    return kept, "stop", found[1] if found else None


def up_to(tokens: Iterable[Token], end: int) -> Iterator[Token]:
    """The first `end` characters."""
    for token in tokens:
        if end <= 0:
            return
        yield token._replace(text=token.text[:end])
        end -= len(token.text)
