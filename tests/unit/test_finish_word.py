"""The finish reasons that servers write."""

from __future__ import annotations

import pytest

from kimi_agent._core.finish_word import FINISH_REASONS, is_cut, known_word


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ("stop", "stop"),
        ("STOP", "stop"),
        ("end_turn", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("content_filter", "content_filter"),
        ("refusal", "content_filter"),
        ("insufficient_system_resource", "other"),
        ("", "stop"),
        (None, "stop"),
    ],
)
def test_a_servers_word_is_a_word_users_know(raw: str | None, word: str) -> None:
    assert known_word(raw) == word
    assert is_cut(raw) is (word == "length")


def test_every_word_leads_to_one_of_chat_completions() -> None:
    assert set(FINISH_REASONS.values()) == {"stop", "length", "tool_calls", "content_filter"}
