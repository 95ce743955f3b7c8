"""Messages as they are sent."""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent._core.lessons import Learned
from kimi_agent._core.wire_history import WireHistory, tools_of_messages
from kimi_agent.dialects import ENGINES, GENERATIONS, Engine

if TYPE_CHECKING:
    from collections.abc import Mapping

USER = {"role": "user", "content": "Hi"}
ANSWER = {"role": "assistant", "content": "Hello"}
TEXT = {"type": "text", "text": "a"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
NO_IMAGES = Engine(name="text only", images_in_results=False)


def call(identity: Any, arguments: Any = "{}", name: str = "f") -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*ids: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [call(identity) for identity in ids], **more}


def result(identity: Any, content: Any = "sunny") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identity, "content": content}


def sent(
    *messages: Any,
    engine: str | Engine = "vllm",
    generation: str = "k2",
    names: Mapping[str, str] | None = None,
    **lessons: Any,
) -> list[dict[str, Any]]:
    """What is sent for `messages`, which stay as they are."""
    wire = WireHistory(
        engine=engine if isinstance(engine, Engine) else ENGINES[engine],
        generation=GENERATIONS[generation],
        learned=Learned(**lessons),
        names=names or {},
    )
    given = copy.deepcopy(messages)
    out = [made for message in messages for made in wire.add(message)] + wire.flush()
    assert messages == given
    return out


def ids(messages: list[dict[str, Any]]) -> list[Any]:
    """The ids of calls and results, in order."""
    found: list[Any] = []
    for message in messages:
        found += [each["id"] for each in message.get("tool_calls", ())]
        found += [message["tool_call_id"]] if "tool_call_id" in message else []
    return found


# --- ids ---------------------------------------------------------------------------------------------

ROUNDS = (USER, calling("call_1", "toolu_2"), result("call_1"), result("toolu_2"), calling("x"), result("x"))
NUMBERED = [
    "functions.f:0",
    "functions.f:1",
    "functions.f:0",
    "functions.f:1",
    "functions.f:2",
    "functions.f:2",
]


@pytest.mark.parametrize("generation", ["k2", "k2-thinking", "k2.5", "k2.6", "k2.7"])
@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "moonshot"])
def test_ids_are_numbered_over_the_whole_conversation_for_k2(engine: str, generation: str) -> None:
    assert ids(sent(*ROUNDS, engine=engine, generation=generation)) == NUMBERED


@pytest.mark.parametrize(
    ("engine", "generation"), [("moonshot", "k2"), ("moonshot", "k2.6"), ("moonshot", "k3"), ("vllm", "k3")]
)
def test_ids_stay_as_they_are_where_they_are_not_read(engine: str, generation: str) -> None:
    assert ids(sent(*ROUNDS, engine=engine, generation=generation)) == [
        "call_1",
        "toolu_2",
        "call_1",
        "toolu_2",
        "x",
        "x",
    ]


def test_each_name_stands_in_its_id_and_the_number_counts_all_calls() -> None:
    first = {"role": "assistant", "tool_calls": [call("a", name="f"), call("b", name="g")]}
    second = {"role": "assistant", "tool_calls": [call("c", name="f")]}

    assert ids(sent(first, result("a"), result("b"), second, result("c"))) == [
        "functions.f:0",
        "functions.g:1",
        "functions.f:0",
        "functions.g:1",
        "functions.f:2",
        "functions.f:2",
    ]


def test_ids_that_servers_repeat_are_told_apart_by_place() -> None:
    repeated = (calling("f:0"), result("f:0"), calling("f:0", "f:0"), result("f:0"), result("f:0"))

    assert ids(sent(*repeated)) == [f"functions.f:{n}" for n in (0, 0, 1, 2, 1, 2)]


def test_one_reply_never_holds_an_id_twice() -> None:
    for generation in ("k2.6", "k3"):
        found = ids(
            sent(
                calling("x", "x"),
                result("x", "1"),
                result("x", "2"),
                engine="moonshot",
                generation=generation,
            )
        )
        assert len(set(found[:2])) == 2
        assert found[2:] == found[:2]


@pytest.mark.parametrize("identity", [None, "", 7])
@pytest.mark.parametrize("engine", ["vllm", "moonshot"])
def test_a_call_without_usable_id_gets_one(engine: str, identity: Any) -> None:
    assert ids(sent(calling(identity), result(identity), engine=engine)) == ["functions.f:0"] * 2


def test_a_result_finds_its_call_wherever_it_stands() -> None:
    assert ids(sent(calling("a", "b"), result("b"), result("a"))) == [
        f"functions.f:{n}" for n in (0, 1, 1, 0)
    ]


def test_calls_after_a_given_up_round_do_not_answer_it() -> None:
    assert ids(sent(calling("a"), calling("a"), result("a"))) == [
        "functions.f:0",
        "functions.f:1",
        "functions.f:1",
    ]


def test_a_result_of_no_call_keeps_its_id_until_a_server_refuses_it() -> None:
    assert ids(sent(result("a"))) == ["a"]
    assert sent(result("a"), USER, answered_calls_only=True) == [USER]
    assert len(sent(calling("a"), result("a"), answered_calls_only=True)) == 2


# --- calls and results -------------------------------------------------------------------------------


def test_a_call_is_sent_with_what_the_protocol_knows() -> None:
    odd = {**call("a"), "index": 0, "extra_content": {"google": 1}}
    message = {"role": "assistant", "tool_calls": [odd]}

    assert sent(message)[0]["tool_calls"] == [call("functions.f:0")]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"a": "ü"}, '{"a": "ü"}'), (None, "{}"), ('{ "a": 1 }', '{ "a": 1 }'), ({}, "{}")],
)
def test_arguments_are_sent_as_text(arguments: Any, text: str) -> None:
    message = {"role": "assistant", "tool_calls": [call("a", arguments)]}

    assert sent(message)[0]["tool_calls"][0]["function"] == {"name": "f", "arguments": text}


@pytest.mark.parametrize("function", ["odd", None, {}])
def test_a_call_without_function_is_sent_with_an_empty_one(function: Any) -> None:
    message = {"role": "assistant", "tool_calls": [{"id": "a", "function": function}]}

    assert sent(message)[0]["tool_calls"] == [call("functions.:0", name="")]


def test_names_are_those_that_servers_take() -> None:
    message = {"role": "assistant", "tool_calls": [call("a", name="fs/read"), call("b", name="other")]}

    out = sent(message, result("a"), names={"fs/read": "fs_read"})

    assert [each["function"]["name"] for each in out[0]["tool_calls"]] == ["fs_read", "other"]
    assert ids(out) == ["functions.fs_read:0", "functions.other:1", "functions.fs_read:0"]


@pytest.mark.parametrize("content", ["", None, []])
def test_beside_calls_empty_content_is_left_out(content: Any) -> None:
    assert sent(calling("a", content=content)) == [calling("functions.f:0")]


def test_content_beside_calls_is_kept() -> None:
    assert sent(calling("a", content="I look.")) == [calling("functions.f:0", content="I look.")]


def test_an_answer_without_calls_keeps_its_content() -> None:
    assert sent({**ANSWER, "tool_calls": []}, {"role": "assistant", "content": ""}) == [
        ANSWER,
        {"role": "assistant", "content": ""},
    ]


def test_a_result_has_no_name_and_always_content() -> None:
    bare = {"role": "tool", "tool_call_id": "a", "name": "f"}

    assert sent(calling("a"), bare)[1] == result("functions.f:0", "")


# --- reasoning ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("text", ["hm", ""])
@pytest.mark.parametrize("engine", ENGINES)
def test_reasoning_goes_back_under_the_names_the_engine_reads(engine: str, text: str, key: str) -> None:
    out = sent({**ANSWER, key: text}, engine=engine, generation="k2-thinking")

    assert out == [{**ANSWER, **dict.fromkeys(ENGINES[engine].reasoning_fields, text)}]


@pytest.mark.parametrize("reasoning", [None, 3, ["hm"], {"text": "hm"}])
def test_reasoning_that_is_no_text_is_not_sent(reasoning: Any) -> None:
    assert sent({**ANSWER, "reasoning_content": reasoning}, generation="k2-thinking") == [ANSWER]


def test_reasoning_that_is_not_there_is_not_made_up() -> None:
    assert sent(ANSWER, calling("a"), generation="k2-thinking") == [ANSWER, calling("functions.f:0")]


@pytest.mark.parametrize(
    ("content", "other", "wanted"),
    [("a", "b", "a"), ("", "b", "b"), ("a", "", "a"), ("", "", ""), (None, "b", "b")],
)
def test_of_two_reasonings_one_that_says_something_is_sent(content: Any, other: Any, wanted: str) -> None:
    message = {**ANSWER, "reasoning_content": content, "reasoning": other}

    assert sent(message, engine="moonshot", generation="k2-thinking") == [
        {**ANSWER, "reasoning_content": wanted}
    ]


def test_only_assistants_reason() -> None:
    assert sent({**USER, "reasoning_content": "hm"}) == [USER]


def test_a_server_may_want_reasoning_with_every_call() -> None:
    out = sent(
        calling("a"), ANSWER, calling("b", reasoning_content="hm"), engine="moonshot", reasoning_required=True
    )

    assert out == [calling("a", reasoning_content=""), ANSWER, calling("b", reasoning_content="hm")]


# --- what a server taught ----------------------------------------------------------------------------


def test_a_developer_stays_one_until_a_server_refuses() -> None:
    developer = {"role": "developer", "content": "Be brief."}

    assert sent(developer) == [developer]
    assert sent(developer, USER, developer_as_system=True) == [
        {"role": "system", "content": "Be brief."},
        USER,
    ]


def test_content_becomes_one_string_where_a_server_wants_that() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    message = {"role": "user", "content": parts}

    assert sent(message) == [message]
    assert sent(message, plain_text_content=True) == [{"role": "user", "content": "ab"}]


def test_content_with_an_image_stays_a_list() -> None:
    message = {"role": "user", "content": [TEXT, IMAGE]}

    assert sent(message, plain_text_content=True) == [message]


def test_only_what_the_protocol_knows_is_sent() -> None:
    assert sent({**USER, "name": "Ann", "timestamp": 3, "partial": None}) == [{**USER, "name": "Ann"}]


# --- images ------------------------------------------------------------------------------------------


def test_a_result_keeps_its_image_where_the_server_takes_it() -> None:
    assert sent(calling("a"), result("a", [TEXT, IMAGE]))[1]["content"] == [TEXT, IMAGE]


@pytest.mark.parametrize(("engine", "lessons"), [(NO_IMAGES, {}), ("vllm", {"text_only_results": True})])
def test_else_the_image_follows_behind_all_results_in_a_user_message(engine: Any, lessons: Any) -> None:
    out = sent(
        calling("a", "b"), result("a", [TEXT, IMAGE]), result("b", [IMAGE]), ANSWER, engine=engine, **lessons
    )

    assert out[1:] == [
        result("functions.f:0", "a"),
        result("functions.f:1", "[the image follows in the next message]"),
        {"role": "user", "content": [IMAGE, IMAGE]},
        ANSWER,
    ]


def test_the_image_follows_at_the_end_of_a_request() -> None:
    out = sent(calling("a"), result("a", [IMAGE]), text_only_results=True)

    assert out[-1] == {"role": "user", "content": [IMAGE]}


def test_what_was_flushed_does_not_come_again() -> None:
    wire = WireHistory(engine=NO_IMAGES, generation=GENERATIONS["k2"], learned=Learned(), names={})
    first = [*wire.add(calling("a")), *wire.add(result("a", [IMAGE])), *wire.flush()]

    assert len(first) == 3
    assert wire.flush() == []
    assert wire.add(ANSWER) == [ANSWER]


def test_a_result_of_text_parts_alone_becomes_text_there() -> None:
    assert sent(calling("a"), result("a", [TEXT, TEXT]), text_only_results=True)[1:] == [
        result("functions.f:0", "aa")
    ]


# --- tools of messages -------------------------------------------------------------------------------


def test_a_system_message_may_bring_tools() -> None:
    message = {"role": "system", "tools": [TOOL]}

    assert sent(message, generation="k3") == [message]


def test_where_it_may_not_only_its_text_is_sent() -> None:
    bare, spoken = {"role": "system", "tools": [TOOL]}, {"role": "system", "tools": [TOOL], "content": "New."}

    assert sent(bare, spoken, USER, static_tools=True) == [{"role": "system", "content": "New."}, USER]


def test_the_tools_of_messages_are_found_in_order() -> None:
    other = {"type": "function", "function": {"name": "g"}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "tools": [TOOL]},
        {"role": "system", "tools": None},
        {"role": "user", "tools": [TOOL]},
        {"role": "system", "tools": [other, "odd"]},
    ]

    assert tools_of_messages(messages) == [TOOL, other]


# --- cost --------------------------------------------------------------------------------------------


def test_a_long_history_takes_little_time() -> None:
    many = [f"c{place}" for place in range(1500)]
    messages = [m for n in range(1500) for m in (calling(f"r{n}"), result(f"r{n}"))]
    before = time.process_time()

    sent(calling(*many), *[result(each) for each in many], *messages)

    assert time.process_time() - before < 3
