"""Values → the bytes of compact JSON."""

from __future__ import annotations

from typing import Any

import pytest

from kimi_agent._core.json_bytes import members, to_json
from kimi_agent.errors import ConfigurationError


def test_json_is_compact_and_text_stays_as_it_is() -> None:
    assert to_json({"a": [1, None, True, "ü"]}) == '{"a":[1,null,true,"ü"]}'.encode()


def test_the_order_of_keys_is_kept() -> None:
    assert to_json({"b": 1, "a": {"d": 2, "c": 3}}) == b'{"b":1,"a":{"d":2,"c":3}}'


@pytest.mark.parametrize(
    ("text", "sent"), [("a\ud800b", b'"a?b"'), ("\udfff", b'"?"'), ("😀", '"😀"'.encode())]
)
def test_a_lone_surrogate_is_replaced_and_a_pair_is_kept(text: str, sent: bytes) -> None:
    assert to_json(text) == sent


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), float("inf"), b"bytes", object(), {(1, 2): 3}])
def test_what_json_cannot_hold_is_refused_with_its_place(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="request cannot be written as JSON"):
        to_json(value)
    with pytest.raises(ConfigurationError, match="the odd one cannot be written as JSON"):
        to_json([value], place="the odd one")


def test_what_refers_to_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    for value in (circle, deep):
        with pytest.raises(ConfigurationError, match="JSON"):
            to_json(value)
    while deep:
        deep = deep.pop()


def test_members_stand_each_behind_a_comma() -> None:
    assert members({}) == b""
    assert members({"a": 1, 'b"': "x"}) == b',"a":1,"b\\"":"x"'


def test_a_member_that_cannot_be_written_is_named() -> None:
    with pytest.raises(ConfigurationError, match="odd_field cannot be written as JSON"):
        members({"a": 1, "odd_field": {2}})
