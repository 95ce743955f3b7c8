"""A history from anywhere → one every server takes."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from kimi_agent._core.mending import INTERRUPTED, mended

USER = {"role": "user", "content": "Hi"}
ANSWER = {"role": "assistant", "content": "Hello"}
ARGUMENTS = '{"city":"Oslo"}'


def call(identity: Any, arguments: Any = ARGUMENTS, name: str = "f") -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*ids: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [call(identity) for identity in ids], **more}


def result(identity: str, content: Any = "sunny", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identity, "content": content, **more}


def repaired(*messages: Any) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """The mended messages with kind and place of each repair; checked for what always holds."""
    given = copy.deepcopy(messages)
    out, repairs = mended(messages)

    assert messages == given, "the caller's messages were changed"
    again, more = mended(copy.deepcopy(out))
    assert (again, more) == (out, []), "doing it again changes something"
    return out, [(repair.kind, repair.where) for repair in repairs]


# --- what is sound stays -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (USER,),
        ({"role": "system", "content": "Be brief."}, USER, ANSWER, USER),
        ({"role": "developer", "content": "Be brief."}, USER),
        (USER, calling("a", "b"), result("a"), result("b"), ANSWER),
        (USER, calling("a"), result("a"), calling("a"), result("a")),
        (USER, calling("a", content="I look."), result("a", ""), USER),
        (USER, calling("a", reasoning_content=""), result("a", [{"type": "text", "text": "x"}])),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}, ANSWER),
        ({"role": "system", "tools": [{"type": "function", "function": {"name": "f"}}]}, USER),
        ({"role": "user", "name": "Ann", "content": "Hi"},),
        (USER, {"role": "assistant", "content": "", "partial": True}),
    ],
)
def test_a_sound_history_is_left_as_it_is(messages: tuple[dict[str, Any], ...]) -> None:
    assert repaired(*messages) == ([*messages], [])


# --- calls and results -------------------------------------------------------------------------------


def test_results_come_in_call_order() -> None:
    out, repairs = repaired(USER, calling("a", "b"), result("b", "2"), result("a", "1"))

    assert out == [USER, calling("a", "b"), result("a", "1"), result("b", "2")]
    assert repairs == [("result_order", "messages[1]")]


def test_a_result_behind_a_user_message_comes_to_its_call() -> None:
    out, repairs = repaired(USER, calling("a"), USER, result("a"), ANSWER)

    assert out == [USER, calling("a"), result("a"), USER, ANSWER]
    assert [where for _, where in repairs] == ["messages[1]"]


@pytest.mark.parametrize("following", [(), (USER,), (ANSWER,), (USER, ANSWER)])
def test_a_call_without_result_is_told_to_be_interrupted(following: tuple[Any, ...]) -> None:
    out, repairs = repaired(USER, calling("a"), *following)

    assert out == [USER, calling("a"), result("a", INTERRUPTED), *following]
    assert repairs == [("missing_result", "messages[1]")]


def test_of_several_calls_only_the_unanswered_one_is_interrupted() -> None:
    out, repairs = repaired(calling("a", "b", "c"), result("c", "3"), result("a", "1"))

    assert out == [calling("a", "b", "c"), result("a", "1"), result("b", INTERRUPTED), result("c", "3")]
    assert ("missing_result", "messages[0]") in repairs


@pytest.mark.parametrize(
    "messages",
    [
        (USER, result("a"), ANSWER),
        (USER, ANSWER, result("a"), USER),
    ],
)
def test_a_result_without_call_is_left_out(messages: tuple[dict[str, Any], ...]) -> None:
    out, repairs = repaired(*messages)

    assert out == [message for message in messages if message["role"] != "tool"]
    assert repairs == [("orphan_result", f"messages[{messages.index(result('a'))}]")]


@pytest.mark.parametrize("before", [(), ({"role": "system", "content": "Be brief."},), (result("z"),)])
def test_a_result_at_the_beginning_stays_for_its_call_may_stand_further_up(before: tuple[Any, ...]) -> None:
    bare = {"role": "tool", "tool_call_id": "a"}

    assert repaired(*before, bare, USER) == ([*before, result("a", ""), USER], [])


def test_the_second_result_of_one_call_is_left_out() -> None:
    out, repairs = repaired(calling("a"), result("a", "1"), result("a", "2"))

    assert out == [calling("a"), result("a", "1")]
    assert repairs == [("orphan_result", "messages[2]")]


def test_a_result_behind_the_next_reply_is_too_late() -> None:
    out, repairs = repaired(calling("a"), ANSWER, result("a"))

    assert out == [calling("a"), result("a", INTERRUPTED), ANSWER]
    assert repairs == [("missing_result", "messages[0]"), ("orphan_result", "messages[2]")]


def test_the_same_id_in_two_rounds_pairs_within_each_round() -> None:
    out, repairs = repaired(calling("a"), result("a", "1"), calling("a"), result("a", "2"))

    assert [message.get("content") for message in out] == [None, "1", None, "2"]
    assert repairs == []


def test_as_many_results_as_calls_with_other_ids_pair_by_place() -> None:
    out, repairs = repaired(calling("call_1", "call_2"), result("x", "1"), result("y", "2"))

    assert out == [calling("call_1", "call_2"), result("call_1", "1"), result("call_2", "2")]
    assert repairs == [("result_id", "messages[0]")]


def test_the_one_result_left_belongs_to_the_one_call_left() -> None:
    out, repairs = repaired(calling("a", "b"), result("x", "2"), result("a", "1"))

    assert out == [calling("a", "b"), result("a", "1"), result("b", "2")]
    assert ("result_id", "messages[0]") in repairs


def test_results_that_could_belong_to_either_call_belong_to_none() -> None:
    out, repairs = repaired(calling("a", "b"), result("x", "?"))

    assert out == [calling("a", "b"), result("a", INTERRUPTED), result("b", INTERRUPTED)]
    assert [kind for kind, _ in repairs].count("missing_result") == 2
    assert ("orphan_result", "messages[1]") in repairs


@pytest.mark.parametrize("content", [None, "absent"])
def test_a_result_without_content_is_empty(content: Any) -> None:
    bare = result("a", None)
    if content == "absent":
        del bare["content"]

    assert repaired(calling("a"), bare) == ([calling("a"), result("a", "")], [])


def test_calls_that_are_no_objects_are_no_calls() -> None:
    out, _ = repaired({"role": "assistant", "content": "a", "tool_calls": ["odd", None]})

    assert out == [{"role": "assistant", "content": "a"}]


@pytest.mark.parametrize("calls", [None, [], "odd", {}])
def test_an_empty_list_of_calls_is_left_out(calls: Any) -> None:
    assert repaired({**ANSWER, "tool_calls": calls}) == ([ANSWER], [])


# --- arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", ['{"c":', "Oslo", "[1]", "3", "null", '"x"', '{"a":1}{"b":2}', "{'a': 1}"]
)
def test_arguments_that_are_no_json_object_are_sent_empty(arguments: str) -> None:
    message = {"role": "assistant", "tool_calls": [call("a", arguments)]}

    out, repairs = repaired(USER, message, result("a"))

    assert out == [USER, {"role": "assistant", "tool_calls": [call("a", "{}")]}, result("a")]
    assert repairs == [("history_arguments", "messages[1]")]


@pytest.mark.parametrize("arguments", ["", " ", "\n"])
def test_no_arguments_are_an_empty_object(arguments: str) -> None:
    message = {"role": "assistant", "tool_calls": [call("a", arguments)]}

    out, repairs = repaired(message, result("a"))

    assert out[0]["tool_calls"] == [call("a", "{}")]
    assert repairs == []


@pytest.mark.parametrize("arguments", [["x"], 3, 1.5, True, False])
def test_arguments_of_another_kind_are_sent_empty(arguments: Any) -> None:
    out, repairs = repaired({"role": "assistant", "tool_calls": [call("a", arguments)]}, result("a"))

    assert out[0]["tool_calls"] == [call("a", "{}")]
    assert repairs == [("history_arguments", "messages[0]")]


def test_arguments_that_are_an_object_already_are_kept() -> None:
    message = {"role": "assistant", "tool_calls": [call("a", {"city": "Oslo"})]}

    assert repaired(message, result("a"))[0][0]["tool_calls"][0]["function"]["arguments"] in (
        {"city": "Oslo"},
        '{"city":"Oslo"}',
    )


@pytest.mark.parametrize("odd", [{"id": "a"}, {"id": "a", "function": "f"}, {"id": "a", "function": None}])
def test_a_call_without_function_is_still_answered(odd: Any) -> None:
    out, _ = repaired({"role": "assistant", "tool_calls": [odd]}, result("a"))

    assert [message["role"] for message in out] == ["assistant", "tool"]


# --- empty and foreign -------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, "", " \n", [], [{"type": "text", "text": " "}]])
@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_an_empty_message_is_left_out(role: str, content: Any) -> None:
    out, repairs = repaired(USER, {"role": role, "content": content})

    assert out == [USER]
    assert ("empty_message", "messages[1]") in repairs


def test_a_reply_that_only_thought_is_left_out() -> None:
    out, repairs = repaired(USER, {"role": "assistant", "content": None, "reasoning_content": "hm"}, USER)

    assert out == [USER, USER]
    assert repairs == [("empty_message", "messages[1]")]


@pytest.mark.parametrize("text", ["", "  ", None])
def test_an_empty_text_part_is_left_out(text: Any) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    message = {"role": "user", "content": [{"type": "text", "text": text}, image]}

    assert repaired(message) == (
        [{"role": "user", "content": [image]}],
        [("empty_part", "messages[0]")],
    )


def test_a_result_of_empty_parts_is_an_empty_result() -> None:
    out, repairs = repaired(calling("a"), result("a", [{"type": "text", "text": ""}]))

    assert out == [calling("a"), result("a", "")]
    assert repairs == [("empty_part", "messages[1]")]


def test_what_is_not_part_of_a_message_is_left_out_and_named() -> None:
    message = {**USER, "cache_control": {"type": "ephemeral"}, "timestamp": 3}
    out, repairs = mended([message])

    assert out == [USER]
    assert [(repair.kind, repair.where) for repair in repairs] == [("unknown_keys", "messages[0]")]
    assert "cache_control, timestamp" in repairs[0].detail
    assert "ephemeral" not in repairs[0].detail


def test_null_is_never_sent_and_nothing_to_report() -> None:
    message = {**ANSWER, "name": None, "reasoning_content": None, "refusal": None, "audio": None}

    assert repaired(message) == ([ANSWER], [])


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("value", ["hm", ""])
def test_reasoning_is_kept_as_it_is(key: str, value: str) -> None:
    message = {**ANSWER, key: value}

    assert repaired(message) == ([message], [])


def test_results_keep_what_else_they_say() -> None:
    named = result("a", "sunny", name="f")

    assert repaired(calling("a"), named) == ([calling("a"), named], [])


def test_a_repair_says_what_was_seen_and_what_was_made_of_it() -> None:
    _, repairs = mended([calling("call_7"), ANSWER, result("other")])

    assert [repair.detail for repair in repairs] == [
        "call_7 was never answered; told so",
        "the result of 'other' belongs to no call; left out",
    ]


# --- cost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([USER, *[result("a")] * 20_000], id="orphans"),
        pytest.param([result("a")] * 20_000, id="results-alone"),
        pytest.param([m for n in range(5000) for m in (calling(f"c{n}"), result(f"c{n}"))], id="rounds"),
        pytest.param([calling("a")] * 5000, id="unanswered"),
        pytest.param([calling("a"), *[USER] * 20_000, result("a")], id="displaced"),
        pytest.param([calling("a"), *[result("b")] * 20_000, calling("a"), result("a")], id="foreign"),
    ],
)
def test_a_long_history_is_mended_in_little_time(messages: list[dict[str, Any]]) -> None:
    before = time.process_time()
    mended(messages)

    assert time.process_time() - before < 2


def test_many_calls_of_one_reply_are_paired_in_little_time() -> None:
    ids = [f"c{place}" for place in range(2000)]
    before = time.process_time()
    out, _ = mended([calling(*ids), *[result(identity) for identity in reversed(ids)]])

    assert [message["tool_call_id"] for message in out[1:]] == ids
    assert time.process_time() - before < 2
