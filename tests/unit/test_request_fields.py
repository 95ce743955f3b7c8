"""What a caller asks of the model → the fields of a request."""

from __future__ import annotations

from typing import Any

import pytest

from kimi_agent._core.lessons import Learned
from kimi_agent._core.request_fields import request_fields, with_lessons
from kimi_agent.dialects import ENGINES, GENERATIONS, Engine
from kimi_agent.dialects.generation import UNKNOWN
from kimi_agent.options import ModelOptions

MOONSHOT, VLLM, OPENROUTER, GENERIC = (
    ENGINES[name] for name in ("moonshot", "vllm", "openrouter", "generic")
)
FIXED = ("k2.5", "k2.6", "k2.7", "k3")
SELF_HOSTED = ("vllm", "sglang", "llama.cpp", "ktransformers", "tensorrt-llm", "lmdeploy", "generic")


def fields(engine: Engine, generation: str, **options: Any) -> dict[str, Any]:
    """The fields alone."""
    known = {**GENERATIONS, "unknown": UNKNOWN}
    return request_fields(ModelOptions(**options), engine, known[generation])[0]


def reasons(engine: Engine, generation: str, **options: Any) -> list[str]:
    """What is reported."""
    repairs = request_fields(ModelOptions(**options), engine, GENERATIONS[generation])[1]
    assert all((repair.kind, repair.where) == ("field_dropped", "request") for repair in repairs)
    return [repair.detail for repair in repairs]


# --- sampling ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize(("generation", "temperature"), [("k2", 0.6), ("k2-thinking", 1.0)])
def test_the_recommended_temperature_is_sent_where_the_server_leaves_it_open(
    engine: Engine, generation: str, temperature: float
) -> None:
    assert fields(engine, generation) == {"temperature": temperature}


@pytest.mark.parametrize("generation", FIXED)
def test_nothing_is_sent_where_the_server_fixes_it(generation: str) -> None:
    assert fields(MOONSHOT, generation) == {}


def test_nothing_is_sent_to_a_model_nobody_knows() -> None:
    assert fields(GENERIC, "unknown") == {}
    assert fields(MOONSHOT, "unknown") == {}


@pytest.mark.parametrize("generation", ["k2.5", "k2.6"])
def test_without_thinking_another_temperature_is_recommended(generation: str) -> None:
    assert fields(VLLM, generation, thinking=False) == {
        "temperature": 0.6,
        "chat_template_kwargs": {"thinking": False},
    }
    assert "temperature" not in fields(MOONSHOT, generation, thinking=False)


@pytest.mark.parametrize("temperature", [0, 0.3, 1.7])
def test_the_temperature_of_the_caller_goes_before_the_recommended(temperature: float) -> None:
    assert fields(VLLM, "k2", temperature=temperature) == {"temperature": temperature}


@pytest.mark.parametrize("generation", FIXED)
def test_sampling_that_moonshot_fixes_is_left_out_and_reported(generation: str) -> None:
    sampling: dict[str, Any] = {
        "temperature": 0.1,
        "top_p": 1.0,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
        "extra_body": {"n": 2, "logprobs": True, "top_k": 4},
    }

    assert fields(MOONSHOT, generation, **sampling) == {"top_k": 4}
    told = reasons(MOONSHOT, generation, **sampling)
    assert [detail.split()[0] for detail in told] == [
        "temperature",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
        "n",
        "logprobs",
    ]
    assert all(f"moonshot fixes it for {generation}" in detail for detail in told)


@pytest.mark.parametrize("name", SELF_HOSTED)
def test_a_self_hosted_server_is_sent_the_sampling_of_the_caller(name: str) -> None:
    assert fields(ENGINES[name], "k2.6", temperature=0.1, top_p=1.0) == {"temperature": 0.1, "top_p": 1.0}


# --- thinking ----------------------------------------------------------------------------------------

ON, OFF = {"type": "enabled"}, {"type": "disabled"}
KEPT = {"type": "enabled", "keep": "all"}


@pytest.mark.parametrize("generation", ["k2.5", "k2.6", "unknown"])
@pytest.mark.parametrize(
    ("thinking", "moonshot", "template", "openrouter"),
    [
        (None, None, None, None),
        (True, ON, {"thinking": True}, {"enabled": True}),
        (False, OFF, {"thinking": False}, {"enabled": False}),
    ],
)
def test_thinking_is_switched_in_the_dialect_of_the_engine(
    generation: str, thinking: bool | None, moonshot: Any, template: Any, openrouter: Any
) -> None:
    assert fields(MOONSHOT, generation, thinking=thinking).get("thinking") == moonshot
    assert fields(OPENROUTER, generation, thinking=thinking).get("reasoning") == openrouter
    for name in SELF_HOSTED:
        sent = fields(ENGINES[name], generation, thinking=thinking)
        assert sent.get("chat_template_kwargs") == template
        assert not {"thinking", "reasoning"} & sent.keys()


@pytest.mark.parametrize("generation", ["k2.6", "k2.7", "unknown"])
@pytest.mark.parametrize(
    ("thinking", "keep", "moonshot", "template"),
    [
        (True, True, KEPT, {"thinking": True, "preserve_thinking": True}),
        (None, True, KEPT, {"thinking": True, "preserve_thinking": True}),
        (True, False, ON, {"thinking": True, "preserve_thinking": False}),
        (None, False, ON, {"thinking": True, "preserve_thinking": False}),
    ],
)
def test_reasoning_is_kept_where_it_can_be_chosen(
    generation: str, thinking: bool | None, keep: bool, moonshot: Any, template: Any
) -> None:
    options = {"thinking": thinking, "keep_reasoning": keep}

    assert fields(MOONSHOT, generation, **options)["thinking"] == moonshot
    assert fields(VLLM, generation, **options)["chat_template_kwargs"] == template


def test_without_thinking_nothing_is_kept() -> None:
    assert fields(MOONSHOT, "k2.6", thinking=False, keep_reasoning=True)["thinking"] == OFF


def test_what_cannot_be_kept_is_reported_and_the_rest_sent() -> None:
    assert fields(MOONSHOT, "k2.5", thinking=True, keep_reasoning=True)["thinking"] == ON
    assert reasons(MOONSHOT, "k2.5", thinking=True, keep_reasoning=True) == [
        "keep_reasoning is not sent: k2.5 keeps the running tool loop's only"
    ]


@pytest.mark.parametrize("generation", ["k2-thinking", "k2.7"])
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_a_model_that_always_thinks_is_not_asked_to_stop(engine: Engine, generation: str) -> None:
    assert (
        not {"thinking", "chat_template_kwargs", "reasoning"}
        & fields(engine, generation, thinking=False).keys()
    )
    assert reasons(engine, generation, thinking=False) == [
        f"thinking is not sent: {generation} always thinks; it cannot be switched off"
    ]


def test_moonshots_k3_cannot_be_asked_to_stop_thinking() -> None:
    assert fields(MOONSHOT, "k3", thinking=False) == {}
    assert "k3 always thinks" in reasons(MOONSHOT, "k3", thinking=False)[0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"thinking": True}, ["thinking is not sent: k2 does not think"]),
        ({"keep_reasoning": True}, ["thinking is not sent: k2 does not think"]),
        ({"thinking": False}, []),
        ({"keep_reasoning": False}, []),
        ({"thinking": False, "keep_reasoning": False}, []),
    ],
)
def test_a_model_that_does_not_think_is_not_asked_to(options: dict[str, Any], told: list[str]) -> None:
    assert fields(VLLM, "k2", **options) == {"temperature": 0.6}
    assert reasons(VLLM, "k2", **options) == told


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_effort_has_one_name(engine: Engine) -> None:
    assert fields(engine, "k3", effort="high") == {"reasoning_effort": "high"}


# --- the rest ----------------------------------------------------------------------------------------


def test_every_option_becomes_its_field() -> None:
    options: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 7,
        "seed": 1,
        "stop": ("a", "b"),
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "response_format": {"type": "json_object"},
        "effort": "high",
        "parallel_tool_calls": False,
        "tool_choice": "required",
        "extra_body": {"top_k": 4},
    }

    assert fields(GENERIC, "unknown", **options) == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "seed": 1,
        "stop": ("a", "b"),
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "response_format": {"type": "json_object"},
        "reasoning_effort": "high",
        "parallel_tool_calls": False,
        "tool_choice": "required",
        "top_k": 4,
    }


@pytest.mark.parametrize("name", [*SELF_HOSTED, "openrouter"])
def test_the_output_limit_has_the_name_the_engine_knows(name: str) -> None:
    assert fields(ENGINES[name], "k2.6", max_output_tokens=7)["max_tokens"] == 7
    assert fields(MOONSHOT, "k2.6", max_output_tokens=7) == {"max_completion_tokens": 7}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("f", {"type": "function", "function": {"name": "f"}}),
        ({"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "f"}}),
    ],
)
def test_a_tool_may_be_chosen_by_its_name(choice: Any, sent: Any) -> None:
    assert fields(GENERIC, "unknown", tool_choice=choice) == {"tool_choice": sent}


@pytest.mark.parametrize(
    "choice", [{"type": "function"}, {"function": {"name": 3}}, {"type": "allowed_tools"}]
)
def test_a_choice_of_a_form_nobody_knows_is_sent_as_it_is(choice: Any) -> None:
    assert fields(GENERIC, "unknown", tool_choice=choice) == {"tool_choice": choice}


def test_a_tool_is_chosen_by_the_name_it_is_sent_with() -> None:
    for choice in ("fs/read", {"type": "function", "function": {"name": "fs/read"}}):
        sent, _ = request_fields(ModelOptions(tool_choice=choice), GENERIC, UNKNOWN, {"fs/read": "fs_read"})
        assert sent == {"tool_choice": {"type": "function", "function": {"name": "fs_read"}}}


def test_fields_of_the_caller_win() -> None:
    extra = {"temperature": 0.7, "chat_template_kwargs": {"a": 1}}

    assert fields(VLLM, "k2.6", temperature=0.5, thinking=True, extra_body=extra) == extra


# --- what a server taught ----------------------------------------------------------------------------


def test_nothing_learned_changes_nothing() -> None:
    given: dict[str, Any] = {"a": 1, "thinking": {"type": "enabled", "keep": "all"}, "tools": []}

    assert with_lessons(given, Learned()) == given


def test_a_refused_field_is_left_out() -> None:
    assert with_lessons({"a": 1, "b": 2}, Learned(dropped={"a", "c"})) == {"b": 2}


def test_a_field_goes_under_its_other_name_in_its_place() -> None:
    learned = Learned(renamed={"max_tokens": "max_completion_tokens"})

    assert list(with_lessons({"a": 1, "max_tokens": 2, "b": 3}, learned).items()) == [
        ("a", 1),
        ("max_completion_tokens", 2),
        ("b", 3),
    ]


def test_a_renamed_field_may_be_refused_too() -> None:
    learned = Learned(renamed={"max_tokens": "limit"}, dropped={"limit"})

    assert with_lessons({"max_tokens": 2}, learned) == {}


def test_another_tool_choice_needs_tools() -> None:
    learned = Learned(tool_choice="none")

    assert with_lessons({"tools": [1], "tool_choice": "auto"}, learned)["tool_choice"] == "none"
    assert with_lessons({"a": 1}, learned) == {"a": 1}


@pytest.mark.parametrize(
    ("thinking", "sent"),
    [
        ({"type": "enabled", "keep": "all"}, {"type": "enabled"}),
        ({"type": "enabled"}, {"type": "enabled"}),
        (3, 3),
    ],
)
def test_thinking_may_be_sent_without_what_it_keeps(thinking: Any, sent: Any) -> None:
    given = {"thinking": thinking}

    assert with_lessons(given, Learned(thinking_without_keep=True)) == {"thinking": sent}
    assert given == {"thinking": thinking}
