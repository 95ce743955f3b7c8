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


@pytest.mark.parametrize("prompt", [3, b"Hi", {"role": "user"}, object()])
def test_a_prompt_of_another_kind_is_refused(prompt: Any) -> None:
    with pytest.raises(ConfigurationError, match="prompt must be a text, a list of content parts or None"):
        prompt_messages(prompt, history=[], instructions=None)


@pytest.mark.parametrize("history", ["Hi", {"role": "user"}, iter(())])
def test_a_history_of_another_kind_is_refused(history: Any) -> None:
    with pytest.raises(InvalidHistoryError, match="history must be a list of messages"):
        prompt_messages("Hi", history=history, instructions=None)


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


MENDABLE: list[list[dict[str, Any]]] = [
    [USER, calling("a"), USER],
    [calling("a", "b"), result("a"), USER],
    [calling("a"), result("b"), USER],
    [result("a"), USER],
    [USER, calling("a"), USER, result("a")],
    [{"role": "assistant", "tool_calls": [{"function": {}}]}, USER],
    [{"role": "assistant", "tool_calls": ["a"]}, USER],
    [{"role": "assistant", "content": None}, USER],
    [{"role": "developer", "content": "Be brief."}, USER],
]


@pytest.mark.parametrize("history", MENDABLE)
def test_what_can_be_put_right_on_the_way_out_passes(history: list[Any]) -> None:
    check_history(history)
    check_history(history, has_prompt=False)


BROKEN: list[tuple[list[Any], list[str]]] = [
    ([USER, "Hi"], ["history[1]", "dict", "Hi"]),
    ([{"content": "Hi"}], ["history[0]", "role", "assistant"]),
    ([{"role": "robot"}], ["history[0]", "robot"]),
    ([{"role": None}], ["history[0]", "role"]),
    ([{"role": "function", "content": "x"}], ["history[0]", "function"]),
    ([calling("a"), {"role": "tool", "content": "x"}], ["history[1]", "tool_call_id"]),
    ([calling("a"), {"role": "tool", "tool_call_id": ""}], ["history[1]", "tool_call_id"]),
    ([calling("a"), {"role": "tool", "tool_call_id": 7}], ["history[1]", "tool_call_id"]),
]


@pytest.mark.parametrize(("history", "words"), BROKEN)
def test_a_broken_history_is_refused_with_its_place_and_the_way_out(
    history: list[Any], words: list[str]
) -> None:
    with pytest.raises(InvalidHistoryError) as caught:
        check_history(history)

    assert [word for word in words if word not in str(caught.value)] == []


def test_a_long_odd_message_is_shown_in_part() -> None:
    with pytest.raises(InvalidHistoryError) as caught:
        check_history([{"role": "robot", "content": "x" * 10_000}])

    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("history", "open_calls"),
    [
        ([calling("a")], "a"),
        ([USER, calling("a", "b"), result("b")], "a"),
        ([calling("x"), result("x"), calling("a", "b")], "a, b"),
    ],
)
def test_open_calls_at_the_end_need_a_prompt_or_their_results(history: list[Any], open_calls: str) -> None:
    check_history(history)
    with pytest.raises(InvalidHistoryError, match=f"the calls {open_calls};.*tool message"):
        prompt_messages(None, history=history, instructions=None)


@pytest.mark.parametrize(
    "history",
    [
        [USER, calling("call_1"), result("toolu_1")],
        [USER, calling("a", "b"), result("x"), result("y")],
        [USER, calling("a", "b"), result("x"), result("a")],
    ],
)
def test_results_under_other_ids_close_their_calls_by_place(history: list[Any]) -> None:
    assert prompt_messages(None, history=history, instructions=None) == (history, [])


@pytest.mark.parametrize(
    "prompt", ["  ", "\n", [{"type": "text", "text": ""}], [{"type": "text", "text": " "}]]
)
def test_a_blank_prompt_is_refused(prompt: Any) -> None:
    with pytest.raises(ConfigurationError, match="prompt is empty"):
        prompt_messages(prompt, history=[USER], instructions=None)
