"""The grammar of K2's text format as a table."""

from __future__ import annotations

import pytest

from kimi_agent._core.k2_grammar import ID, ID_AFTER_OBJECT, NEXT_CALL, PLAIN_STATES, TRANSITIONS, State
from kimi_agent.dialects.k2_format import K2Marker


def test_every_state_can_be_reached_and_left() -> None:
    reached = {State.ANSWER, State.REASONING}
    for _ in State:
        reached |= {target for (state, _), target in TRANSITIONS.items() if state in reached}

    assert reached == set(State)
    assert {state for state, _ in TRANSITIONS} == set(State)


def test_a_message_s_end_leads_out_of_every_part_of_a_call() -> None:
    for state in set(State) - PLAIN_STATES:
        assert TRANSITIONS[state, K2Marker.MESSAGE_END] in PLAIN_STATES


def test_a_section_or_a_call_may_begin_in_plain_text_of_either_kind() -> None:
    for state in PLAIN_STATES:
        assert TRANSITIONS[state, K2Marker.SECTION_BEGIN] is State.SECTION
        assert TRANSITIONS[state, K2Marker.CALL_BEGIN] is State.HEADER


@pytest.mark.parametrize("text", ["functions.f:0", " functions:f ", "get_weather:12\n", "functions.a/b-c:1"])
def test_an_id_is_told_by_its_prefix_or_its_index(text: str) -> None:
    assert ID.match(text)


@pytest.mark.parametrize("text", ["", "f", "functions.", "functions.f:0 and", "a:b", "functions.f{}"])
def test_a_word_alone_is_no_id(text: str) -> None:
    assert not ID.match(text)


def test_an_id_behind_arguments_is_found_at_the_end() -> None:
    found = ID_AFTER_OBJECT.search('{"a":1} functions.f:1 ')

    assert found is not None
    assert found[0].strip() == "functions.f:1"
    assert not ID_AFTER_OBJECT.search("prose functions.f:1")


def test_the_next_call_is_an_id_with_a_brace_behind_it() -> None:
    found = NEXT_CALL.match(' functions.f:1 {"a":1}')

    assert found is not None
    assert found[1] == "functions.f:1"
    assert not NEXT_CALL.match("functions.f:1 and")
