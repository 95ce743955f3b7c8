"""Texts that leave the process without what looks like a secret."""

from __future__ import annotations

import pytest

from kimi_agent._core.redaction import one_line


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


def test_only_the_first_line_is_told_and_it_is_short() -> None:
    assert one_line("\n first\nsecond") == "first"
    assert len(one_line("x y " * 1000)) == 300
    assert one_line("") == ""
