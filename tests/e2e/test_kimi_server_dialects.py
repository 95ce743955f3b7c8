"""The simulated engine's replies have the shape real engines' replies had, field by field.

Each recorded request is sent to `KimiServer`; status, headers, the fields of every kind of chunk, their
order and types, and the finish reason are compared. Only the words differ: another model wrote them.
"""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from kimi_agent.testing import KimiServer
from tests.recordings import Recording, load

if TYPE_CHECKING:
    from collections.abc import Iterator

ENGINES = {"vllm-0.32": "vllm", "sglang-0.5": "sglang", "llamacpp-xllamacpp-2026.10.11549": "llama.cpp"}
CONFIGS: dict[str, dict[str, Any]] = {
    "parser": {"model": "kimi-k2"},
    "none": {"model": "models/tiny-kimi", "parser": False},
    "thinking": {"model": "kimi-k2", "thinking": True},
    "auth-nokey": {"model": "kimi-k2", "api_key": "secret"},
}

SAME_WORDS = {"wrong_model", "tool_choice_named", "required_without_tools", "unknown_named_tool"}
"""Cases whose error is compared word for word; other errors quote counts of another tokenizer."""

CASES = {
    *(
        "models",
        "version",
        "health",
        "wrong_method",
        "wrong_model",
        "no_model",
        "no_messages",
        "who",
        "who_stream",
    ),
    *("one_call", "one_call_stream", "two_calls", "two_calls_stream", "two_calls_answer", "chain_step2"),
    *("no_argument_tool", "no_argument_tool_stream", "second_turn_index", "parallel_tool_calls_false"),
    *("stream_include_usage", "stream_continuous_usage", "completions", "completions_stream"),
    *("tool_choice_named", "tool_choice_required", "tool_choice_none", "tool_choice_none_stream"),
    *("truncated_text", "truncated_text_stream", "truncated_reasoning", "truncated_reasoning_stream"),
    *("required_without_tools", "unknown_named_tool", "auto_without_tools", "empty_tools_list"),
    *("max_tokens_too_big", "prompt_too_long", "completions_too_long"),
}
OTHERWISE = {
    # The small model ran into its token limit under these grammars.
    "sglang-0.5/parser/tool_choice_named",
    "sglang-0.5/none/tool_choice_named",
    "sglang-0.5/none/tool_choice_required",
}
RECORDINGS = [
    recording
    for recording in load()
    if recording.engine in ENGINES
    and recording.config in CONFIGS
    and recording.case in CASES
    and recording.id not in OTHERWISE
]

FRAMING = {"content-length", "transfer-encoding", "connection", "keep-alive"}
MODEL_FILE = {"meta", "details"}
"""Fields that describe the weights' file, which a simulated model does not have."""


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[tuple[str, str], KimiServer]]:
    found: dict[tuple[str, str], KimiServer] = {}
    for engine, config in {(recording.engine, recording.config) for recording in RECORDINGS}:
        server = KimiServer(ENGINES[engine], context_length=2048, **CONFIGS[config])
        server.start()
        found[engine, config] = server
    yield found
    for server in found.values():
        server.close()


def exchange(server: KimiServer, recording: Recording) -> tuple[int, dict[str, str], str]:
    address = urlsplit(server.base_url)
    client = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    body = json.dumps(recording.request) if recording.method == "POST" else None
    client.request(recording.method, recording.path, body, {"content-type": "application/json"})
    response = client.getresponse()
    text = response.read().decode()
    client.close()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, text


def without_framing(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in FRAMING}


def shape(value: Any, name: str = "") -> Any:
    """Types instead of values, with the order of the fields; of a list the first item."""
    if name in MODEL_FILE:
        return "…"
    if isinstance(value, dict):
        return [(key, shape(each, key)) for key, each in value.items()]  # type: ignore[misc]
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]  # type: ignore[misc]
    return None if value is None else type(value).__name__


def kind_of(chunk: dict[str, Any], place: int) -> str:
    if place == 0:
        return "first"
    if not chunk["choices"]:
        return "usage"
    choice = chunk["choices"][0]
    if choice["finish_reason"]:
        return "finish"
    delta = choice.get("delta", {})
    if calls := delta.get("tool_calls"):
        return "call head" if calls[0].get("id") else "call"
    return "reasoning" if delta.get("reasoning") or delta.get("reasoning_content") else "text"


def chunk_shapes(body: str) -> dict[str, Any]:
    events = [json.loads(line[6:]) for line in body.split("\n") if line.startswith("data: {")]
    return {kind_of(event, place): shape(event) for place, event in enumerate(events)}


def finish_reasons(body: str) -> list[str]:
    lines = [line.removeprefix("data: ") for line in body.split("\n")]
    choices = [
        choice for line in lines if line.startswith("{") for choice in json.loads(line).get("choices", [])
    ]
    return [choice["finish_reason"] for choice in choices if choice["finish_reason"]]


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.id)
def test_a_reply_has_the_shape_of_the_recorded_one(
    recording: Recording, servers: dict[tuple[str, str], KimiServer]
) -> None:
    status, headers, body = exchange(servers[recording.engine, recording.config], recording)

    assert status == recording.status
    assert without_framing(headers) == without_framing(recording.headers)
    assert finish_reasons(body) == finish_reasons(recording.body)
    if recording.is_stream:
        assert chunk_shapes(body) == chunk_shapes(recording.body)
        assert body.rstrip().endswith("data: [DONE]")
    elif body.startswith("{"):
        assert shape(json.loads(body)) == shape(json.loads(recording.body))
    if status != 200 and recording.case in SAME_WORDS:
        assert body == recording.body


def test_the_cases_are_there() -> None:
    assert len(RECORDINGS) > 200
