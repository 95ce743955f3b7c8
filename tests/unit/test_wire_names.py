"""Tool names as servers take them."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_agent._core.wire_names import wire_names

RULE = re.compile(r"(?![\d-])[\w-]{1,128}")


@pytest.mark.parametrize("name", ["get_weather", "_private", "getWeather2", "x" * 128])
def test_a_name_that_servers_take_is_sent_as_it_is(name: str) -> None:
    assert wire_names([name]) == {name: name}


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("calendar.respondToEvent", "calendar_respondToEvent"),
        ("fs/read", "fs_read"),
        ("get weather", "get_weather"),
        ("mcp:server:tool", "mcp_server_tool"),
        ("7zip", "_7zip"),
        ("-x", "_-x"),
        ("wetter-für", "wetter-für"),
        ("天气", "天气"),
        ("$web", "_web"),
        (".hidden", "_hidden"),
    ],
)
def test_what_servers_refuse_is_replaced(name: str, sent: str) -> None:
    assert wire_names([name]) == {name: sent}


def test_two_names_never_become_one() -> None:
    assert wire_names(["a.b", "a/b", "a b"]) == {"a.b": "a_b", "a/b": "a_b_2", "a b": "a_b_3"}


@pytest.mark.parametrize("names", [["a/b", "a_b", "a_b_2"], ["a_b", "a_b_2", "a/b"]])
def test_a_name_of_its_own_goes_before_an_alias_wherever_it_stands(names: list[str]) -> None:
    assert wire_names(names) == {"a/b": "a_b_3", "a_b": "a_b", "a_b_2": "a_b_2"}


def test_names_that_differ_late_stay_apart() -> None:
    names = ["a" * 130, "a" * 131]

    sent = list(wire_names(names).values())

    assert len(set(sent)) == 2
    assert all(len(name) <= 128 for name in sent)


@given(st.lists(st.text(alphabet=string.ascii_letters + string.digits + "_-./ é", min_size=1), unique=True))
def test_every_name_is_sent_as_one_that_servers_take_and_no_two_as_the_same(names: list[str]) -> None:
    sent = wire_names(names)

    assert list(sent) == names
    assert len(set(sent.values())) == len(names)
    assert all(RULE.fullmatch(name) for name in sent.values())


def test_many_like_names_do_not_take_quadratic_time() -> None:
    # Each is tried against the numbers already given: bounded by the 128 tools a server takes.
    names = [f"a{chr(0x4E00 + place)}" for place in range(500)]

    assert len(set(wire_names(names).values())) == 500
