from __future__ import annotations

from typing import Any

import pytest

from kimi_agent._core.render import render_prompt
from kimi_agent._core.render_k2 import tool_list_text
from kimi_agent.dialects.k2_framing import K2_FRAMINGS
from kimi_agent.errors import ConfigurationError, InvalidHistoryError

ASSISTANT = "<|im_assistant|>assistant<|im_middle|>"
OLD_AND_NEW = [
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "4", "reasoning_content": "Old."},
    {"role": "user", "content": "3+3?"},
    {
        "role": "assistant",
        "reasoning_content": "New.",
        "tool_calls": [{"id": "functions.add:0", "function": {"name": "add", "arguments": "{}"}}],
    },
]


def rendered(messages: list[Any], generation: str = "k2.6", **arguments: Any) -> str:
    arguments.setdefault("add_generation_prompt", False)
    return render_prompt(messages, generation=generation, **arguments)


def test_k2_7_keeps_old_reasoning_without_being_asked() -> None:
    prompt = rendered(OLD_AND_NEW, "k2.7")

    assert "<think>Old.</think>" in prompt
    assert "<think>New.</think>" in prompt


@pytest.mark.parametrize("generation", ["k2-thinking", "k2.5"])
def test_a_template_that_cannot_preserve_reasoning_is_not_asked_to(generation: str) -> None:
    prompt = rendered(OLD_AND_NEW, generation, preserve_thinking=True)

    assert "Old." not in prompt
    assert "<think>New.</think>" in prompt


def test_a_template_without_a_thinking_switch_keeps_the_reasoning_of_the_tool_loop() -> None:
    assert "<think>New.</think>" in rendered(OLD_AND_NEW, "k2-thinking", thinking=False)


def test_the_system_prompt_of_k2_thinking_also_greets_an_empty_history() -> None:
    assert rendered([], "k2-thinking") == (
        "<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>"
    )


def test_a_role_of_another_service_goes_into_a_system_message_of_its_name() -> None:
    assert rendered([{"role": "developer", "content": "x"}]) == (
        "<|im_system|>developer<|im_middle|>x<|im_end|>"
    )


def test_a_missing_content_is_an_empty_one() -> None:
    assert rendered([{"role": "user"}]) == "<|im_user|>user<|im_middle|><|im_end|>"
    assert rendered([{"role": "tool", "tool_call_id": "a", "content": None}]) == (
        "<|im_system|>tool<|im_middle|>## Return of a\n<|im_end|>"
    )


def test_an_explicit_null_id_is_printed_as_the_template_prints_it() -> None:
    call = {"id": None, "function": {"arguments": "{}"}}

    assert "<|tool_call_begin|>None<|tool_call_argument_begin|>" in rendered(
        [{"role": "assistant", "tool_calls": [call]}]
    )


def test_a_video_of_a_text_model_leaves_its_text_if_it_has_one() -> None:
    part = {"type": "video_url", "text": "seen"}

    assert rendered([{"role": "user", "content": [part]}], "k2").endswith("seen<|im_end|>")


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"content": "x"}, r"messages\[0\]\.role is None"),
        ({"role": "user", "content": {"text": "x"}}, r"messages\[0\]\.content is dict"),
        ({"role": "user", "content": ["x"]}, r"messages\[0\]\.content\[0\] is str"),
        ({"role": "assistant", "tool_calls": {"id": "a"}}, r"messages\[0\]\.tool_calls is dict"),
        ({"role": "assistant", "tool_calls": ["a"]}, r"messages\[0\]\.tool_calls\[0\] is str"),
        ({"role": "assistant", "tool_calls": [{"id": "a"}]}, r"tool_calls\[0\] has no function\.arguments"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]},
            r"tool_calls\[0\] has no function\.arguments",
        ),
        ("x", r"messages\[0\] is str"),
    ],
)
def test_a_message_that_no_template_renders_is_refused_with_its_place(message: Any, complaint: str) -> None:
    with pytest.raises(InvalidHistoryError, match=complaint):
        rendered([message])


def test_arguments_that_are_no_json_are_refused_with_their_place() -> None:
    call = {"function": {"arguments": {1, 2}}}

    with pytest.raises(ConfigurationError, match=r"messages\[0\]\.tool_calls\[0\]\.function\.arguments"):
        rendered([{"role": "assistant", "tool_calls": [call]}])


def test_tools_nested_too_deeply_are_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(100_000):
        schema = {"items": schema}

    with pytest.raises(ConfigurationError, match="tools cannot be written as JSON"):
        render_prompt([], [schema], generation="k2.6")


def test_one_tool_without_a_typescript_form_turns_the_whole_list_into_json() -> None:
    good = {"type": "function", "function": {"name": "f"}}
    bad = {"type": "function", "function": {"name": "g", "parameters": {"properties": {"a": {"const": 1}}}}}

    assert tool_list_text([good, bad], K2_FRAMINGS["k2.5"]) == (
        '[{"function":{"name":"f"},"type":"function"},'
        '{"function":{"name":"g","parameters":{"properties":{"a":{"const":1}}}},"type":"function"}]'
    )


def test_a_list_without_function_tools_is_written_as_json() -> None:
    builtin = {"type": "builtin_function", "function": {"name": "$web_search"}}

    assert tool_list_text([builtin], K2_FRAMINGS["k2.6"]) == (
        '[{"function":{"name":"$web_search"},"type":"builtin_function"}]'
    )


def test_an_unknown_generation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"'k1'.*k2-0711, k2, k2-thinking, k2\.5, k2\.6, k2\.7, k3"):
        rendered([], "k1")


def test_the_generation_prompt_follows_the_thinking_switch() -> None:
    def ending(generation: str, *, thinking: bool) -> str:
        prompt = rendered([], generation, thinking=thinking, add_generation_prompt=True)
        return prompt.rpartition(ASSISTANT)[2]

    assert ending("k2.7", thinking=True) == "<think>"
    assert ending("k2.7", thinking=False) == "<think></think>"
    assert ending("k2-thinking", thinking=False) == ""
