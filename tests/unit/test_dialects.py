"""How each server and each model spells the same things."""

from __future__ import annotations

import pytest

from kimi_agent.dialects import ENGINES
from kimi_agent.dialects.engine import engine_of_host
from kimi_agent.dialects.k2_format import LONGEST_K2_MARKER, K2Marker


@pytest.mark.parametrize(
    ("host", "engine"),
    [
        ("api.moonshot.ai", "moonshot"),
        ("api.moonshot.cn", "moonshot"),
        ("eu.api.moonshot.ai", "moonshot"),
        ("openrouter.ai", "openrouter"),
        ("notopenrouter.ai", "generic"),
        ("127.0.0.1", "generic"),
        ("", "generic"),
    ],
)
def test_a_host_tells_its_engine(host: str, engine: str) -> None:
    assert engine_of_host(host).name == engine


def test_engines_are_found_by_name_and_read_reasoning_under_some_name() -> None:
    assert all(name == engine.name for name, engine in ENGINES.items())
    assert all(engine.reasoning_fields for engine in ENGINES.values())
    assert {"moonshot", "vllm", "sglang", "llama.cpp", "ktransformers", "tensorrt-llm", "openrouter"} <= set(
        ENGINES
    )


@pytest.mark.parametrize("marker", K2Marker)
def test_a_marker_begins_with_the_only_bracket_it_holds(marker: K2Marker) -> None:
    assert marker.startswith("<")
    assert marker.count("<") == 1
    assert marker.endswith(">")
    assert len(marker) <= LONGEST_K2_MARKER


def test_no_marker_is_the_beginning_of_another() -> None:
    assert not [
        (one, other) for one in K2Marker for other in K2Marker if one != other and other.startswith(one)
    ]
