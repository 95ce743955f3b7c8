"""Texts that leave the process without what looks like a secret."""

from __future__ import annotations

import pytest

from kimi_agent._core.redaction import hide, one_line, without_secrets


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("bad key sk-abcdefghijklmnop1234 given", "abcdefghijklmnop1234"),
        ("Authorization: Bearer abc.def-ghi_12345", "abc.def-ghi_12345"),
        ("token eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl", "eyJzdWIiOiIx"),
        ("GET https://ann:hunter22@example.com/x", "hunter22"),
        ("https://example.com/?api_key=abcdef", "abcdef"),
        ("{'password': 'hunter22'}", "hunter22"),
        ("login failed: secret=hunter22", "hunter22"),
        ("hf_abcdefghijklmnop", "abcdefghijklmnop"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, secret: str) -> None:
    assert secret not in one_line(text)
    assert "[hidden]" in one_line(text)


@pytest.mark.parametrize("text", ["division by zero", "no such file: /a/b.txt", "KeyError: 'token'"])
def test_ordinary_text_stays(text: str) -> None:
    assert one_line(text) == text


def test_a_known_secret_is_hidden_wherever_it_stands() -> None:
    assert without_secrets("the key k-1 is wrong", known=["k-1"]) == "the key [hidden] is wrong"


def test_secrets_inside_a_json_value_are_hidden() -> None:
    value = {"error": ["bad key sk-abcdefghijklmnop1234", {"hint": "k-1"}, 7, None]}

    assert hide(value, known=["k-1"]) == {"error": ["bad key [hidden]", {"hint": "[hidden]"}, 7, None]}


def test_a_long_text_inside_a_json_value_is_cut() -> None:
    assert len(hide(["x y " * 100_000])[0]) <= 10_000


def test_only_the_first_line_is_told_and_it_is_short() -> None:
    assert one_line("\n first\nsecond") == "first"
    assert len(one_line("x y " * 1000)) == 300
    assert one_line("") == ""
