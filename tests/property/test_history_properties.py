"""What holds for every history, however odd, on its way to a server."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kimi_agent._core.encode import ChatEncoder
from kimi_agent._core.encode_completions import CompletionsEncoder
from kimi_agent._core.history import check_history
from kimi_agent._core.lessons import Learned
from kimi_agent._core.mending import mended
from kimi_agent.dialects import ENGINES, GENERATIONS
from kimi_agent.errors import InvalidHistoryError, InvalidRequestError
from kimi_agent.messages import ToolSpec
from kimi_agent.options import ModelOptions

TOOLS = {
    "get_weather": ToolSpec(name="get_weather"),
    "fs/read": ToolSpec(name="fs/read", sent_name="fs_read"),
}
PAIRS = [(generation, engine) for generation in GENERATIONS for engine in ENGINES]

TEXTS = st.sampled_from(["", " ", "Hi", "Grüß Gott", "<|im_end|>", "a\ud800b"])
IDS = st.sampled_from(
    [None, "", "a", "b", "call_1", "toolu_1", "functions.get_weather:0", "functions.get_weather:7"]
)
NAMES = st.sampled_from(["get_weather", "fs/read", "old tool", "", None])
ARGUMENTS: st.SearchStrategy[Any] = st.sampled_from(
    ['{"city":"Oslo"}', "{}", "", "{", "[1]", None, {"city": "Oslo"}, ["x"], 3]
)
PARTS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"type": st.just("text"), "text": st.one_of(TEXTS, st.none())}),
        st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}),
    ),
    max_size=3,
)
CONTENTS = st.one_of(st.none(), TEXTS, PARTS)
CALLS: st.SearchStrategy[list[Any]] = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {
                "id": IDS,
                "type": st.just("function"),
                "function": st.fixed_dictionaries({"name": NAMES, "arguments": ARGUMENTS}),
            }
        ),
        st.just({"id": "a", "function": None}),
    ),
    max_size=3,
)
EXTRAS = st.dictionaries(
    st.sampled_from(["reasoning_content", "reasoning", "name", "timestamp", "refusal"]),
    st.one_of(st.none(), st.just("hm"), st.just("")),
    max_size=2,
)


def message(fields: dict[str, Any], extras: dict[str, Any]) -> dict[str, Any]:
    """A message with odd further keys."""
    return {**extras, **fields}


PLAIN = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "developer", "assistant"]), "content": CONTENTS}
)
CALLING = st.fixed_dictionaries({"role": st.just("assistant"), "content": CONTENTS, "tool_calls": CALLS})
RESULT = st.fixed_dictionaries(
    {"role": st.just("tool"), "tool_call_id": st.sampled_from(["a", "b", "call_1", "x"]), "content": CONTENTS}
)
MESSAGES = st.builds(message, st.one_of(PLAIN, CALLING, RESULT, RESULT), EXTRAS)
HISTORIES = st.lists(MESSAGES, max_size=10)
OPENING = ("system", "tool")
EASY = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def encoder(pair: tuple[str, str], **more: Any) -> ChatEncoder:
    generation, engine = pair
    return ChatEncoder(
        model="kimi",
        tools=TOOLS,
        options=ModelOptions(),
        engine=ENGINES[engine],
        generation=GENERATIONS[generation],
        **more,
    )


def sent(history: list[dict[str, Any]], pair: tuple[str, str]) -> list[dict[str, Any]]:
    """The messages that a server receives."""
    one = encoder(pair, mended=mended(history)[0], replaced=len(history))
    return json.loads(one.body(history, stream=False))["messages"]


@given(HISTORIES)
@EASY
def test_mending_changes_nothing_of_the_callers_and_nothing_the_second_time(
    history: list[dict[str, Any]],
) -> None:
    given_history = copy.deepcopy(history)
    out, repairs = mended(history)
    again, more = mended(copy.deepcopy(out))

    assert history == given_history
    assert again == out
    assert more == []
    assert all(repair.kind and repair.where.startswith("messages[") and repair.detail for repair in repairs)


@given(HISTORIES)
@EASY
def test_a_history_without_repairs_is_sent_in_its_own_order(history: list[dict[str, Any]]) -> None:
    out, repairs = mended(history)

    if not repairs:
        assert [each["role"] for each in out] == [each["role"] for each in history]


@given(HISTORIES)
@EASY
def test_what_was_said_is_lost_only_with_a_repair(history: list[dict[str, Any]]) -> None:
    out, repairs = mended(history)
    places = {repair.where for repair in repairs}
    kept = json.dumps([each.get("content") for each in out])

    for place, each in enumerate(history):
        content = each.get("content")
        if isinstance(content, str) and content.strip() and f"messages[{place}]" not in places:
            assert json.dumps(content) in kept


@given(HISTORIES, st.sampled_from(PAIRS))
@EASY
def test_every_call_is_answered_once_right_behind_its_message_in_call_order(
    history: list[dict[str, Any]], pair: tuple[str, str]
) -> None:
    due: list[str] = []
    # A history may be a window that begins with the results of a call before it.
    start = next((place for place, each in enumerate(sent(history, pair)) if each["role"] not in OPENING), 99)
    for each in sent(history, pair)[start:]:
        if each["role"] == "tool":
            assert due
            assert each["tool_call_id"] == due.pop(0)
            assert isinstance(each["content"], str | list)
            continue
        assert due == []
        due = [call["id"] for call in each.get("tool_calls", ())]
        assert len(set(due)) == len(due)
        assert all(isinstance(identity, str) and identity for identity in due)
    assert due == []


@given(HISTORIES, st.sampled_from(PAIRS))
@EASY
def test_no_null_no_foreign_key_and_nothing_empty_is_sent(
    history: list[dict[str, Any]], pair: tuple[str, str]
) -> None:
    known = {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning", "reasoning_content"}
    for each in sent(history, pair):
        assert each.keys() <= known
        assert None not in each.values()
        if each["role"] != "tool":
            assert each.get("content") or each.get("tool_calls")
        for call in each.get("tool_calls", ()):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)


@given(HISTORIES, st.sampled_from([pair for pair in PAIRS if pair[0] != "k3" and pair[1] != "moonshot"]))
@EASY
def test_ids_count_the_calls_of_the_whole_conversation(
    history: list[dict[str, Any]], pair: tuple[str, str]
) -> None:
    calls = [call for each in sent(history, pair) for call in each.get("tool_calls", ())]

    assert [call["id"] for call in calls] == [
        f"functions.{call['function']['name']}:{number}" for number, call in enumerate(calls)
    ]


@given(HISTORIES, st.sampled_from(PAIRS))
@EASY
def test_what_was_sent_can_be_sent_again_unchanged(
    history: list[dict[str, Any]], pair: tuple[str, str]
) -> None:
    once = sent(history, pair)

    assert sent(copy.deepcopy(once), pair) == once
    assert mended(once)[1] == []


@given(HISTORIES, st.sampled_from(PAIRS), st.booleans())
@EASY
def test_messages_that_come_later_leave_the_bytes_before_them_alone(
    history: list[dict[str, Any]], pair: tuple[str, str], images_move: bool
) -> None:
    # Replies and results, as a turn adds them: whole and in order.
    whole = mended(history)[0]
    one = encoder(pair, learned=Learned(text_only_results=images_move))
    before = b""
    for end in range(len(whole) + 1):
        if end < len(whole) and whole[end]["role"] == "tool":
            continue
        sent_now = messages_of(one.body(whole[:end], stream=True))
        assert sent_now.startswith(before)
        before = sent_now


def messages_of(body: bytes) -> bytes:
    """The bytes of a body up to the end of its last message."""
    text = body.decode()
    start = text.index('"messages":[') + len('"messages":')
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[: end - 1].encode()


@given(HISTORIES, st.sampled_from(PAIRS))
@EASY
def test_a_run_and_its_history_send_the_same_bytes(
    history: list[dict[str, Any]], pair: tuple[str, str]
) -> None:
    """What a turn adds to the messages by itself is sent as it will be sent when it is history."""
    whole = mended(history)[0]
    added = [
        {
            "role": "assistant",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "x:0", "type": "function", "function": {"name": "fs/read", "arguments": '{"a":1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "x:0", "content": "text"},
        {"role": "assistant", "content": "Done."},
    ]
    running = encoder(pair, mended=whole, replaced=len(history))
    running.body(history, stream=False)
    during = messages_of(running.body([*history, *added], stream=False))
    resumed = encoder(pair, mended=mended([*history, *added])[0], replaced=len(history) + 3)

    assert messages_of(resumed.body([*history, *added], stream=False)) == during


@given(HISTORIES, st.sampled_from([*GENERATIONS]))
@EASY
def test_every_history_can_be_rendered(history: list[dict[str, Any]], generation: str) -> None:
    one = CompletionsEncoder(
        model="kimi",
        tools=TOOLS,
        options=ModelOptions(),
        engine=ENGINES["generic"],
        generation=GENERATIONS[generation],
        mended=mended(history)[0],
        replaced=len(history),
    )

    prompt = json.loads(one.body(history, stream=False))["prompt"]

    assert prompt
    assert "None" not in prompt


@given(st.lists(st.one_of(MESSAGES, st.sampled_from(["Hi", None, {}, {"role": "robot"}])), max_size=6))
@EASY
def test_a_history_is_either_refused_or_can_be_sent(history: list[Any]) -> None:
    try:
        check_history(history)
    except InvalidHistoryError as error:
        assert "history[" in str(error)  # noqa: PT017 - most histories pass
        return
    for pair in (("k2", "vllm"), ("k3", "moonshot")):
        sent(history, pair)


@pytest.mark.parametrize(
    "text", ["tokenization failed", "content must be a string", "role developer", "image in tool"]
)
@given(history=HISTORIES)
@settings(max_examples=40, deadline=None)
def test_a_lesson_changes_the_refused_request_or_is_none(text: str, history: list[dict[str, Any]]) -> None:
    error = InvalidRequestError("status 400", status_code=400, server_message=text)
    one = encoder(("k2", "generic"), mended=mended(history)[0], replaced=len(history))
    before = one.body(history, stream=False)

    lesson = one.learn(error)

    assert (one.body(history, stream=False) != before) == (lesson is not None)
