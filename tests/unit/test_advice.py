"""What to tell a person about a server that is not set up, or a request it refused."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kimi_agent._core.advice import parser_flags, request_findings
from kimi_agent.dialects import ENGINES, GENERATIONS
from kimi_agent.dialects.generation import UNKNOWN
from kimi_agent.messages import ToolSpec

USER = {"role": "user", "content": "Hi"}
TOOLS = {name: ToolSpec(name=name) for name in ("f", "g")}


def call(identity: Any, arguments: str = "{}") -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": "f", "arguments": arguments}}


def calling(*ids: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [call(identity) for identity in ids]}


def result(identity: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identity, "content": "sunny"}


@pytest.mark.parametrize(
    ("engine", "generation", "advice"),
    [
        ("vllm", "k2", "start vllm with --enable-auto-tool-choice --tool-call-parser kimi_k2"),
        ("vllm", "k3", "start vllm with --enable-auto-tool-choice --tool-call-parser kimi_k3"),
        ("sglang", "k2-thinking", "start sglang with --tool-call-parser kimi_k2"),
        ("ktransformers", "k2.5", "start ktransformers with --tool-call-parser kimi_k2"),
        ("tensorrt-llm", "k2.6", "start tensorrt-llm with --tool_parser kimi_k2"),
        ("lmdeploy", "k2.7", "start lmdeploy with --tool-call-parser kimi_k2"),
        ("llama.cpp", "k2", "start llama.cpp with --jinja"),
    ],
)
def test_the_flags_are_those_of_the_engine_and_the_generation(
    engine: str, generation: str, advice: str
) -> None:
    assert parser_flags(ENGINES[engine], GENERATIONS[generation]) == advice


@pytest.mark.parametrize("engine", ["generic", "moonshot", "openrouter"])
def test_without_a_known_engine_each_has_its_flags(engine: str) -> None:
    advice = parser_flags(ENGINES[engine], GENERATIONS["k2"])

    assert "tool parser" in advice
    for name in ("vllm", "sglang", "llama.cpp", "tensorrt-llm"):
        assert f"{name}: {ENGINES[name].parser_flags['k2']}" in advice


def test_an_engine_without_flags_for_the_generation_is_not_named() -> None:
    advice = parser_flags(ENGINES["lmdeploy"], GENERATIONS["k3"])

    assert "kimi_k3" in advice
    assert "lmdeploy" not in advice


def test_for_an_unknown_model_the_flags_are_those_of_k2() -> None:
    assert "kimi_k2" in parser_flags(ENGINES["vllm"], UNKNOWN)


# --- findings ----------------------------------------------------------------------------------------


def test_a_sound_request_is_described_by_its_sizes() -> None:
    messages = [USER, calling("a"), result("a"), {"role": "user", "content": "x" * 100}]

    sizes, tools = request_findings(messages, TOOLS)

    assert sizes.startswith("4 messages (2 user, 1 assistant, 1 tool) of ")
    assert "messages[3] has 128" in sizes
    assert tools == "2 tools: f, g"


def test_no_tools_are_none() -> None:
    assert request_findings([USER], {})[1] == "0 tools: none"


def test_no_messages_are_described_too() -> None:
    assert "0 messages" in request_findings([], {})[0]


def test_what_is_odd_is_found_with_its_place() -> None:
    messages = [USER, calling("a", "a"), result("a"), {"role": "user", "content": ""}, result("z")]

    findings = "\n".join(request_findings(messages, TOOLS))

    assert (
        "messages[1]: a was never answered" in findings or "messages[1]: results with other ids" in findings
    )
    assert "messages[3]: an empty user message" in findings
    assert "the call id 'a' stands 2 times" in findings


def test_calls_that_are_no_objects_do_not_stop_the_look() -> None:
    assert request_findings([{"role": "assistant", "content": "x", "tool_calls": ["odd", None]}], {})


def test_there_are_only_so_many_findings() -> None:
    messages = [USER, *[result(f"r{place}") for place in range(50)]]

    assert len(request_findings(messages, TOOLS)) == 8


def test_contents_are_not_shown() -> None:
    secret = "open sesame"
    messages = [{"role": "user", "content": secret}, calling("a"), {**result("a"), "content": secret}]

    assert secret not in "".join(request_findings(messages, TOOLS))


def test_a_large_request_is_looked_at_in_little_time() -> None:
    messages = [USER, *[{"role": "user", "content": "x" * 1000}] * 3000]
    before = time.process_time()

    request_findings(messages, TOOLS)

    assert time.process_time() - before < 1
