"""Messages, tools and options → the bytes of a chat request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent._core.encode import ChatEncoder
from kimi_agent._core.lessons import Learned
from kimi_agent.dialects import ENGINES, GENERATIONS
from kimi_agent.dialects.generation import UNKNOWN
from kimi_agent.errors import ConfigurationError, InvalidRequestError, ModelError
from kimi_agent.messages import ToolSpec
from kimi_agent.options import ModelOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

USER = {"role": "user", "content": "Grüß Gott"}
ANSWER = {"role": "assistant", "content": "Hello"}
TOOL = ToolSpec(name="f", description="Does it.", parameters={"type": "object"})
DYNAMIC = {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}
BRINGING = {"role": "system", "tools": [DYNAMIC]}


def encoder(
    options: ModelOptions | None = None,
    *,
    tools: Sequence[ToolSpec] = (),
    engine: str = "generic",
    generation: str = "unknown",
    **more: Any,
) -> ChatEncoder:
    known = {**GENERATIONS, "unknown": UNKNOWN}
    return ChatEncoder(
        model="some-model",
        tools={tool.name: tool for tool in tools},
        options=options or ModelOptions(),
        engine=ENGINES[engine],
        generation=known[generation],
        **more,
    )


def body(options: ModelOptions | None = None, *, stream: bool = False, **parts: Any) -> dict[str, Any]:
    """The whole decoded body of a request for one user message."""
    return json.loads(encoder(options, **parts).body([USER], stream=stream))


def refused(text: str) -> InvalidRequestError:
    """The error of a server that says `text`."""
    return InvalidRequestError("status 400", status_code=400, server_message=text)


def messages_part(sent: bytes) -> bytes:
    """A body up to the end of its messages."""
    decoded = json.loads(sent)
    head = json.dumps({"model": decoded["model"], "messages": decoded["messages"]}, ensure_ascii=False)
    compact = json.dumps(json.loads(head), ensure_ascii=False, separators=(",", ":")).encode()
    assert sent.startswith(compact[:-2])
    return compact[:-2]


# --- the body ----------------------------------------------------------------------------------------


def test_a_request_holds_the_model_and_the_messages_and_nothing_else() -> None:
    assert body() == {"model": "some-model", "messages": [USER]}


def test_a_streamed_request_asks_for_usage() -> None:
    assert body(stream=True) == {
        "model": "some-model",
        "messages": [USER],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_request_goes_to_the_chat_path() -> None:
    assert encoder().path == "/chat/completions"
    assert not encoder().starts_in_thought


def test_text_is_sent_as_it_is() -> None:
    assert "Grüß Gott".encode() in encoder().body([USER], stream=False)


def test_options_and_tools_follow_the_messages() -> None:
    options = ModelOptions(seed=1, tool_choice="required", parallel_tool_calls=False)

    assert body(options, tools=[TOOL], generation="k2") == {
        "model": "some-model",
        "messages": [USER],
        "temperature": 0.6,
        "seed": 1,
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "tools": [TOOL.to_json()],
    }


def test_without_tools_nothing_is_said_about_them() -> None:
    options = ModelOptions(tool_choice="required", parallel_tool_calls=True)

    assert body(options) == {"model": "some-model", "messages": [USER]}


def test_the_same_request_has_the_same_bytes() -> None:
    def build() -> bytes:
        return encoder(ModelOptions(seed=1), tools=[TOOL]).body([USER, ANSWER, USER], stream=True)

    assert build() == build()


@pytest.mark.parametrize(
    ("generation", "text_format"), [("k2", "k2"), ("k2.7", "k2"), ("k3", "k3"), ("unknown", None)]
)
def test_the_grammar_of_raw_text_is_that_of_the_generation(generation: str, text_format: str | None) -> None:
    assert encoder(generation=generation).text_format == text_format


# --- forced calls ------------------------------------------------------------------------------------


def test_a_forced_call_is_forced_in_the_first_step_only() -> None:
    one = encoder(ModelOptions(tool_choice="f"), tools=[TOOL])
    first = json.loads(one.body([USER], stream=False))
    later = json.loads(one.body([USER], stream=False, first=False))

    assert first["tool_choice"]["function"] == {"name": "f"}
    assert later["tool_choice"] == "auto"
    assert {**first, "tool_choice": None} == {**later, "tool_choice": None}


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_a_choice_that_forces_nothing_holds_for_every_step(choice: str | None) -> None:
    one = encoder(ModelOptions(tool_choice=choice), tools=[TOOL])

    assert one.body([USER], stream=False) == one.body([USER], stream=False, first=False)


# --- names -------------------------------------------------------------------------------------------


def test_a_tool_is_declared_under_a_name_that_servers_take_and_that_is_reported() -> None:
    tool = ToolSpec(name="fs/read", sent_name="fs_read", parameters={"type": "object"})
    one = encoder(tools=[tool])

    assert json.loads(one.body([USER], stream=False))["tools"][0]["function"]["name"] == "fs_read"
    assert [(repair.kind, repair.where) for repair in one.repairs] == [("tool_name", "request")]
    assert "'fs/read'" in one.repairs[0].detail
    assert "'fs_read'" in one.repairs[0].detail
    assert tool.name == "fs/read"


@pytest.mark.parametrize("choice", ["fs/read", {"type": "function", "function": {"name": "fs/read"}}])
def test_a_chosen_tool_is_chosen_by_the_name_it_was_sent_with(choice: Any) -> None:
    sent = body(ModelOptions(tool_choice=choice), tools=[ToolSpec(name="fs/read", sent_name="fs_read")])

    assert sent["tool_choice"] == {"type": "function", "function": {"name": "fs_read"}}


# --- the byte prefix ---------------------------------------------------------------------------------


def test_the_messages_of_a_request_begin_the_next_one_to_the_byte() -> None:
    one = encoder(ModelOptions(temperature=0.5), tools=[TOOL])
    history = [USER]
    first = one.body(history, stream=True)
    history.append(ANSWER)
    second = one.body(history, stream=True)

    assert second.startswith(messages_part(first))
    assert json.loads(second)["messages"] == history


def test_a_message_is_encoded_once() -> None:
    one = encoder()
    message = dict(USER)
    first = one.body([message], stream=False)
    message["content"] = "changed later"

    assert one.body([message], stream=False) == first


def test_the_mended_messages_stand_for_those_they_replace() -> None:
    one = encoder(mended=[USER], replaced=3)

    assert json.loads(one.body([ANSWER] * 3, stream=False))["messages"] == [USER]
    assert json.loads(one.body([ANSWER] * 4, stream=False))["messages"] == [USER, ANSWER]


# --- lessons -----------------------------------------------------------------------------------------


def test_what_a_server_taught_holds_for_every_later_request() -> None:
    learned = Learned()
    one = encoder(ModelOptions(seed=1), learned=learned)
    one.body([USER], stream=False)

    lesson = one.learn(refused("Unknown parameter: 'seed'."))

    assert lesson is not None
    assert lesson.kind == "field_dropped"
    assert json.loads(one.body([USER], stream=False)) == {"model": "some-model", "messages": [USER]}
    assert body(ModelOptions(seed=1), learned=learned) == {"model": "some-model", "messages": [USER]}


def test_a_lesson_about_messages_changes_those_already_encoded() -> None:
    history = [{"role": "developer", "content": "Be brief."}, USER]
    one = encoder(mended=history, replaced=2)
    before = json.loads(one.body(history, stream=False))

    assert one.learn(refused("messages[0].role: unknown variant `developer`")) is not None

    after = json.loads(one.body(history, stream=False))
    assert before["messages"] == history
    assert after == {**before, "messages": [{"role": "system", "content": "Be brief."}, USER]}


def test_an_error_that_teaches_nothing_changes_nothing() -> None:
    one = encoder(ModelOptions(seed=1))
    before = one.body([USER], stream=False)

    assert one.learn(refused("Invalid request Error")) is None
    assert one.body([USER], stream=False) == before


def test_before_a_request_there_is_nothing_to_learn_from() -> None:
    assert encoder(ModelOptions(seed=1)).learn(refused("Unknown parameter: 'seed'.")) is None


def test_only_a_refusal_teaches() -> None:
    one = encoder(ModelOptions(seed=1))
    one.body([USER], stream=False)

    assert one.learn(ModelError("Unknown parameter: 'seed'.")) is None


@pytest.mark.parametrize(
    "text", ["tokenization failed", "content must be a string", "unknown role developer"]
)
def test_a_lesson_that_would_change_nothing_is_none(text: str) -> None:
    learned = Learned()
    one = encoder(learned=learned)
    before = one.body([USER], stream=False)

    assert one.learn(refused(text)) is None
    assert one.body([USER], stream=False) == before
    assert learned == Learned()


def test_what_another_run_learned_meanwhile_is_taken_over_once() -> None:
    learned = Learned()
    first, second = (encoder(ModelOptions(seed=1), learned=learned) for _ in range(2))
    for each in (first, second):
        each.body([USER], stream=False)
    refusal = refused("Unknown parameter: 'seed'.")

    assert first.learn(refusal) is not None
    assert second.learn(refusal) is not None
    assert second.body([USER], stream=False) == first.body([USER], stream=False)
    assert second.learn(refusal) is None


def test_without_a_tool_parser_raw_text_is_asked_for_with_all_its_tokens() -> None:
    one = encoder(tools=[TOOL], engine="vllm", generation="k2")
    before = json.loads(one.body([USER], stream=False))

    lesson = one.learn(
        refused('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
    )

    assert lesson is not None
    assert lesson.kind == "raw_tool_mode"
    assert json.loads(one.body([USER], stream=False)) == {
        **before,
        "tool_choice": "none",
        "skip_special_tokens": False,
    }


def test_tools_of_messages_move_to_the_request_where_a_server_wants_that() -> None:
    history = [BRINGING, USER]
    one = encoder(tools=[TOOL], mended=history, replaced=2, generation="k2.6")
    before = json.loads(one.body(history, stream=False))

    assert one.learn(refused("tokenization failed")) is not None

    after = json.loads(one.body(history, stream=False))
    assert before["messages"] == history
    assert after == {**before, "messages": [USER], "tools": [TOOL.to_json(), DYNAMIC]}


def test_a_tool_that_a_message_brings_too_is_declared_once() -> None:
    own = ToolSpec(name="g", parameters={"type": "object"})
    for generation in ("k2.6", "k3"):
        one = encoder(tools=[own], mended=[BRINGING, USER], replaced=2, generation=generation)
        sent = [json.loads(one.body([BRINGING, USER], stream=False))]
        if one.learn(refused("tokenization failed")) is not None:
            sent.append(json.loads(one.body([BRINGING, USER], stream=False)))

        for each in sent:
            named = [tool["function"]["name"] for tool in each.get("tools", ())]
            named += [
                tool["function"]["name"] for message in each["messages"] for tool in message.get("tools", ())
            ]
            assert named == ["g"]


def test_a_person_is_warned_once() -> None:
    learned = Learned()

    assert encoder(learned=learned).warn_once("a")
    assert not encoder(learned=learned).warn_once("a")
    assert encoder(learned=learned).warn_once("b")


# --- what cannot be written --------------------------------------------------------------------------


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), float("inf"), b"bytes", object()])
def test_what_json_cannot_hold_is_refused_with_its_place(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"a message of role 'user'.*JSON"):
        encoder().body([USER, {"role": "user", "content": value}], stream=False)
    with pytest.raises(ConfigurationError, match=r"odd_field.*JSON"):
        body(ModelOptions(extra_body={"odd_field": value}))
