"""What a model's name tells, and the facts of each generation."""

from __future__ import annotations

import dataclasses

import pytest

from kimi_agent._core.render import RENDERED_GENERATIONS
from kimi_agent.dialects import GENERATIONS, generation_of
from kimi_agent.dialects.generation import NEWEST, UNKNOWN

NAMES = {
    "k2": (
        "kimi-k2",
        "Kimi-K2-Instruct",
        "moonshotai/Kimi-K2-Instruct",
        "moonshotai/Kimi-K2-Instruct-0905",
        "moonshotai/Kimi-K2-Base",
        "kimi-k2-0711-preview",
        "kimi-k2-0905-preview",
        "kimi_k2_0905",
        "kimi-k2-turbo-preview",
        "kimi-k2:1t",
        "kimi-k2-6bit",
        "Kimi-K2-Instruct-Q4_K_M.gguf",
        "/models/Kimi-K2-Instruct/",
        "groq/moonshotai/kimi-k2-instruct-0905",
        "accounts/fireworks/models/kimi-k2-instruct",
        "/home/user/.cache/huggingface/hub/models--moonshotai--Kimi-K2-Instruct/snapshots/0f1e2d3c",
    ),
    "k2-thinking": (
        "kimi-k2-thinking",
        "kimi-k2-thinking-turbo",
        "moonshotai/Kimi-K2-Thinking",
        "moonshotai/kimi-k2-thinking:free",
        "unsloth/Kimi-K2-Thinking-GGUF:UD-TQ1_0",
        "Kimi_K2_Thinking",
        "accounts/fireworks/models/kimi-k2-thinking",
    ),
    "k2.5": (
        "kimi-k2.5",
        "moonshotai/Kimi-K2.5",
        "Kimi-K2.5-Q4_K_M",
        "accounts/fireworks/models/kimi-k2p5",
        "kimi-k2.5-thinking",
        "Kimi_K2_5",
    ),
    "k2.6": ("kimi-k2.6", "moonshotai/Kimi-K2.6", "kimi-k2p6", "kimi-k2.6:free", "MoonshotAI/Kimi-K2.6/"),
    "k2.7": ("kimi-k2.7-code", "kimi-k2.7-code-highspeed", "moonshotai/Kimi-K2.7-Code", "kimi-for-coding"),
    "k3": (
        "kimi-k3",
        "moonshotai/Kimi-K3",
        "kimi-k3[1m]",
        "kimi-k3.1-pro",
        "kimi-k3.1-pro-highspeed",
        "Kimi-K3-MXFP4",
        "k3",
    ),
    "unknown": (
        "gpt-5",
        "qwen3-coder",
        "kimi",
        "kimi-latest",
        "moonshot-v1-128k",
        "kimi-k1.5",
        "kimi-dev-72b",
        "LLM360/K2-Think",
        "mok2",
        "",
        "/",
    ),
}


@pytest.mark.parametrize(
    ("model", "name"), [(model, name) for name, models in NAMES.items() for model in models]
)
def test_a_model_name_tells_its_generation(model: str, name: str) -> None:
    assert generation_of(model).name == name


@pytest.mark.parametrize(
    "model", ["kimi-k4", "moonshotai/Kimi-K4-Instruct", "kimi-k10", "Kimi-K3.9", "kimi_k5.2"]
)
def test_a_newer_kimi_counts_as_the_newest_known(model: str) -> None:
    assert generation_of(model) is NEWEST


@pytest.mark.parametrize("model", ["kimi-k1", "kimi-k0.9", "kimi-k1234", "kimi-k2048"])
def test_an_older_kimi_or_a_size_does_not(model: str) -> None:
    assert generation_of(model) is UNKNOWN


def test_a_very_long_name_is_read_in_little_time() -> None:
    assert generation_of("kimi-k2" * 100_000 + "x").name in ("k2", "unknown")


def test_generations_are_found_by_name_and_cannot_be_changed() -> None:
    assert list(GENERATIONS) == ["k2", "k2-thinking", "k2.5", "k2.6", "k2.7", "k3"]
    assert all(name == generation.name for name, generation in GENERATIONS.items())
    with pytest.raises(dataclasses.FrozenInstanceError):
        GENERATIONS["k2"].temperature = 1.0  # type: ignore[misc] - that is the point


def test_every_generation_can_be_rendered() -> None:
    assert set(GENERATIONS) <= set(RENDERED_GENERATIONS)


def test_the_facts_of_a_generation_do_not_contradict_each_other() -> None:
    for generation in (*GENERATIONS.values(), UNKNOWN):
        if generation.thinking == "never":
            assert generation.keep_reasoning == "no"
            assert not generation.starts_in_thought
        if generation.thinking != "optional":
            assert generation.instant_temperature is None
        if generation.fixed_sampling:
            assert generation.thinking != "never"
        assert bool(generation.efforts) == (generation.name == "k3")
        assert generation.context_tokens >= 131_072


@pytest.mark.parametrize(("name", "temperature"), [("k2", 0.6), ("k2-thinking", 1.0)])
def test_the_model_cards_recommend_a_temperature(name: str, temperature: float) -> None:
    assert GENERATIONS[name].temperature == temperature


def test_nothing_is_recommended_for_a_model_nobody_knows() -> None:
    assert UNKNOWN.temperature is None
    assert UNKNOWN.instant_temperature is None
    assert not UNKNOWN.fixed_sampling
