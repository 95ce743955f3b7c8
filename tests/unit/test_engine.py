"""The facts of each engine."""

from __future__ import annotations

import dataclasses
import re

import pytest

from kimi_agent.dialects import ENGINES, Engine
from kimi_agent.dialects.engine import GENERIC

NAMES = (
    "moonshot",
    "vllm",
    "sglang",
    "llama.cpp",
    "ktransformers",
    "tensorrt-llm",
    "lmdeploy",
    "openrouter",
    "generic",
)
SELF_HOSTED = ("vllm", "sglang", "llama.cpp", "ktransformers", "tensorrt-llm", "lmdeploy")


def test_engines_are_found_by_name_and_cannot_be_changed() -> None:
    assert set(ENGINES) == set(NAMES)
    assert all(name == engine.name for name, engine in ENGINES.items())
    with pytest.raises(dataclasses.FrozenInstanceError):
        GENERIC.name = "other"  # type: ignore[misc] - that is the point


def test_a_server_of_ones_own_can_be_described() -> None:
    mine = Engine(name="mine", output_limit_field="limit", reasoning_fields=("thoughts",))

    assert mine.call_ids == "k2"
    assert mine.thinking_field == "chat_template_kwargs"


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_every_engine_reads_reasoning_under_some_name(engine: Engine) -> None:
    assert engine.reasoning_fields
    assert set(engine.reasoning_fields) <= {"reasoning", "reasoning_content"}


def test_no_host_owner_or_field_tells_two_engines() -> None:
    for signs in ("hosts", "owners", "reply_fields"):
        found = [sign for engine in ENGINES.values() for sign in getattr(engine, signs)]
        assert len(found) == len(set(found))


@pytest.mark.parametrize("name", SELF_HOSTED)
def test_a_self_hosted_engine_says_how_it_is_started_for_kimi(name: str) -> None:
    engine = ENGINES[name]

    assert "MODEL" in engine.start_command
    assert "k2" in engine.parser_flags
    assert all(re.match(r"--[a-z]", flags) for flags in engine.parser_flags.values())
    assert all(re.match(r"--[a-z]", flags) for flags in engine.reasoning_flags.values())


@pytest.mark.parametrize("name", ["moonshot", "openrouter", "generic"])
def test_a_hosted_engine_is_started_by_nobody(name: str) -> None:
    assert ENGINES[name].start_command == ""
    assert not ENGINES[name].parser_flags


def test_vllm_needs_two_flags_for_tool_calls() -> None:
    assert ENGINES["vllm"].parser_flags["k2"] == "--enable-auto-tool-choice --tool-call-parser kimi_k2"
    assert ENGINES["vllm"].parser_flags["k3"] == "--enable-auto-tool-choice --tool-call-parser kimi_k3"


def test_moonshot_has_its_own_words() -> None:
    moonshot = ENGINES["moonshot"]

    assert moonshot.output_limit_field == "max_completion_tokens"
    assert moonshot.thinking_field == "thinking"
    assert moonshot.reasoning_fields == ("reasoning_content",)
    assert moonshot.fixes_sampling
    assert moonshot.call_ids == "any"


def test_a_server_nobody_recognised_is_sent_reasoning_under_both_names() -> None:
    assert set(GENERIC.reasoning_fields) == {"reasoning", "reasoning_content"}
    assert set(ENGINES["vllm"].reasoning_fields) == {"reasoning", "reasoning_content"}
