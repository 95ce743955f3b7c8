"""Messages, tools and options → the bytes of a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kimi_agent._core.encode import RequestEncoder, request_fields, to_json, wire_message
from kimi_agent.dialects import ENGINES, Engine
from kimi_agent.errors import ConfigurationError
from kimi_agent.messages import ToolSpec
from kimi_agent.options import ModelOptions

GENERIC, VLLM, MOONSHOT = (ENGINES[name] for name in ("generic", "vllm", "moonshot"))
USER = {"role": "user", "content": "Grüß Gott"}
TOOL = ToolSpec(name="f", description="Does it.", parameters={"type": "object"})


def encoder(
    options: ModelOptions | None = None, *, tools: tuple[ToolSpec, ...] = (), engine: Engine = GENERIC
) -> RequestEncoder:
    return RequestEncoder(
        model="kimi-k2",
        tools={tool.name: tool for tool in tools},
        options=options or ModelOptions(),
        engine=engine,
    )


def body(options: ModelOptions | None = None, *, stream: bool = False, **fields: Any) -> dict[str, Any]:
    return json.loads(encoder(options, **fields).body([USER], stream=stream))


def test_a_request_holds_the_model_and_the_messages_and_nothing_else() -> None:
    assert body() == {"model": "kimi-k2", "messages": [USER]}


def test_a_streamed_request_asks_for_usage() -> None:
    assert body(stream=True) == {
        "model": "kimi-k2",
        "messages": [USER],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_text_is_sent_as_it_is() -> None:
    assert "Grüß Gott".encode() in encoder().body([USER], stream=False)


def test_options_become_fields() -> None:
    options = ModelOptions(
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=7,
        seed=1,
        stop=("a", "b"),
        presence_penalty=0.1,
        frequency_penalty=0.2,
        response_format={"type": "json_object"},
        effort="high",
        parallel_tool_calls=False,
        tool_choice="required",
    )

    assert body(options, tools=(TOOL,)) == {
        "model": "kimi-k2",
        "messages": [USER],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "seed": 1,
        "stop": ["a", "b"],
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "response_format": {"type": "json_object"},
        "reasoning_effort": "high",
        "parallel_tool_calls": False,
        "tool_choice": "required",
        "tools": [TOOL.to_json()],
    }


def test_an_engine_has_its_own_name_for_the_output_limit() -> None:
    assert request_fields(ModelOptions(max_output_tokens=7), MOONSHOT) == {"max_completion_tokens": 7}
    assert request_fields(ModelOptions(), GENERIC) == {}


@pytest.mark.parametrize(
    ("thinking", "keep", "moonshot", "others"),
    [
        (None, None, None, None),
        (True, None, {"type": "enabled"}, {"thinking": True}),
        (False, None, {"type": "disabled"}, {"thinking": False}),
        (True, True, {"type": "enabled", "keep": "all"}, {"thinking": True, "preserve_thinking": True}),
        (None, True, {"type": "enabled", "keep": "all"}, {"thinking": True, "preserve_thinking": True}),
        (True, False, {"type": "enabled"}, {"thinking": True, "preserve_thinking": False}),
    ],
)
def test_thinking_is_switched_as_the_engine_wants_it(
    thinking: bool | None, keep: bool | None, moonshot: Any, others: Any
) -> None:
    options = ModelOptions(thinking=thinking, keep_reasoning=keep)

    assert body(options, engine=MOONSHOT).get("thinking") == moonshot
    assert body(options, engine=VLLM).get("chat_template_kwargs") == others


def test_fields_of_the_caller_win() -> None:
    options = ModelOptions(temperature=0.5, extra_body={"temperature": 0.7, "chat_template_kwargs": {"a": 1}})

    assert body(options)["temperature"] == 0.7
    assert body(options)["chat_template_kwargs"] == {"a": 1}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("f", {"type": "function", "function": {"name": "f"}}),
        ({"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "f"}}),
    ],
)
def test_a_tool_may_be_chosen_by_its_name(choice: Any, sent: Any) -> None:
    assert body(ModelOptions(tool_choice=choice), tools=(TOOL,))["tool_choice"] == sent


def test_without_tools_nothing_is_said_about_them() -> None:
    options = ModelOptions(tool_choice="required", parallel_tool_calls=True)

    assert body(options).keys() == {"model", "messages"}


def test_a_forced_call_is_forced_in_the_first_step_only() -> None:
    one = encoder(ModelOptions(tool_choice="f"), tools=(TOOL,))
    first = json.loads(one.body([USER], stream=False))
    later = json.loads(one.body([USER], stream=False, first=False))

    assert first["tool_choice"]["function"] == {"name": "f"}
    assert later["tool_choice"] == "auto"
    assert {**first, "tool_choice": None} == {**later, "tool_choice": None}


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_a_choice_that_forces_nothing_holds_for_every_step(choice: str | None) -> None:
    one = encoder(ModelOptions(tool_choice=choice), tools=(TOOL,))

    assert one.body([USER], stream=False) == one.body([USER], stream=False, first=False)


def test_the_messages_of_a_request_begin_the_next_one_to_the_byte() -> None:
    one = encoder(ModelOptions(temperature=0.5), tools=(TOOL,))
    history = [USER]
    first = one.body(history, stream=True)
    history.append({"role": "assistant", "content": "Hello"})
    second = one.body(history, stream=True)

    assert second.startswith(first[: first.index(b"]")])
    assert json.loads(second)["messages"] == history


# --- messages ----------------------------------------------------------------------------------------


def test_only_what_the_protocol_knows_is_sent() -> None:
    message = {"role": "user", "content": "a", "name": "Ann", "timestamp": 3, "partial": None}

    assert wire_message(message, GENERIC) == {"role": "user", "content": "a", "name": "Ann"}


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_goes_back_under_the_names_the_engine_reads(key: str) -> None:
    message = {"role": "assistant", "content": "a", key: "hm"}

    assert wire_message(message, VLLM) == {
        "role": "assistant",
        "content": "a",
        "reasoning": "hm",
        "reasoning_content": "hm",
    }
    assert wire_message(message, MOONSHOT) == {"role": "assistant", "content": "a", "reasoning_content": "hm"}


@pytest.mark.parametrize("reasoning", [None, 3])
def test_reasoning_that_is_no_text_is_not_sent(reasoning: Any) -> None:
    assert wire_message({"role": "assistant", "content": "a", "reasoning_content": reasoning}, MOONSHOT) == {
        "role": "assistant",
        "content": "a",
    }


def test_empty_reasoning_is_sent() -> None:
    assert wire_message({"role": "assistant", "content": "a", "reasoning_content": ""}, MOONSHOT)[
        "reasoning_content"
    ] == ("")


def test_reasoning_of_a_user_is_not_sent() -> None:
    assert wire_message({"role": "user", "content": "a", "reasoning_content": "hm"}, MOONSHOT) == {
        "role": "user",
        "content": "a",
    }


@pytest.mark.parametrize("content", ["", None, []])
def test_beside_calls_empty_content_is_left_out(content: Any) -> None:
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    message = {"role": "assistant", "content": content, "tool_calls": calls}

    assert wire_message(message, GENERIC) == {"role": "assistant", "tool_calls": calls}


@pytest.mark.parametrize(
    ("function", "sent"),
    [
        ({"name": "f", "arguments": {"a": "ü"}}, {"name": "f", "arguments": '{"a":"ü"}'}),
        ({"name": "f", "arguments": None}, {"name": "f", "arguments": "{}"}),
        ({"name": "f"}, {"name": "f", "arguments": "{}"}),
        ("odd", {"name": None, "arguments": "{}"}),
    ],
)
def test_arguments_of_calls_are_sent_as_text(function: Any, sent: Any) -> None:
    message = {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "a", "function": function}]}

    assert wire_message(message, GENERIC) == {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": "a", "type": "function", "function": sent}],
    }


def test_an_assistant_message_without_calls_keeps_its_content() -> None:
    assert wire_message({"role": "assistant", "content": "", "tool_calls": []}, GENERIC) == {
        "role": "assistant",
        "content": "",
    }


# --- JSON --------------------------------------------------------------------------------------------


def test_json_is_compact() -> None:
    assert to_json({"a": [1, None, "ü"]}) == '{"a":[1,null,"ü"]}'.encode()


def test_a_lone_surrogate_is_replaced() -> None:
    assert to_json("a\ud800b") == b'"a?b"'


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), float("inf"), b"bytes", object()])
def test_what_json_cannot_hold_is_refused_with_its_place(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"messages\[1\].*JSON"):
        encoder().body([USER, {"role": "user", "content": value}], stream=False)
    with pytest.raises(ConfigurationError, match=r"odd_field.*JSON"):
        encoder(ModelOptions(extra_body={"odd_field": value}))


def test_what_refers_to_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    for value in (circle, deep):
        with pytest.raises(ConfigurationError, match="JSON"):
            to_json(value)
    while deep:
        deep = deep.pop()
