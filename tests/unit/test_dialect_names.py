"""The names under which callers ask for an engine, a generation and an API."""

from __future__ import annotations

import pytest

from kimi_agent._core.dialect_names import api_named, engine_named, generation_named
from kimi_agent.dialects import ENGINES, GENERATIONS, Engine, Generation
from kimi_agent.errors import ConfigurationError


def test_each_is_found_by_its_name() -> None:
    assert {name: engine_named(name) for name in ENGINES} == ENGINES
    assert {name: generation_named(name) for name in GENERATIONS} == GENERATIONS
    assert [api_named(name) for name in ("chat", "completions")] == ["chat", "completions"]


def test_auto_is_none_yet() -> None:
    assert engine_named("auto") is None
    assert generation_named("auto") is None


def test_a_value_of_ones_own_is_taken_as_it_is() -> None:
    engine, generation = Engine(name="house"), Generation(name="house")

    assert engine_named(engine) is engine
    assert generation_named(generation) is generation


def test_a_wrong_name_is_answered_with_the_right_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"engine 'vlm' is not known; .*'auto'.*moonshot.*vllm"):
        engine_named("vlm")
    with pytest.raises(ConfigurationError, match=r"generation 'k9' is not known; .*'auto'.*k2-thinking.*k3"):
        generation_named("k9")
    with pytest.raises(ConfigurationError, match="api must be 'chat' or 'completions', got 'responses'"):
        api_named("responses")
