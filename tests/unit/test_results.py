"""What a run leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from kimi_agent.results import RunResult, Usage, usage_from


def test_usage_is_summed_field_by_field() -> None:
    one = Usage(requests=1, input_tokens=2, output_tokens=3, cached_tokens=4, reasoning_tokens=5)

    assert one + one == Usage(
        requests=2, input_tokens=4, output_tokens=6, cached_tokens=8, reasoning_tokens=10
    )
    assert one.total_tokens == 5


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({}, Usage(requests=1)),
        ({"prompt_tokens": 5, "completion_tokens": 7}, Usage(requests=1, input_tokens=5, output_tokens=7)),
        ({"cached_tokens": 3}, Usage(requests=1, cached_tokens=3)),
        ({"prompt_tokens_details": {"cached_tokens": 3}}, Usage(requests=1, cached_tokens=3)),
        ({"completion_tokens_details": {"reasoning_tokens": 2}}, Usage(requests=1, reasoning_tokens=2)),
        ({"reasoning_tokens": 2}, Usage(requests=1, reasoning_tokens=2)),
        (
            {
                "prompt_tokens": None,
                "completion_tokens": "7",
                "cached_tokens": True,
                "prompt_tokens_details": 3,
            },
            Usage(requests=1),
        ),
        ({"prompt_tokens": -5}, Usage(requests=1)),
    ],
)
def test_usage_is_read_wherever_a_server_puts_it(raw: dict[str, Any], expected: Usage) -> None:
    assert usage_from(raw) == expected


def test_the_lists_of_two_results_are_not_the_same_list() -> None:
    one, other = (
        RunResult(text="", reasoning=None, output="", messages=[], new_messages=[]) for _ in range(2)
    )

    assert one.tool_calls is not other.tool_calls
    assert one.finish_reason == "stop"
