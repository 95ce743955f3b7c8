"""Text → plain text and markers."""

from __future__ import annotations

from kimi_agent._core.lexer import Lexer
from kimi_agent.dialects.k2_format import LONGEST_K2_MARKER, K2Marker


def lexer() -> Lexer[K2Marker]:
    return Lexer(K2Marker)


def test_text_without_a_bracket_passes_as_it_is() -> None:
    assert lexer().feed("It is sunny.") == ["It is sunny."]


def test_no_text_gives_no_token() -> None:
    assert lexer().feed("") == []
    assert lexer().close() == []


def test_a_marker_is_a_member_of_the_enum_and_its_neighbours_are_text() -> None:
    tokens = lexer().feed("a<think>b</think>")

    assert tokens == ["a", K2Marker.THINK_BEGIN, "b", K2Marker.THINK_END]
    assert isinstance(tokens[1], K2Marker)
    assert not isinstance(tokens[0], K2Marker)


def test_the_longer_of_two_markers_wins() -> None:
    assert lexer().feed("<|tool_call_begin|>") == [K2Marker.CALL_BEGIN]
    assert lexer().feed("<|tool_calls_section_begin|>") == [K2Marker.SECTION_BEGIN]


def test_the_beginning_of_a_marker_is_held_back_until_it_is_one() -> None:
    one = lexer()

    assert one.feed("a<th") == ["a"]
    assert one.held == "<th"
    assert one.feed("ink>b") == [K2Marker.THINK_BEGIN, "b"]
    assert one.held == ""


def test_what_was_held_back_is_text_once_no_marker_comes_of_it() -> None:
    one = lexer()

    assert one.feed("1 <") == ["1 "]
    assert one.feed(" 2") == ["< 2"]


def test_what_is_held_back_at_the_end_is_text() -> None:
    one = lexer()
    one.feed("<|tool_calls_sec")

    assert one.close() == ["<|tool_calls_sec"]
    assert one.close() == []


def test_only_the_last_bracket_can_begin_an_unfinished_marker() -> None:
    one = lexer()

    assert one.feed("<<<|im_") == ["<<"]
    assert one.held == "<|im_"


def test_a_bracket_far_from_the_end_holds_nothing_back() -> None:
    text = "<" + "|" * LONGEST_K2_MARKER

    assert lexer().feed(text) == [text]
    assert lexer().unfinished(text) == -1


def test_unfinished_tells_where_a_marker_may_begin() -> None:
    assert lexer().unfinished("abc<|im") == 3
    assert lexer().unfinished("abc<|xx") == -1
    assert lexer().unfinished("abc<think>") == -1


def test_a_defused_text_holds_no_marker_and_all_its_characters() -> None:
    assert lexer().defused("no bracket") == "no bracket"
    assert lexer().defused("a<think>b<") == "a< think>b<"
