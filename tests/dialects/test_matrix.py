"""Each generation on each engine: the exact request body, as the files beside this one show it."""

from __future__ import annotations

import itertools
import json
from typing import Any

import anyio
import pytest

from kimi_agent.dialects import ENGINES, GENERATIONS
from tests.dialects.matrix import HERE, bodies, matrix, path_of
from tests.e2e.dialects import holds_no_null

PAIRS = [*itertools.product(GENERATIONS, ENGINES)]
BOTH_NAMES = {"reasoning", "reasoning_content"}
THOUGHTS = ("Two cities, so two calls.", "Now I know both.")


@pytest.fixture(scope="module")
def sent() -> dict[tuple[str, str], str]:
    return anyio.run(matrix)


def sent_by(generation: str, engine: str) -> dict[str, dict[str, Any]]:
    """The kept bodies of a pair, by the way to ask."""
    return bodies(json.loads(path_of(generation, engine).read_text(encoding="utf-8")))


@pytest.mark.parametrize(("generation", "engine"), PAIRS)
def test_what_is_sent_is_what_the_file_shows(
    generation: str, engine: str, sent: dict[tuple[str, str], str]
) -> None:
    path = path_of(generation, engine)

    assert path.exists(), "run python -m tests.dialects.matrix"
    assert sent[generation, engine] == path.read_text(encoding="utf-8"), (
        "if this is meant, run python -m tests.dialects.matrix and read what it changes"
    )


def test_there_is_no_file_of_a_pair_that_is_gone() -> None:
    files = {path.relative_to(HERE) for path in HERE.rglob("*.json")}

    assert files == {path_of(*pair).relative_to(HERE) for pair in PAIRS}


# --- what must hold in every file, whoever wrote it -----------------------------------------------------


@pytest.mark.parametrize(("generation", "engine"), PAIRS)
def test_no_null_is_sent_and_every_call_is_answered_in_order(generation: str, engine: str) -> None:
    for body in sent_by(generation, engine).values():
        assert holds_no_null(body)
        if "prompt" in body:
            continue
        calls = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
        results = [message for message in body["messages"] if message["role"] == "tool"]
        assert [message["tool_call_id"] for message in results] == calls
        assert [message["content"] for message in results] == ["4 C", "19 C"]
        assert not [message for message in results if "name" in message]


@pytest.mark.parametrize(("generation", "engine"), PAIRS)
def test_ids_are_numbered_where_the_model_reads_them(generation: str, engine: str) -> None:
    messages = sent_by(generation, engine)["plain"]["messages"]
    ids = [call["id"] for call in messages[2]["tool_calls"]]

    if generation == "k3" or engine == "moonshot":
        assert ids == ["call_a1", "call_b2"]
    else:
        assert ids == ["functions.weather_now:0", "functions.weather_now:1"]


@pytest.mark.parametrize(("generation", "engine"), PAIRS)
def test_reasoning_goes_back_under_the_names_the_engine_reads(generation: str, engine: str) -> None:
    messages = sent_by(generation, engine)["plain"]["messages"]
    reasoned = [message for message in messages if BOTH_NAMES & message.keys()]

    assert len(reasoned) == 2
    for message, text in zip(reasoned, THOUGHTS, strict=True):
        told = {name: message[name] for name in BOTH_NAMES & message.keys()}
        assert told == dict.fromkeys(ENGINES[engine].reasoning_fields, text)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_moonshot_is_never_sent_what_it_refuses(generation: str) -> None:
    described = GENERATIONS[generation]
    for body in sent_by(generation, "moonshot").values():
        assert not {"chat_template_kwargs", "reasoning", "skip_special_tokens"} & body.keys()
        assert not ("messages" in body and "max_tokens" in body)
        if described.fixed_sampling:
            assert not {"temperature", "top_p"} & body.keys()
        if described.thinking == "always":
            assert body.get("thinking", {}).get("type") != "disabled"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_thinking_is_asked_for_in_one_dialect(generation: str, engine: str) -> None:
    dialects = {"thinking", "chat_template_kwargs", "reasoning"}
    for body in sent_by(generation, engine).values():
        assert dialects & body.keys() <= {ENGINES[engine].thinking_field}


@pytest.mark.parametrize(("generation", "engine"), PAIRS)
def test_names_that_servers_refuse_are_replaced_everywhere(generation: str, engine: str) -> None:
    for way, body in sent_by(generation, engine).items():
        assert "weather.now" not in json.dumps(body), way


@pytest.mark.parametrize("generation", GENERATIONS)
def test_prompts_rendered_here_do_not_depend_on_the_engine(generation: str) -> None:
    prompts = {sent_by(generation, engine)["completions"]["prompt"] for engine in ENGINES}

    assert len(prompts) == 1
