from __future__ import annotations

import pytest

from kimi_agent._core.prompt_json import compact_json, deep_sorted, spaced_json
from kimi_agent.errors import ConfigurationError


def test_keys_are_sorted_at_every_depth_and_lists_keep_their_order() -> None:
    assert compact_json(deep_sorted([{"b": 1, "a": [{"d": 2, "c": 3}]}, 0], place="x"), place="x") == (
        '[{"a":[{"c":3,"d":2}],"b":1},0]'
    )


def test_text_stays_as_it_is() -> None:
    assert spaced_json({"a": "é<&>", "b": [1, 2]}, place="x") == '{"a": "é<&>", "b": [1, 2]}'


def test_values_that_are_no_json_are_refused_with_their_place() -> None:
    with pytest.raises(ConfigurationError, match="tools cannot be written as JSON"):
        compact_json({"a": object()}, place="tools")
    with pytest.raises(ConfigurationError, match="tools cannot be written as JSON"):
        deep_sorted({"a": 1, 2: "b"}, place="tools")
