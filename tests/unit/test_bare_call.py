"""Calls whose markers were stripped."""

from __future__ import annotations

import pytest

from kimi_agent._core.bare_call import find_bare_calls
from kimi_agent._core.transcript import RawCall
from kimi_agent.messages import ToolSpec

TOOLS = {name: ToolSpec(name=name) for name in ("f", "get_weather")}
CALL = RawCall(header="functions.f:0", arguments='{"a":1}', closed=True)


def test_a_call_at_the_end_of_the_text_is_taken_out_of_it() -> None:
    assert find_bare_calls('I look.\nfunctions.f:0{"a":1}\n', TOOLS) == ("I look.\n", (CALL,))


def test_several_calls_may_follow_each_other() -> None:
    before, calls = find_bare_calls('functions.f:0{"a":1} functions.get_weather:1 {}', TOOLS)

    assert before == ""
    assert calls == (CALL, RawCall(header="functions.get_weather:1", arguments="{}", closed=True))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It is sunny.",
        "functions.f:0",
        "See functions.f for more.",
        'functions.f:0{"a":1} is how a call looks.',
        'functions.f:0{"a":',
        "functions.f:0[1]",
        "functions.nobody:0{}",
        "functions.f:0{} functions.nobody:1{}",
        "f:0{}",
        "functions.f{}",
    ],
)
def test_prose_stays_prose(text: str) -> None:
    assert find_bare_calls(text, TOOLS) == (text, ())


def test_a_mention_before_the_call_is_prose() -> None:
    text = 'functions.f:0{} is one. functions.f:0{"a":1}'

    assert find_bare_calls(text, TOOLS) == ("functions.f:0{} is one. ", (CALL,))


def test_only_the_last_calls_of_a_long_run_are_looked_at() -> None:
    _, calls = find_bare_calls("functions.f:0{}" * 500, TOOLS)

    assert 0 < len(calls) < 500
