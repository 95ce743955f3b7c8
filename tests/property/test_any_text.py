"""Any text at all: nothing is raised, no marker is shown, nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_agent._core.k2_grammar import PLAIN_STATES
from kimi_agent._core.k2_text import K2TextParser
from kimi_agent._core.lenient_json import UnreadableError, read_value
from kimi_agent._core.reply_reader import Reply, ReplyReader
from kimi_agent._core.settle import settle
from kimi_agent._core.settled import Asked, SettledReply
from kimi_agent.dialects.k2_format import LONGEST_K2_MARKER
from kimi_agent.events import ModelEvent, ReasoningDelta, TextDelta, TextReset
from tests.property.corpus import TEXTS, TOOLS, any_texts, cuts
from tests.property.parsing import (
    STARTS,
    Start,
    all_parts,
    has_marker,
    is_in_order,
    letters,
    read,
    shown_as,
    without_markers,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kimi_agent._core.transcript import RawCall

Channel = Literal["content", "reasoning_content"]
CHANNELS: tuple[Channel, ...] = ("content", "reasoning_content")
FINISH_REASONS = ("stop", "length")

# --- the text parser ---------------------------------------------------------------------------------


def check_text(text: str, start: Start) -> None:
    """The promises of the parser, for one text."""
    seen = read([text], start=start)
    parsed = seen.parsed

    assert not has_marker(parsed.content), text
    assert not has_marker(parsed.reasoning), text
    assert not any(map(has_marker, shown_as("text", seen.shown))), text
    assert not any(map(has_marker, shown_as("reasoning", seen.shown))), text

    parts = all_parts(parsed)
    assert letters(without_markers(text)) <= letters(*parts), f"something was lost: {text!r}"
    assert letters(*parts) <= letters(text), f"something was invented: {text!r}"
    assert all(is_in_order(part, text) for part in parts), f"something changed places: {text!r}"


@pytest.mark.parametrize("start", STARTS)
def test_the_corpus_is_read_without_loss_and_without_a_marker(start: Start) -> None:
    for text in TEXTS.values():
        check_text(text, start)


@settings(max_examples=300)
@given(any_texts(), st.sampled_from(STARTS))
def test_any_text_is_read_without_loss_and_without_a_marker(text: str, start: Start) -> None:
    check_text(text, start)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@settings(max_examples=30_000)
@given(any_texts(), st.sampled_from(STARTS))
def test_any_text_of_a_whole_night_is_read_without_loss_and_without_a_marker(text: str, start: Start) -> None:
    check_text(text, start)


@given(any_texts().flatmap(cuts), st.sampled_from(STARTS))
def test_in_plain_text_less_than_the_longest_marker_is_held_back(pieces: list[str], start: Start) -> None:
    parser = K2TextParser(start=start)
    fed = shown = ""
    for piece in pieces:
        fed += piece
        shown += "".join(text for _, text in parser.feed(piece))

        if parser._state in PLAIN_STATES:
            assert len(parser._lexer.held) < LONGEST_K2_MARKER
            assert fed.endswith(parser._lexer.held)


@given(st.text(alphabet="<|abc_>", max_size=80).filter(lambda text: "think>" not in text).flatmap(cuts))
def test_without_a_marker_every_character_but_a_marker_s_beginning_is_shown_at_once(
    pieces: list[str],
) -> None:
    parser = K2TextParser()
    fed = shown = ""
    for piece in pieces:
        fed += piece
        shown += "".join(text for _, text in parser.feed(piece))

        assert fed.startswith(shown)
        assert len(fed) - len(shown) < LONGEST_K2_MARKER


# --- a whole reply -----------------------------------------------------------------------------------


Said = list[tuple[Channel, str]]
"""What a reply holds, in the order in which it is streamed."""


def check_reply(said: Said, finish_reason: str) -> None:
    """The promises of a reply that consists of texts."""
    reader = ReplyReader(TOOLS)
    events: list[ModelEvent] = []
    for channel, text in said:
        events += reader.feed({"choices": [{"delta": {channel: text}}]})
    events += reader.feed({"choices": [{"delta": {}, "finish_reason": finish_reason}]})
    closing, reply = reader.close()
    settled = settle(reply, Asked(step=1, tools=TOOLS))

    check_events([*events, *closing])
    assert not has_marker(settled.content)
    assert not has_marker(settled.reasoning)
    check_nothing_lost(reply, settled)


def check_events(events: Iterable[ModelEvent]) -> None:
    """No marker is shown, not even one glued from what several events show."""
    text = reasoning = ""
    for event in events:
        match event:
            case TextDelta():
                text += event.text
                assert event.text
            case ReasoningDelta():
                reasoning += event.text
            case TextReset():
                assert event.text == text
                text = ""
            case _:
                continue
        assert not has_marker(text)
        assert not has_marker(reasoning)


def check_nothing_lost(reply: Reply, settled: SettledReply) -> None:
    """Each text is still text or became a call; each call is a call, or a repair says what became of it."""
    told = [repair.detail for repair in settled.repairs]
    calls = [text for call in settled.calls for text in (call.id, call.arguments_text, str(call.arguments))]
    texts = (reply.content.content, reply.content.reasoning, reply.thought.content, reply.thought.reasoning)

    assert letters(*texts) <= letters(settled.content, settled.reasoning, *calls, *told)
    for call in (*reply.content.calls, *reply.thought.calls):
        assert is_kept(call, settled), call
    for call in (*reply.content.thought_calls, *reply.thought.thought_calls):
        assert any(call.header in detail for detail in told), call


def is_kept(raw: RawCall, settled: SettledReply) -> bool:
    """Whether a raw call is among the calls, or told of in a repair."""
    repaired = {repair.kind for repair in settled.repairs}
    told = "\n".join(repair.detail for repair in settled.repairs)
    if not f"{raw.header}{raw.arguments}".strip() or repaired & {"arguments", "call_name"}:
        return True
    try:
        value = read_value(raw.arguments).value
    except UnreadableError:
        value = raw.arguments
    if any(call.arguments in (value, raw.arguments) for call in settled.calls):
        return True
    return raw.header in told and (raw.arguments.strip() in told or "truncated_call" in repaired)


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("finish_reason", FINISH_REASONS)
def test_a_reply_of_the_corpus_keeps_every_text_and_accounts_for_every_call(
    channel: Channel, finish_reason: str
) -> None:
    for text in TEXTS.values():
        check_reply([(channel, text)], finish_reason)


def replies() -> st.SearchStrategy[Said]:
    """Mostly one text; sometimes several that take turns."""
    one = st.tuples(st.sampled_from(CHANNELS), any_texts())
    return st.one_of(st.lists(one, min_size=1, max_size=1), st.lists(one, max_size=4))


@settings(max_examples=300)
@given(replies(), st.sampled_from(FINISH_REASONS))
def test_any_reply_keeps_every_text_and_accounts_for_every_call(said: Said, finish_reason: str) -> None:
    check_reply(said, finish_reason)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@settings(max_examples=20_000)
@given(replies(), st.sampled_from(FINISH_REASONS))
def test_any_reply_of_a_whole_night_keeps_every_text_and_accounts_for_every_call(
    said: Said, finish_reason: str
) -> None:
    check_reply(said, finish_reason)
