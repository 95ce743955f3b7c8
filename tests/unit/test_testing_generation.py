"""Plans as tokens, and raw prompts as conversations."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kimi_agent.testing.conversation import MadeCall
from kimi_agent.testing.generation import Generation, Kind, cut, pieces_of, tokens_of
from kimi_agent.testing.k2_prompt import conversation_of_prompt, starts_thinking
from kimi_agent.testing.planner import Plan, PlannedCall

PLAN = Plan(reasoning="Hm.", content="One moment.", calls=(PlannedCall("get_time", {"zone": "UTC"}),))
RAW = (
    "<think>Hm.</think>One moment.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_time:0"
    '<|tool_call_argument_begin|>{"zone": "UTC"}<|tool_call_end|><|tool_calls_section_end|>'
)
TOKENS = tuple(tokens_of(PLAN, ["functions.get_time:0"], ['{"zone": "UTC"}'], opens_thought=True))


@given(st.text(max_size=200))
def test_pieces_joined_are_the_text(text: str) -> None:
    assert "".join(pieces_of(text)) == text


def test_a_plan_becomes_the_text_a_k2_model_writes() -> None:
    generation = Generation(tokens=TOKENS)

    assert generation.raw == RAW
    assert generation.unparsed().text(Kind.CONTENT) == RAW
    assert generation.completion_tokens == len(TOKENS) + 1


@given(st.integers(1, 60))
def test_the_token_limit_cuts_anywhere_even_inside_a_call(limit: int) -> None:
    kept, finish, _ = cut(TOKENS, max_tokens=limit, stops=[])
    generation = Generation(tokens=kept, finish=finish)

    assert RAW.startswith(generation.raw)
    assert (finish == "length") == (limit <= len(TOKENS))
    assert generation.completion_tokens == min(limit, len(TOKENS) + 1)


def test_a_stop_string_ends_the_text_before_it() -> None:
    kept, finish, stop = cut(TOKENS, max_tokens=None, stops=["nope", "moment", "functions"])

    assert "".join(token.text for token in kept) == "<think>Hm.</think>One "
    assert (finish, stop) == ("stop", "moment")


def test_a_raw_prompt_is_read_back() -> None:
    tools: list[dict[str, Any]] = [
        {"type": "function", "function": {"name": "get_time", "description": "Time.", "parameters": {}}}
    ]
    prompt = (
        f"<|im_system|>tool_declare<|im_middle|>{json.dumps(tools)}<|im_end|>"
        "<|im_system|>system<|im_middle|>Be brief.<|im_end|>"
        "<|im_user|>user<|im_middle|>Time in Oslo?<|im_end|>"
        f"<|im_assistant|>assistant<|im_middle|>{RAW}<|im_end|>"
        "<|im_system|>tool<|im_middle|>## Return of functions.get_time:0\n12:00<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>"
    )
    conversation = conversation_of_prompt(prompt)

    assert [tool.name for tool in conversation.tools] == ["get_time"]
    assert conversation.prompt == "Time in Oslo?"
    assert conversation.calls == (MadeCall("get_time", {"zone": "UTC"}, "functions.get_time:0", "12:00"),)


def test_typescript_declarations_are_read_too() -> None:
    declared = (
        "# Tools\n\n## functions\nnamespace functions {\n// Get the weather.\ntype get_weather = (_: {\n"
        '  // City name\n  city: string,\n  unit?: "celsius" | "fahrenheit"\n}) => any;\n}\n'
    )
    prompt = (
        f"<|im_system|>tool_declare<|im_middle|>{declared}<|im_end|><|im_user|>user<|im_middle|>Hi<|im_end|>"
    )
    [tool] = conversation_of_prompt(prompt).tools

    assert (tool.name, tool.description) == ("get_weather", "Get the weather.")
    assert tool.parameters == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city"],
    }


def test_text_without_framing_is_one_user_message() -> None:
    assert conversation_of_prompt("Who are you?").prompt == "Who are you?"


def test_the_end_of_the_prompt_says_whether_it_thinks() -> None:
    assert starts_thinking("…<|im_middle|><think>") is True
    assert starts_thinking("…<|im_middle|><think></think>") is False
    assert starts_thinking("…<|im_middle|>") is None


FRAMING = "<|im_user|> <|im_system|> <|im_assistant|> <|im_middle|> <|im_end|> tool_declare [{ }"
CALLS = ["<|tool_call_begin|>", "<|tool_call_argument_begin|>", "## Return of "]
DECLARATIONS = ["type a = (_: {\n", "  b: Array<string>\n", "// text\n"]
MARKS = st.sampled_from([*FRAMING.split(), *CALLS, *DECLARATIONS])


@given(st.lists(MARKS | st.text(max_size=8), max_size=20))
def test_any_prompt_is_some_conversation(pieces: list[str]) -> None:
    assert conversation_of_prompt("".join(pieces)) is not None
