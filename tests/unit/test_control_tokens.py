from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_agent._core.control_tokens import CONTROL_TOKENS, control_tokens, neutralised, neutralised_value
from kimi_agent.errors import ConfigurationError


@pytest.mark.parametrize("token", [*CONTROL_TOKENS, "<|reserved_token_163600|>"])
def test_every_token_is_found_and_broken_up(token: str) -> None:
    text = f"before {token}{token} after"

    assert control_tokens(text) == (token,)
    assert control_tokens(neutralised(text)) == ()


def test_a_space_goes_behind_the_first_character() -> None:
    assert neutralised("a<|im_end|>[EOS]</think>b") == "a< |im_end|>[ EOS]< /think>b"


def test_other_text_stays_as_it_is() -> None:
    text = "x <| y |> z, [BOSS], <thinking>, <|im_|end|>"

    assert neutralised(text) == text
    assert control_tokens(text) == ()


def test_tokens_are_listed_once_in_the_order_of_their_appearance_in_keys_and_strings() -> None:
    value = [{"<|sep|>": ["<|im_end|>", 5, None]}, "<think> <|sep|>"]

    assert control_tokens(value) == ("<|sep|>", "<|im_end|>", "<think>")


def test_a_value_is_copied_and_never_changed() -> None:
    value: dict[str, Any] = {"<|sep|>": ["<|im_end|>", 5, None]}
    copy = neutralised_value(value)

    assert copy == {"< |sep|>": ["< |im_end|>", 5, None]}
    assert value == {"<|sep|>": ["<|im_end|>", 5, None]}


def test_a_value_nested_too_deeply_is_refused() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]

    with pytest.raises(ConfigurationError, match="nested too deeply"):
        control_tokens(value)
    with pytest.raises(ConfigurationError, match="nested too deeply"):
        neutralised_value(value)


@given(st.lists(st.sampled_from([*CONTROL_TOKENS, "<", "|", ">", "<|", "im_end", " ", "x"])).map("".join))
def test_no_text_holds_a_token_once_neutralised_and_doing_it_twice_changes_nothing(text: str) -> None:
    once = neutralised(text)

    assert control_tokens(once) == ()
    assert neutralised(once) == once
