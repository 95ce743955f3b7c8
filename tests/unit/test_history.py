"""The rules a conversation keeps before it is sent."""

from __future__ import annotations

from typing import Any

import pytest

from kimi_agent._core.history import check_history, prompt_messages
from kimi_agent.errors import ConfigurationError, InvalidHistoryError

USER = {"role": "user", "content": "Hi"}
SYSTEM = {"role": "system", "content": "Be brief."}


def calling(*ids: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_calls": [
            {"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in ids
        ],
    }


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "sunny"}


def test_a_prompt_becomes_a_user_message_behind_the_history() -> None:
    assert prompt_messages("Oslo?", history=[USER], instructions=None) == (
        [USER],
        [{"role": "user", "content": "Oslo?"}],
    )


def test_a_prompt_may_be_content_parts() -> None:
    parts = ({"type": "text", "text": "Oslo?"},)

    assert prompt_messages(parts, history=[], instructions=None)[1] == [{"role": "user", "content": [*parts]}]


def test_instructions_come_first_unless_the_history_has_its_own() -> None:
    developer = {"role": "developer", "content": "Be long."}

    assert prompt_messages("a", history=[USER], instructions="Be brief.")[0] == [SYSTEM, USER]
    assert prompt_messages("a", history=[], instructions="Be brief.")[0] == [SYSTEM]
    assert prompt_messages("a", history=[SYSTEM, USER], instructions="Be long.")[0] == [SYSTEM, USER]
    assert prompt_messages("a", history=[developer], instructions="Be brief.")[0] == [developer]


def test_a_turn_may_go_on_from_the_history_alone() -> None:
    history = [USER, calling("a"), result("a")]

    assert prompt_messages(None, history=history, instructions=None) == (history, [])


def test_without_prompt_and_history_there_is_nothing_to_answer() -> None:
    with pytest.raises(ConfigurationError, match=r"prompt is None.*history is empty"):
        prompt_messages(None, history=[], instructions="Be brief.")


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt_is_refused(prompt: Any) -> None:
    with pytest.raises(ConfigurationError, match="prompt is empty"):
        prompt_messages(prompt, history=[USER], instructions=None)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [SYSTEM, USER, {"role": "assistant", "content": "Hello"}, USER],
        [USER, calling("a", "b"), result("b"), result("a"), USER],
        [USER, {"role": "assistant", "content": "a", "tool_calls": None}],
        [calling("a"), result("a"), calling("a"), result("a")],
        [calling("a"), result("a"), result("a")],
    ],
)
def test_a_sound_history_passes(history: list[dict[str, Any]]) -> None:
    check_history(history)


BROKEN: list[tuple[list[Any], list[str]]] = [
    ([USER, "Hi"], ["history[1]", "dict", "Hi"]),
    ([{"content": "Hi"}], ["history[0]", "role", "assistant"]),
    ([{"role": "robot"}], ["history[0]", "robot"]),
    ([USER, calling("a"), USER], ["history[2]", "'user'", "a", "history[1]", "tool message"]),
    ([USER, calling("a", "b"), result("a")], ["the prompt", "b", "history[1]"]),
    ([calling("a"), {"role": "tool", "content": "x"}], ["history[1]", "tool_call_id"]),
    ([calling("a"), {"role": "tool", "tool_call_id": ""}], ["history[1]", "tool_call_id"]),
    ([{"role": "assistant", "tool_calls": [{"function": {}}]}], ["history[0]", "without id"]),
    ([{"role": "assistant", "tool_calls": ["a"]}], ["history[0]", "without id"]),
]


@pytest.mark.parametrize(("history", "words"), BROKEN)
def test_a_broken_history_is_refused_with_its_place_and_the_way_out(
    history: list[Any], words: list[str]
) -> None:
    with pytest.raises(InvalidHistoryError) as caught:
        check_history(history)

    assert [word for word in words if word not in str(caught.value)] == []


def test_without_a_prompt_the_next_request_needs_the_results() -> None:
    with pytest.raises(InvalidHistoryError, match="the next request"):
        prompt_messages(None, history=[calling("a")], instructions=None)
