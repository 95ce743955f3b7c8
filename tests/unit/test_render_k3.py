from __future__ import annotations

from typing import Any

import pytest

from kimi_agent._core.render import render_prompt
from kimi_agent.errors import ConfigurationError, InvalidHistoryError


def rendered(messages: list[Any], **arguments: Any) -> str:
    """The prompt in a short spelling: `<tag>`, `</tag>`, messages on lines of their own."""
    arguments = {"thinking": False, "add_generation_prompt": False, **arguments}
    prompt = render_prompt(messages, generation="k3", **arguments)
    spelled = prompt.replace("<|open|>", "<").replace("<|close|>", "</").replace("<|sep|>", ">")
    return spelled.replace("<|end_of_msg|>", "\n")


def calling(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": list(calls)}


def call(name: str, identity: str | None = None, arguments: Any = None) -> dict[str, Any]:
    made: dict[str, Any] = {"function": {"name": name, "arguments": arguments}}
    return made if identity is None else {"id": identity, **made}


def result(content: str, **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, **fields}


def results_of(*messages: dict[str, Any]) -> list[str]:
    lines = rendered(list(messages)).splitlines()
    return [
        line.partition(' tool="')[2].removesuffix("</message>") for line in lines if 'role="tool"' in line
    ]


def test_results_come_in_the_order_of_their_calls_under_the_names_of_their_calls() -> None:
    messages = (
        calling(call("first", "a"), call("second", "b"), call("third", "c")),
        result("of c", tool_call_id="c", name="stale"),
        result("of a", id="a"),
        result("also of a", tool_call_id="a"),
    )

    assert results_of(*messages) == [
        'first" index="1">of a',
        'first" index="2">also of a',
        'third" index="3">of c',
    ]


def test_results_stay_as_sent_if_one_of_them_answers_no_call() -> None:
    messages = (
        calling(call("first", "a"), call("second", "b")),
        result("of b", tool_call_id="b"),
        result("of nothing", tool_call_id="x"),
        result("named", tool="own"),
    )

    assert results_of(*messages) == [
        'first" index="1">of b',
        'second" index="2">of nothing',
        'own" index="3">named',
    ]


def test_of_two_calls_with_one_id_the_first_is_answered() -> None:
    assert results_of(calling(call("f", "a"), call("g", "a")), result("r", tool_call_id="a")) == [
        'f" index="1">r'
    ]


def test_numbers_go_on_behind_a_user_message() -> None:
    messages = (
        calling(call("f", "a"), call("g", "b")),
        result("1", tool_call_id="a"),
        {"role": "user", "content": "u"},
        result("2", tool_call_id="b"),
    )

    assert results_of(*messages) == ['f" index="1">1', 'g" index="2">2']


def test_a_result_whose_tool_cannot_be_known_is_refused() -> None:
    with pytest.raises(InvalidHistoryError, match=r"messages\[1\] answers no call: its id is 'x'"):
        rendered([{"role": "assistant", "content": "a"}, result("r", tool_call_id="x")])


@pytest.mark.parametrize("arguments", [None, "", " \n", {}, "{}"])
def test_empty_arguments_leave_no_trace(arguments: Any) -> None:
    assert '<call tool="f" index="1"></call>' in rendered([calling(call("f", arguments=arguments))])


@pytest.mark.parametrize("arguments", ['{"a": 1', "not JSON", "[" * 100_000])
def test_arguments_that_are_no_json_are_shown_raw(arguments: str) -> None:
    assert f'<json type="object">{arguments}</json>' in rendered([calling(call("f", arguments=arguments))])


@pytest.mark.parametrize("arguments", ["[1]", '"text"', "null", 5, [1]])
def test_arguments_that_are_no_object_are_refused(arguments: Any) -> None:
    with pytest.raises(InvalidHistoryError, match=r"tool_calls\[0\]\.function\.arguments holds"):
        rendered([calling(call("f", arguments=arguments))])


def test_a_call_may_stand_without_its_function_wrapper() -> None:
    assert '<call tool="f" index="1">' in rendered([calling({"name": "f", "arguments": {}})])


def test_a_call_without_name_is_refused() -> None:
    with pytest.raises(InvalidHistoryError, match=r"messages\[0\]\.tool_calls\[0\] has no function\.name"):
        rendered([calling({"id": "a", "function": {}})])
    with pytest.raises(InvalidHistoryError, match=r"has no function\.name"):
        rendered([calling({"id": "a", "function": "f"})])


def test_names_of_system_and_assistant_are_shown() -> None:
    messages = [
        {"role": "system", "name": "s", "content": "x"},
        {"role": "assistant", "name": "a", "content": [{"type": "text", "text": "y"}]},
    ]

    assert rendered(messages) == (
        '<message role="system" name="s">x</message>\n'
        '<message role="assistant" name="a"><response>y</response></message>\n'
    )


def test_blank_reasoning_is_an_empty_thought() -> None:
    messages = [{"role": "assistant", "content": "x", "reasoning_content": " \n", "reasoning": "unused"}]

    assert "<think></think><response>x" in rendered(messages, thinking=True)


def test_the_effort_none_turns_thinking_off() -> None:
    assert rendered([], thinking=True, effort="none", add_generation_prompt=True) == (
        '<message role="assistant"><response>'
    )


def test_an_effort_that_k3_does_not_know_is_refused_also_without_thinking() -> None:
    with pytest.raises(ConfigurationError, match="effort is 'xhigh'; K3 takes low, high, max or none"):
        rendered([], effort="xhigh")


@pytest.mark.parametrize("tool_choice", [None, "auto", {"type": "function", "function": {"name": "f"}}])
def test_other_tool_choices_leave_no_trace(tool_choice: Any) -> None:
    assert rendered([], tool_choice=tool_choice) == ""


@pytest.mark.parametrize("response_format", [None, "text", {"type": "text"}, {}])
def test_other_response_formats_leave_no_trace(response_format: Any) -> None:
    assert rendered([], response_format=response_format) == ""


@pytest.mark.parametrize(
    ("response_format", "schema"),
    [
        ({"type": "json_schema", "json_schema": {"schema": {"b": 1, "a": 2}}}, '{"a":2,"b":1}'),
        ({"type": "json_schema", "json_schema": {"json_schema": {"c": 1}}}, '{"c":1}'),
        ({"type": "json_schema", "json_schema": {"d": 1}}, '{"d":1}'),
        ({"type": "json_schema"}, "null"),
        ("json_schema", "null"),
    ],
)
def test_a_response_schema_is_found_where_the_encoder_finds_it(response_format: Any, schema: str) -> None:
    assert rendered([], response_format=response_format).endswith(
        f"schema:\n```json\n{schema}\n```</message>\n"
    )


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"role": "developer", "content": "x"}, r"messages\[0\]\.role is 'developer'"),
        ({"content": "x"}, r"messages\[0\]\.role is None"),
        (
            {"role": "user", "content": [{"type": "input_audio"}]},
            r"content\[0\] is a part of type 'input_audio'",
        ),
        ({"role": "user", "content": 5}, r"messages\[0\]\.content is int"),
    ],
)
def test_a_message_that_the_encoder_cannot_show_is_refused_with_its_place(
    message: Any, complaint: str
) -> None:
    with pytest.raises(InvalidHistoryError, match=complaint):
        rendered([message])
