"""Which of a server's models is meant."""

from __future__ import annotations

import pytest

from kimi_agent._core.model_choice import meant_model, only_model
from kimi_agent.errors import ConfigurationError

URL = "http://127.0.0.1:8000/v1"


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
