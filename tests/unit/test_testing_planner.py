"""What the simulated model decides."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kimi_agent.testing.conversation import conversation_of
from kimi_agent.testing.planner import Plan, plan_for

STRING = {"type": "string"}


def tool(name: str, description: str, **properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


WEATHER = tool("get_weather", "Current weather of a city.", city=STRING)
CONVERT = tool("convert_temperature", "Convert Celsius to Fahrenheit.", celsius={"type": "number"})
TIME = tool("get_time", "Get the current time.")
NOTE = tool("save_note", "Save a note.", text=STRING)
TOOLS = [WEATHER, CONVERT, TIME, NOTE]


def plan(prompt: str, tools: list[dict[str, Any]] = TOOLS, **request: Any) -> Plan:
    messages = [{"role": "user", "content": prompt}]
    return plan_for(
        conversation_of({"messages": messages, "tools": tools, **request}), model="kimi-simulated"
    )


def calls(found: Plan) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for call in found.calls]


def answered(prompt: str, first: Plan, results: list[str], **request: Any) -> Plan:
    """The plan for the step after `first`, whose calls gave `results`."""
    ids = [f"functions.{call.name}:{place}" for place, call in enumerate(first.calls)]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": prompt},
        {
            "role": "assistant",
            "content": first.content,
            "tool_calls": [
                {"id": key, "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
                for key, call in zip(ids, first.calls, strict=True)
            ],
        },
    ]
    messages += [
        {"role": "tool", "tool_call_id": key, "content": text} for key, text in zip(ids, results, strict=True)
    ]
    return plan_for(
        conversation_of({"messages": messages, "tools": TOOLS, **request}), model="kimi-simulated"
    )


def test_two_cities_make_two_calls_with_a_sentence_before_them() -> None:
    found = plan("What is the weather in Paris and Tokyo?")

    assert calls(found) == [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Tokyo"})]
    assert found.content == "I will look that up: get_weather for Paris and Tokyo."


def test_things_written_small_are_found_after_a_preposition() -> None:
    assert calls(plan("weather in oslo, new york and lima?")) == [
        ("get_weather", {"city": "oslo"}),
        ("get_weather", {"city": "new york"}),
        ("get_weather", {"city": "lima"}),
    ]


def test_two_questions_call_two_tools() -> None:
    assert calls(plan("How is the weather in Rome, and what time is it?")) == [
        ("get_weather", {"city": "Rome"}),
        ("get_time", {}),
    ]


def test_the_answer_quotes_every_result() -> None:
    prompt = "What is the weather in Paris and Tokyo?"
    final = answered(prompt, plan(prompt), ['{"city": "Paris", "temp_c": 18}', "rain"])

    assert calls(final) == []
    assert final.content == "Paris: temp_c 18. Tokyo: rain."


def test_a_tool_that_needs_a_number_waits_for_the_result_that_has_it() -> None:
    prompt = "What is the weather in Paris in Fahrenheit?"
    first = plan(prompt)
    second = answered(prompt, first, ['{"sky": "cloudy", "temp_c": 18.5}'])

    assert calls(first) == [("get_weather", {"city": "Paris"})]
    assert calls(second) == [("convert_temperature", {"celsius": 18.5})]


def test_it_says_what_it_is() -> None:
    assert "kimi-simulated" in plan("Who are you?").content
    assert "simulated model" in plan("Write a poem about Paris").content
    assert "no tool" in plan("Write a poem about Paris", tools=[]).content


def test_tool_choice_is_obeyed() -> None:
    named = {"type": "function", "function": {"name": "get_time"}}

    assert calls(plan("Weather in Paris?", tool_choice="none")) == []
    assert calls(plan("Weather in Paris?", tool_choice=named)) == [("get_time", {})]
    assert [name for name, _ in calls(plan("Hello", tool_choice="required"))] == ["get_weather"]
    assert len(plan("Weather in Paris and Rome?", parallel_tool_calls=False).calls) == 1


def test_a_short_follow_up_uses_the_tool_of_the_turn_before() -> None:
    call = {
        "id": "functions.get_weather:0",
        "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
    }
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Weather in Oslo?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "functions.get_weather:0", "content": "sunny"},
        {"role": "assistant", "content": "Oslo: sunny."},
        {"role": "user", "content": "And in Rome?"},
    ]
    conversation = conversation_of({"messages": messages, "tools": TOOLS})

    assert conversation.call_count == 1
    assert calls(plan_for(conversation, model="m")) == [("get_weather", {"city": "Rome"})]


def test_a_json_schema_is_answered_with_json_that_fits_it() -> None:
    schema = {
        "type": "object",
        "properties": {"city": STRING, "temperature": {"type": "integer"}},
        "required": ["city", "temperature"],
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "report", "schema": schema}}
    prompt = "What is the weather in Paris?"
    final = answered(prompt, plan(prompt), ['{"temperature": 18}'], response_format=wanted)

    assert json.loads(final.content) == {"city": "Paris", "temperature": 18}


def test_reasoning_comes_only_from_a_thinking_model() -> None:
    conversation = conversation_of(
        {"messages": [{"role": "user", "content": "Weather in Oslo?"}], "tools": TOOLS}
    )

    assert plan_for(conversation, model="m").reasoning == ""
    assert "get_weather" in plan_for(conversation, model="m", thinking=True).reasoning


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(
    [
        "role",
        "content",
        "tool_calls",
        "tool_call_id",
        "id",
        "function",
        "name",
        "arguments",
        "type",
        "properties",
    ]
)


@given(prompt=st.text(max_size=200))
def test_any_prompt_gets_the_same_plan_twice(prompt: str) -> None:
    assert plan(prompt) == plan(prompt)


@given(
    messages=st.lists(st.dictionaries(KEYS, JSON, max_size=5) | JSON, max_size=4),
    tools=st.lists(st.dictionaries(KEYS, JSON, max_size=5) | JSON, max_size=3),
    choice=JSON,
)
def test_malformed_messages_and_tools_are_passed_over(messages: Any, tools: Any, choice: Any) -> None:
    request = {"messages": messages, "tools": tools, "tool_choice": choice, "response_format": choice}

    assert plan_for(conversation_of(request), model="m") is not None


@given(
    parameters=st.dictionaries(
        st.sampled_from(["type", "properties", "required", "anyOf", "$ref", "enum"]), JSON
    )
)
def test_a_malformed_schema_does_no_harm(parameters: Any) -> None:
    odd = {"type": "function", "function": {"name": "odd", "parameters": parameters}}

    assert plan("Please call odd for Paris", tools=[odd]).calls
