"""Which of a server's models is meant."""

from __future__ import annotations

from typing import Any

import pytest

from kimi_agent._core.model_choice import context_tokens, meant_model, model_ids, only_model
from kimi_agent.errors import ConfigurationError

URL = "http://127.0.0.1:8000/v1"


def test_the_ids_of_a_list_are_told() -> None:
    assert model_ids([]) == []
    assert model_ids([{"id": "a", "owned_by": "vllm"}, {"id": "b"}]) == ["a", "b"]


@pytest.mark.parametrize(
    ("entry", "tokens"),
    [
        ({}, None),
        ({"max_model_len": 2048}, 2048),
        ({"context_length": 262_144}, 262_144),
        ({"meta": {"n_ctx": 4096}}, 4096),
        ({"meta": None}, None),
        ({"meta": {}}, None),
        ({"max_model_len": None, "context_length": 7}, 7),
        ({"max_model_len": 5, "context_length": 7, "meta": {"n_ctx": 9}}, 5),
        ({"max_model_len": 0}, None),
        ({"max_model_len": -1, "context_length": "7"}, None),
        ({"max_model_len": 2048.0}, None),
    ],
)
def test_a_list_of_models_tells_the_context_length(entry: dict[str, Any], tokens: int | None) -> None:
    entries = [{"id": "other", "max_model_len": 1}, {"id": "kimi-k2", **entry}]

    assert context_tokens(entries, "kimi-k2") == tokens


def test_the_context_length_of_another_model_is_not_taken() -> None:
    assert context_tokens([{"id": "other", "max_model_len": 1}], "kimi-k2") is None


def test_the_only_model_is_taken() -> None:
    assert only_model(["kimi-k2"], URL) == "kimi-k2"


@pytest.mark.parametrize(("available", "word"), [([], "none"), (["a", "b"], "a, b")])
def test_without_one_to_take_the_error_names_the_server_and_the_way_out(
    available: list[str], word: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        only_model(available, URL)

    assert [part for part in (URL, word, "model=", "KIMI_MODEL") if part not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("wanted", "available", "meant"),
    [
        ("kimi-k2", ["moonshotai/Kimi-K2", "other"], "moonshotai/Kimi-K2"),
        ("moonshotai/Kimi-K2/", ["/models/kimi-k2", "other"], "/models/kimi-k2"),
        ("kimi-k2-instuct", ["other", "kimi-k2-instruct"], "kimi-k2-instruct"),
        ("Kimi-K2-Thinking", ["moonshotai/Kimi-K2-Thinking", "b"], "moonshotai/Kimi-K2-Thinking"),
        ("moonshotai/Kimi-K2-Thinking", ["kimi-k2-thinking", "b"], "kimi-k2-thinking"),
        (
            "kimi-k2-thinking",
            ["moonshotai/Kimi-K2-Instruct", "moonshotai/Kimi-K2-Thinking"],
            "moonshotai/Kimi-K2-Thinking",
        ),
        ("gpt", ["kimi-k2"], "kimi-k2"),
        ("gpt", ["kimi-k2", "kimi-k3"], None),
        ("gpt", [], None),
        ("", ["kimi-k2", "kimi-k3"], None),
        ("/", ["kimi-k2"], None),
    ],
)
def test_the_model_that_was_probably_meant_is_found(
    wanted: str, available: list[str], meant: str | None
) -> None:
    assert meant_model(wanted, available) == meant


def test_of_several_with_the_name_one_is_meant() -> None:
    assert meant_model("kimi-k2", ["a/kimi-k2", "b/kimi-k2"]) in ("a/kimi-k2", "b/kimi-k2")
