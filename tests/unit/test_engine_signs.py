"""Which engine a server is, from what it shows anyway."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent._core.engine_signs import engine_of_host, engine_of_models, engine_of_reply
from tests.recordings import load

if TYPE_CHECKING:
    from tests.recordings import Recording

RECORDED = {"vllm-0.32": "vllm", "sglang-0.5": "sglang", "llamacpp-xllamacpp-2026.10.11549": "llama.cpp"}


def first_json(recording: Recording) -> Any:
    """The first object of an answer."""
    if not recording.is_stream:
        return json.loads(recording.body)
    match = re.search(r"data: (\{.*\})", recording.body)
    return json.loads(match[1]) if match else {}


@pytest.mark.parametrize(
    ("host", "engine"),
    [
        ("api.moonshot.ai", "moonshot"),
        ("api.moonshot.cn", "moonshot"),
        ("api.kimi.com", "moonshot"),
        ("eu.api.moonshot.ai", "moonshot"),
        ("openrouter.ai", "openrouter"),
        ("notopenrouter.ai", None),
        ("openrouter.ai.example.com", None),
        ("127.0.0.1", None),
        ("", None),
    ],
)
def test_a_host_tells_its_engine(host: str, engine: str | None) -> None:
    found = engine_of_host(host)

    assert (found and found.name) == engine


@pytest.mark.parametrize(
    ("entries", "engine"),
    [
        ([], None),
        ([{"id": "a"}], None),
        ([{"id": "a", "owned_by": None}], None),
        ([{"id": "a", "owned_by": ["vllm"]}], None),
        ([{"id": "a", "owned_by": "somebody"}], None),
        ([{"id": "a", "owned_by": "vllm"}], "vllm"),
        ([{"id": "a", "owned_by": "vLLM"}], "vllm"),
        ([{"id": "a", "owned_by": "somebody"}, {"id": "b", "owned_by": "sglang"}], "sglang"),
        ([{"id": "a", "owned_by": "llamacpp"}], "llama.cpp"),
        ([{"id": "a", "owned_by": "moonshot"}], "moonshot"),
        ([{"id": "a", "owned_by": "tensorrt_llm"}], "tensorrt-llm"),
        ([{"id": "a", "owned_by": "lmdeploy"}], "lmdeploy"),
    ],
)
def test_a_list_of_models_tells_its_engine(entries: list[Any], engine: str | None) -> None:
    found = engine_of_models(entries)

    assert (found and found.name) == engine


REPLIES: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({"choices": []}, None),
    ({"choices": None}, None),
    ({"choices": ["odd"]}, None),
    ({"choices": [{"delta": {}}]}, None),
    ({"system_fingerprint": None}, None),
    ({"system_fingerprint": "fp_44709d6fcb"}, None),
    ({"system_fingerprint": "fpv0_ab12"}, None),
    ({"system_fingerprint": "vllm-0.32.0-76edd956"}, "vllm"),
    ({"system_fingerprint": "b6096-25726898"}, "llama.cpp"),
    ({"prompt_token_ids": None, "choices": []}, "vllm"),
    ({"kv_transfer_params": None}, "vllm"),
    ({"choices": [{"matched_stop": None, "delta": {}}]}, "sglang"),
    ({"timings": {"cache_n": 0}}, "llama.cpp"),
]


@pytest.mark.parametrize(("chunk", "engine"), REPLIES)
def test_a_reply_tells_its_engine(chunk: Any, engine: str | None) -> None:
    found = engine_of_reply(chunk)

    assert (found and found.name) == engine


def test_the_first_object_of_every_recorded_reply_tells_its_engine() -> None:
    seen = 0
    for recording in load():
        if recording.method != "POST" or recording.status != 200:
            continue
        first = first_json(recording)
        if not first or "error" in first:
            continue
        found = engine_of_reply(first)
        assert found is not None, recording.id
        assert found.name == RECORDED[recording.engine], recording.id
        seen += 1

    assert seen > 900


def test_every_recorded_list_of_models_tells_its_engine() -> None:
    lists = [each for each in load() if each.path == "/v1/models" and each.status == 200]

    assert len(lists) > 8
    for recording in lists:
        found = engine_of_models(json.loads(recording.body)["data"])
        assert found is not None
        assert found.name == RECORDED[recording.engine]
