"""The openai client against the simulated engines: a whole tool loop on each, streamed and not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import openai
import pytest

from kimi_agent.testing import KimiServer

if TYPE_CHECKING:
    from collections.abc import Iterator

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather in a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]
QUESTION: list[Any] = [{"role": "user", "content": "What is the weather in Paris and Tokyo?"}]
ENGINES = ["vllm", "sglang", "llama.cpp", "moonshot"]
REASONING_FIELD = {"vllm": "reasoning"}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


def client_of(server: KimiServer, api_key: str = "any") -> openai.OpenAI:
    return openai.OpenAI(base_url=server.base_url, api_key=api_key, max_retries=0)


@pytest.fixture
def asked(engine: str) -> Iterator[tuple[str, openai.OpenAI]]:
    with KimiServer(engine) as server, client_of(server) as client:
        yield engine, client


def create(client: openai.OpenAI, messages: list[Any], **options: Any) -> Any:
    endpoint: Any = client.chat.completions
    return endpoint.create(**{"model": "kimi-simulated", "messages": messages, "tools": TOOLS, **options})


def answer_to(calls: list[Any]) -> list[dict[str, Any]]:
    return [
        {
            "role": "tool",
            "tool_call_id": call.id,
            "content": json.dumps(
                {"city": json.loads(call.function.arguments)["city"], "temp_c": 20 + place}
            ),
        }
        for place, call in enumerate(calls)
    ]


def streamed_calls(chunks: list[Any]) -> list[tuple[str, str, str]]:
    calls: dict[int, list[str]] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            fragments: list[Any] = choice.delta.tool_calls or []
            for call in fragments:
                parts = calls.setdefault(call.index, ["", "", ""])
                parts[0] = call.id or parts[0]
                parts[1] = call.function.name or parts[1]
                parts[2] += call.function.arguments or ""
    return [(parts[0], parts[1], parts[2]) for parts in calls.values()]


def test_a_tool_loop_ends_with_an_answer_that_quotes_the_results(asked: tuple[str, openai.OpenAI]) -> None:
    engine, client = asked
    first = create(client, QUESTION).choices[0]
    calls = first.message.tool_calls
    messages = [*QUESTION, first.message.model_dump(exclude_none=True), *answer_to(calls)]
    final = create(client, messages).choices[0]

    prefix = "" if engine == "moonshot" else "functions."
    assert [call.id for call in calls] == [f"{prefix}get_weather:0", f"{prefix}get_weather:1"]
    assert [json.loads(call.function.arguments)["city"] for call in calls] == ["Paris", "Tokyo"]
    assert (first.finish_reason, final.finish_reason) == ("tool_calls", "stop")
    assert final.message.content == "Paris: temp_c 20. Tokyo: temp_c 21."
    assert not final.message.tool_calls


def test_a_stream_says_what_the_whole_reply_says(asked: tuple[str, openai.OpenAI]) -> None:
    _, client = asked
    message = create(client, QUESTION).choices[0].message
    chunks = list(create(client, QUESTION, stream=True))
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)

    assert text == message.content == "I will look that up: get_weather for Paris and Tokyo."
    assert streamed_calls(chunks) == [
        (call.id, call.function.name, call.function.arguments) for call in message.tool_calls
    ]
    assert len(chunks) > 20


def test_usage_comes_where_the_engine_puts_it(asked: tuple[str, openai.OpenAI]) -> None:
    engine, client = asked
    whole = create(client, QUESTION).usage
    without = list(create(client, QUESTION, stream=True))
    counted = list(create(client, QUESTION, stream=True, stream_options={"include_usage": True}))

    assert counted[-1].choices == []
    assert (
        counted[-1].usage.total_tokens == whole.total_tokens == whole.prompt_tokens + whole.completion_tokens
    )
    assert without[-1].choices
    in_choice = [choice.model_extra.get("usage") for chunk in without for choice in chunk.choices]
    assert any(in_choice) == (engine == "moonshot")


@pytest.mark.parametrize("stream", [False, True])
def test_a_thinking_model_reasons_in_the_field_of_the_engine(engine: str, stream: bool) -> None:
    field = REASONING_FIELD.get(engine, "reasoning_content")
    with KimiServer(engine, thinking=True) as server, client_of(server) as client:
        if stream:
            chunks = list(create(client, QUESTION, stream=True))
            deltas: list[dict[str, Any]] = [
                choice.delta.model_extra or {} for chunk in chunks for choice in chunk.choices
            ]
            reasoning = "".join(extra.get(field) or "" for extra in deltas)
        else:
            reasoning = create(client, QUESTION).choices[0].message.model_extra[field]

    assert reasoning.startswith("The user wrote: What is the weather in Paris and Tokyo?")


def test_thinking_can_be_switched_off_as_the_engine_has_it(engine: str) -> None:
    switch = (
        {"thinking": {"type": "disabled"}}
        if engine == "moonshot"
        else {"chat_template_kwargs": {"thinking": False}}
    )
    with KimiServer(engine, thinking=True) as server, client_of(server) as client:
        message = create(client, QUESTION, extra_body=switch).choices[0].message

    extra: dict[str, Any] = message.model_extra or {}
    assert not extra.get(REASONING_FIELD.get(engine, "reasoning_content"))


def test_the_token_limit_cuts_inside_a_call(asked: tuple[str, openai.OpenAI]) -> None:
    engine, client = asked
    whole = create(client, QUESTION)
    limit = whole.usage.completion_tokens - 8
    cut = create(client, QUESTION, max_tokens=limit)
    [*_, last] = create(client, QUESTION, max_tokens=limit, stream=True)
    arguments = [call.function.arguments for call in cut.choices[0].message.tool_calls]

    assert cut.usage.completion_tokens == limit
    assert last.choices[0].finish_reason == "length"
    assert cut.choices[0].finish_reason == ("tool_calls" if engine == "vllm" else "length")
    assert arguments[0] == '{"city": "Paris"}'
    # SGLang leaves the cut call out; the others pass on what there is of it.
    assert len(arguments) == (1 if engine == "sglang" else 2)


def test_without_a_parser_vllm_refuses_and_sglang_leaves_the_markers() -> None:
    markers = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    )
    with KimiServer("vllm", parser=False) as server, client_of(server) as client:
        with pytest.raises(openai.BadRequestError, match="--enable-auto-tool-choice"):
            create(client, QUESTION)
        refused = create(client, QUESTION, tool_choice="none").choices[0]
    with KimiServer("sglang", parser=False) as server, client_of(server) as client:
        left = create(client, QUESTION).choices[0]

    for choice in (refused, left):
        assert markers in choice.message.content
        assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)


def test_without_a_parser_a_forced_call_is_bare_json_on_sglang() -> None:
    with KimiServer("sglang", parser=False) as server, client_of(server) as client:
        choice = create(client, QUESTION, tool_choice="required").choices[0]

    assert json.loads(choice.message.content)[0] == {"name": "get_weather", "parameters": {"city": "Paris"}}
    assert choice.finish_reason == "stop"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_forced_call_is_made_and_ends_as_on_the_engine(
    asked: tuple[str, openai.OpenAI], choice: Any
) -> None:
    engine, client = asked
    made = create(client, [{"role": "user", "content": "Hello"}], tool_choice=choice).choices[0]

    assert [call.function.name for call in made.message.tool_calls] == ["get_weather"]
    assert made.finish_reason == ("stop" if engine == "vllm" and choice != "required" else "tool_calls")


def test_raw_completions_give_the_markers_on_every_engine(asked: tuple[str, openai.OpenAI]) -> None:
    _, client = asked
    prompt = (
        f"<|im_system|>tool_declare<|im_middle|>{json.dumps(TOOLS)}<|im_end|><|im_user|>user<|im_middle|>"
        "Weather in Oslo?<|im_end|><|im_assistant|>assistant<|im_middle|>"
    )
    whole = client.completions.create(model="kimi-simulated", prompt=prompt).choices[0]
    chunks = client.completions.create(model="kimi-simulated", prompt=prompt, stream=True)

    assert whole.text == (
        "I will look that up: get_weather for Oslo.<|tool_calls_section_begin|><|tool_call_begin|>"
        'functions.get_weather:0<|tool_call_argument_begin|>{"city": "Oslo"}<|tool_call_end|>'
        "<|tool_calls_section_end|>"
    )
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.text


def test_a_wrong_model_is_refused_or_taken_as_the_engine_does(asked: tuple[str, openai.OpenAI]) -> None:
    engine, client = asked
    words = {
        "vllm": "The model `k3` does not exist",
        "moonshot": "Not found the model k3 or Permission denied",
    }

    if engine in words:
        with pytest.raises(openai.NotFoundError, match=words[engine]):
            create(client, QUESTION, model="k3")
    else:
        assert create(client, QUESTION, model="k3").choices


def test_a_wrong_key_is_refused_in_the_words_of_the_engine(engine: str) -> None:
    words = {"llama.cpp": "Invalid API Key", "moonshot": "Invalid Authentication"}
    with KimiServer(engine, api_key="right") as server:
        with client_of(server, "wrong") as client, pytest.raises(openai.AuthenticationError) as caught:
            create(client, QUESTION)
        with client_of(server, "right") as client:
            assert create(client, QUESTION).choices

    assert words.get(engine, "Unauthorized") in caught.value.response.text


def test_a_prompt_that_is_too_long_is_refused(engine: str) -> None:
    words = {
        "vllm": "maximum context length is 50 tokens",
        "sglang": r"longer than the model's context length \(50 tokens\)",
        "llama.cpp": r"exceeds the available context size \(50 tokens\)",
        "moonshot": "exceeded model token limit: 50",
    }
    long = [{"role": "user", "content": "word " * 200}]
    refused = pytest.raises(openai.BadRequestError, match=words[engine])
    with KimiServer(engine, context_length=50) as server, client_of(server) as client, refused:
        create(client, long)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "messages must not be empty"),
        ([{"role": "user", "content": ""}], "message at position 0 with role 'user' must not be empty"),
        ([{"role": "tool", "tool_call_id": "x", "content": "y"}], "tool_call_id x is not found"),
        (
            [{"role": "assistant", "tool_calls": [{"id": "a:0", "function": {"name": "a"}}]}],
            "did not have response messages: a:0",
        ),
    ],
)
def test_moonshot_checks_the_history(messages: list[Any], words: str) -> None:
    refused = pytest.raises(openai.BadRequestError, match=words)
    with KimiServer("moonshot") as server, client_of(server) as client, refused:
        create(client, messages)


def test_moonshot_wants_the_reasoning_of_a_tool_loop_back() -> None:
    call = {"id": "get_weather:0", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    asking = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "get_weather:0", "content": "sunny"}
    with KimiServer("moonshot", thinking=True) as server, client_of(server) as client:
        with pytest.raises(openai.BadRequestError, match="reasoning_content is missing"):
            create(client, [*QUESTION, asking, result])
        with pytest.raises(openai.BadRequestError, match="'required' is incompatible with thinking"):
            create(client, QUESTION, tool_choice="required")

        assert create(client, [*QUESTION, {**asking, "reasoning_content": ""}, result]).choices


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # on trio a broken-off openai stream warns by itself
async def test_breaking_off_a_stream_is_seen_by_the_server() -> None:
    with anyio.fail_after(20):
        async with KimiServer(chunk_delay_s=0.05) as server:
            client = openai.AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0)
            stream: Any = await client.chat.completions.create(
                model="kimi-simulated", messages=QUESTION, stream=True
            )
            async for _ in stream:
                break
            await stream.close()
            await server.wait_for_async(lambda: server.disconnects == 1)
            await client.close()
