"""What is asked of the model, and the limits of a run."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kimi_agent.errors import ConfigurationError
from kimi_agent.options import ModelOptions, RunLimits


def test_by_default_the_server_decides_everything() -> None:
    options = ModelOptions()
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}

    assert {name for name, value in values.items() if value is not None} == {
        *("control_tokens", "raw_tool_calls", "extra_body", "extra_headers")
    }


def test_the_limits_are_those_of_the_documentation() -> None:
    limits = RunLimits()

    assert (limits.max_steps, limits.max_parallel_tools, limits.max_retries) == (50, 8, 2)
    assert (limits.tool_timeout_s, limits.max_total_tokens) == (60.0, None)


@pytest.mark.parametrize(
    "values",
    [
        {"max_steps": 1},
        {"tool_timeout_s": None, "request_timeout_s": None, "max_repeats": None},
        {"max_retries": 0, "max_retry_delay_s": 0, "tool_timeout_s": 0.01},
        {"tool_timeout_s": float("inf")},
    ],
)
def test_limits_may_be_anything_that_makes_sense(values: dict[str, Any]) -> None:
    assert dataclasses.replace(RunLimits(), **values) == RunLimits(**values)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (RunLimits, "max_steps", 0),
        (RunLimits, "max_steps", "3"),
        (RunLimits, "max_parallel_tools", -1),
        (RunLimits, "tool_timeout_s", 0),
        (RunLimits, "request_timeout_s", True),
        (RunLimits, "connect_timeout_s", float("nan")),
        (RunLimits, "max_retries", -1),
        (RunLimits, "max_retry_delay_s", "soon"),
        (RunLimits, "max_repeats", 0),
        (RunLimits, "max_reply_bytes", 0),
        (RunLimits, "max_total_tokens", 0),
        (ModelOptions, "max_output_tokens", 0),
        (ModelOptions, "temperature", -0.1),
        (ModelOptions, "top_p", "high"),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_its_name(kind: Any, name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        kind(**{name: value})

    assert f"{kind.__name__}.{name}" in str(caught.value)
    assert repr(value) in str(caught.value)
