"""However a stream is cut, its reader sees the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.corpus import TEXTS, TOOLS, any_texts, cuts
from tests.property.parsing import STARTS, Start, read
from tests.property.understanding import Understood, understood

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kimi_agent.json_types import JsonObject

# --- one text ----------------------------------------------------------------------------------------


def check_cut(pieces: list[str], start: Start) -> None:
    assert read(pieces, start=start) == read(["".join(pieces)], start=start)


@pytest.mark.parametrize("start", STARTS)
def test_each_text_of_the_corpus_reads_the_same_character_by_character(start: Start) -> None:
    for text in TEXTS.values():
        check_cut(list(text), start)


@pytest.mark.parametrize("start", STARTS)
def test_each_text_of_the_corpus_reads_the_same_cut_in_two_anywhere(start: Start) -> None:
    for text in TEXTS.values():
        whole = read([text], start=start)
        step = 1 + len(text) // 25

        for place in range(0, len(text), step):
            assert read([text[:place], text[place:]], start=start) == whole


@settings(max_examples=200)
@given(any_texts().flatmap(cuts), st.sampled_from(STARTS))
def test_any_text_reads_the_same_however_it_is_cut(pieces: list[str], start: Start) -> None:
    check_cut(pieces, start)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@settings(max_examples=30_000)
@given(any_texts().flatmap(cuts), st.sampled_from(STARTS))
def test_any_text_of_a_whole_night_reads_the_same_however_it_is_cut(pieces: list[str], start: Start) -> None:
    check_cut(pieces, start)


# --- a whole reply -----------------------------------------------------------------------------------

Kind = Literal["content", "reasoning", "call"]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A stretch of a reply that a server may send in one chunk or in many."""

    kind: Kind
    pieces: list[str]
    call: JsonObject = field(default_factory=dict[str, Any])
    """Id, name and index of a call."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def chunks(self, pieces: list[str]) -> Iterable[JsonObject]:
        if self.kind == "reasoning":
            # An empty piece says something of its own: reasoned, but empty.
            pieces = [piece for piece in pieces if piece] or [""]
        for place, piece in enumerate(pieces):
            if self.kind == "content":
                yield {"content": piece}
            elif self.kind == "reasoning":
                yield {"reasoning_content": piece}
            else:
                function: JsonObject = {"arguments": piece}
                entry: JsonObject = {"index": self.call["index"], "function": function}
                if place == 0:
                    function["name"] = self.call["name"]
                    entry["id"] = self.call["id"]
                yield {"tool_calls": [entry]}


def delivered(deltas: Iterable[JsonObject], finish_reason: str) -> Understood:
    """What comes of a stream of `deltas`."""
    chunks = ({"choices": [{"index": 0, "delta": delta}]} for delta in deltas)
    end: JsonObject = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]}
    return understood([*chunks, end], TOOLS)


@st.composite
def parts(draw: st.DrawFn) -> list[Part]:
    """The parts of one reply, each with the pieces it is cut into."""
    kinds: list[Kind] = draw(st.lists(st.sampled_from(("content", "reasoning", "call")), max_size=5))
    found: list[Part] = []
    for kind in kinds:
        if kind == "call":
            text = draw(st.sampled_from(('{"city":"Oslo"}', "{}", "", '{"city":', "[1]", TEXTS["two calls"])))
            index = sum(part.kind == "call" for part in found)
            call = {
                "index": index,
                "id": draw(st.sampled_from((f"functions.get_weather:{index}", "call_1", "", "x y"))),
                "name": draw(st.sampled_from(("get_weather", "f", "functions.f:0", "", "other"))),
            }
            found.append(Part(kind=kind, pieces=draw(cuts(text)), call=call))
        else:
            found.append(Part(kind=kind, pieces=draw(cuts(draw(any_texts())))))
    return found


def check_reply_cut(reply: list[Part], finish_reason: str) -> None:
    cut = delivered((delta for part in reply for delta in part.chunks(part.pieces)), finish_reason)
    uncut = delivered((delta for part in reply for delta in part.chunks([part.text])), finish_reason)

    assert cut.reply == uncut.reply
    assert cut.events == uncut.events


@settings(max_examples=100)
@given(parts(), st.sampled_from(("stop", "length", "tool_calls")))
def test_a_reply_means_the_same_however_its_stream_is_cut(reply: list[Part], finish_reason: str) -> None:
    check_reply_cut(reply, finish_reason)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@settings(max_examples=20_000)
@given(parts(), st.sampled_from(("stop", "length", "tool_calls")))
def test_a_reply_of_a_whole_night_means_the_same_however_its_stream_is_cut(
    reply: list[Part], finish_reason: str
) -> None:
    check_reply_cut(reply, finish_reason)


@settings(max_examples=60)
@given(parts(), st.sampled_from(("stop", "length")))
def test_a_reply_means_the_same_whole_and_streamed(reply: list[Part], finish_reason: str) -> None:
    message: JsonObject = {
        "role": "assistant",
        "content": "".join(part.text for part in reply if part.kind == "content"),
        "tool_calls": [
            {
                "id": part.call["id"],
                "type": "function",
                "function": {"name": part.call["name"], "arguments": part.text},
            }
            for part in reply
            if part.kind == "call"
        ],
    }
    if any(part.kind == "reasoning" for part in reply):
        message["reasoning_content"] = "".join(part.text for part in reply if part.kind == "reasoning")
    whole: JsonObject = {"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]}
    streamed = delivered((delta for part in reply for delta in part.chunks(part.pieces)), finish_reason)

    assert understood([whole], TOOLS).reply == streamed.reply
