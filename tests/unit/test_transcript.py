"""A text in stretches of answer, thought and calls."""

from __future__ import annotations

from kimi_agent._core.transcript import RawCall, Transcript

CALL = RawCall(header="functions.f:0", arguments="{}", closed=True)


def test_answer_text_is_shown_and_kept() -> None:
    transcript = Transcript(in_thought=False)
    transcript.show("It is ")
    transcript.show("sunny.")

    assert transcript.take_outputs() == [("text", "It is "), ("text", "sunny.")]
    assert transcript.take_outputs() == []
    assert transcript.parsed().content == "It is sunny."
    assert transcript.parsed().reasoning is None
    assert transcript.parsed().thought_closed


def test_a_thought_is_reasoning_and_what_follows_its_end_is_answer() -> None:
    transcript = Transcript(in_thought=True)
    transcript.show("hm")
    transcript.close_thought()
    transcript.enter_answer()
    transcript.show("Oslo")
    parsed = transcript.parsed()

    assert transcript.take_outputs() == [("reasoning", "hm"), ("text", "Oslo")]
    assert (parsed.content, parsed.reasoning, parsed.thought_closed) == ("Oslo", "hm", True)


def test_a_thought_that_nothing_ends_is_reasoning() -> None:
    transcript = Transcript(in_thought=True)
    transcript.show("hm")
    parsed = transcript.parsed()

    assert (parsed.content, parsed.reasoning, parsed.thought_closed) == ("", "hm", False)


def test_a_call_in_an_open_thought_ends_it() -> None:
    transcript = Transcript(in_thought=True)
    transcript.show("hm")
    transcript.add_call(CALL)
    transcript.enter_answer()
    transcript.show("more")
    parsed = transcript.parsed()

    assert parsed.calls == (CALL,)
    assert (parsed.content, parsed.reasoning) == ("more", "hm")
    assert transcript.take_outputs()[-1] == ("text", "more")


def test_a_call_in_a_thought_that_is_closed_after_it_is_none() -> None:
    transcript = Transcript(in_thought=True)
    transcript.show("hm")
    transcript.add_call(CALL)
    transcript.enter_answer()
    transcript.show("more")
    transcript.close_thought()
    parsed = transcript.parsed()

    assert parsed.calls == ()
    assert parsed.thought_calls == (CALL,)
    assert (parsed.content, parsed.reasoning) == ("", "hmmore")


def test_a_thought_s_end_without_a_beginning_withdraws_all_text() -> None:
    transcript = Transcript(in_thought=False)
    transcript.show("hm")
    transcript.close_thought()
    transcript.enter_answer()
    transcript.show("Oslo")
    parsed = transcript.parsed()

    assert transcript.take_outputs() == [
        ("text", "hm"),
        ("withdraw", ""),
        ("reasoning", "hm"),
        ("text", "Oslo"),
    ]
    assert (parsed.content, parsed.reasoning) == ("Oslo", "hm")


def test_a_thought_s_end_without_any_text_withdraws_nothing() -> None:
    transcript = Transcript(in_thought=False)
    transcript.close_thought()

    assert transcript.take_outputs() == []
    assert transcript.parsed().reasoning == ""


def test_a_second_end_of_a_thought_changes_nothing() -> None:
    transcript = Transcript(in_thought=True)
    transcript.close_thought()
    transcript.enter_answer()
    transcript.show("Oslo")
    transcript.close_thought()

    assert transcript.parsed().content == "Oslo"


def test_an_opening_marker_in_the_middle_of_an_answer_begins_no_thought() -> None:
    transcript = Transcript(in_thought=False)
    transcript.show("Write ")
    transcript.begin_thought()
    transcript.show(" to think.")
    parsed = transcript.parsed()

    assert parsed.content == "Write  to think."
    assert parsed.thought_closed


def test_a_second_thought_keeps_what_a_call_in_the_first_one_was_followed_by() -> None:
    transcript = Transcript(in_thought=True)
    transcript.add_call(CALL)
    transcript.enter_answer()
    transcript.show("more")
    transcript.begin_thought()
    transcript.show("hm")
    transcript.close_thought()
    parsed = transcript.parsed()

    assert "more" in f"{parsed.content}{parsed.reasoning}"
    assert (*parsed.calls, *parsed.thought_calls) == (CALL,)


def test_a_separator_is_one_space_before_the_next_text() -> None:
    transcript = Transcript(in_thought=False)
    transcript.show("a")
    transcript.separate()
    transcript.show("b")
    transcript.show("c")

    assert transcript.parsed().content == "a bc"


def test_the_tail_of_a_passage_can_be_read_and_cut_across_its_pieces() -> None:
    transcript = Transcript(in_thought=False)
    for piece in ("ab", "cd", "ef"):
        transcript.show(piece)

    assert transcript.tail(3) == "def"
    assert transcript.tail(99) == "abcdef"

    transcript.cut_tail(3)

    assert transcript.tail(99) == "abc"

    transcript.cut_tail(3)

    assert transcript.parsed().content == ""
