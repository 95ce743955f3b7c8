"""What is said, as plain JSON."""

from __future__ import annotations

from typing import Any

import pytest

from kimi_agent.json_types import is_array, is_object
from kimi_agent.messages import ToolSpec, text_of


def test_a_tool_is_declared_as_chat_completions_wants_it() -> None:
    assert ToolSpec(name="f", description="Does it.", parameters={"type": "object"}).to_json() == {
        "type": "function",
        "function": {"name": "f", "description": "Does it.", "parameters": {"type": "object"}},
    }
    assert ToolSpec(name="f").to_json() == {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
    }


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Oslo", "Oslo"),
        (
            [{"type": "text", "text": "Os"}, {"type": "image_url"}, "odd", {"type": "text", "text": "lo"}],
            "Oslo",
        ),
        ([{"text": 3}], ""),
        (None, ""),
        ({"text": "x"}, ""),
    ],
)
def test_the_text_of_content_is_its_text_parts(content: Any, text: str) -> None:
    assert text_of(content) == text


def test_objects_and_arrays_are_told_apart() -> None:
    assert is_object({})
    assert not is_object([])
    assert is_array([])
    assert not is_array(())
