"""The verdicts on what vLLM and SGLang really answered, played again byte for byte."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent.dialects import GENERATIONS
from kimi_agent.testing import KimiServer, ReceivedRequest, Reply, error_reply
from tests.e2e.test_doctor import CHAT, GOOD, finding, report_on, verdicts
from tests.recordings import Recording, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimi_agent.doctor import Report

pytestmark = pytest.mark.anyio

FRAMING_HEADERS = {"transfer-encoding", "content-length", "connection", "keep-alive"}
FEW_TOKENS = 10

# The servers had 2,048 tokens of context; streams with usage and raw prompts are not played here.
SMALL = {**GOOD, "context_limit": "warn", "usage": "warn", "raw_completions": "skip"}
UNPARSED = dict.fromkeys(("tool_call", "streamed_call", "parallel_calls"), "fail") | {
    "call_ids": "skip",
    "tool_choice": "warn",
    "agent_loop": "warn",
}


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here: what is found is decided without waiting."""
    return "asyncio"


@cache
def recordings() -> Mapping[tuple[str, str, str], Recording]:
    return {(each.engine, each.config, each.case): each for each in load()}


def played(recording: Recording) -> Reply:
    headers = {name: value for name, value in recording.headers.items() if name not in FRAMING_HEADERS}
    events = [event for event in re.split(r"(?<=\n\n)", recording.body) if event]
    return Reply(
        status=recording.status, headers=headers, body=events if recording.is_stream else recording.body
    )


def case_of(body: dict[str, Any]) -> str:
    """The recorded case that asked what `body` asks."""
    last, choice = body["messages"][-1], body.get("tool_choice")
    if (body.get("max_tokens") or 1000) < FEW_TOKENS:
        return "truncated_text"
    if last["role"] == "tool":
        has_thought = any("reasoning" in message for message in body["messages"])
        return "history_reasoning" if has_thought else "one_call_answer"
    if not body.get("tools"):
        return "who"
    if "Tokyo" in last["content"]:
        # The agent's second turn asks for Tokyo alone; a call for another city does as well.
        return "two_calls" if "Paris" in last["content"] else "second_turn_index"
    if choice is None:
        return "one_call"
    return f"tool_choice_{choice if isinstance(choice, str) else 'named'}"


async def report_of(engine: str, config: str, **asked: Any) -> Report:
    def reply(request: ReceivedRequest) -> Reply:
        case = case_of(request.body)
        names = [f"{case}_stream", case] if request.body.get("stream") else [case]
        # An answer to tool results was not recorded where there were no calls to begin with.
        names += ["who_stream" if request.body.get("stream") else "who"]
        found = recordings()
        return played(next(found[engine, config, name] for name in names if (engine, config, name) in found))

    replies = {
        "/v1/models": played(recordings()[engine, config, "models"]),
        CHAT: reply,
        "/v1/completions": error_reply(404, "Not Found"),
    }
    async with KimiServer(replies=replies) as server:
        return await report_on(server.base_url, **asked)


async def test_vllm_with_its_parser_is_healthy() -> None:
    report = await report_of("vllm-0.32", "parser")

    assert verdicts(report) == SMALL
    assert (report.engine, report.generation, report.context_tokens) == ("vllm", "k2", 2048)


async def test_vllm_without_a_parser_is_told_its_flags() -> None:
    report = await report_of("vllm-0.32", "none")

    raw = {"finish_reasons": "skip", "raw_markers": "skip", "generation": "warn"}
    assert verdicts(report) == {**SMALL, **UNPARSED, **raw, "raw_completions": "warn"}
    assert (
        finding(report, "tool_call").remedy
        == "start vllm with --enable-auto-tool-choice --tool-call-parser kimi_k2"
    )
    assert report.start_command == (
        "vllm serve models/tiny-kimi --trust-remote-code --enable-auto-tool-choice --tool-call-parser kimi_k2"
    )


async def test_sglang_without_a_parser_is_told_its_flag() -> None:
    report = await report_of("sglang-0.5", "none")

    raw = {"raw_markers": "fail", "generation": "warn", "raw_completions": "warn"}
    assert verdicts(report) == {**SMALL, **UNPARSED, **raw}
    assert finding(report, "raw_markers").remedy == "start sglang with --tool-call-parser kimi_k2"


async def test_vllm_with_a_thinking_model_and_both_parsers() -> None:
    report = await report_of("vllm-0.32", "thinking", generation=GENERATIONS["k2-thinking"])

    # vLLM 0.32 puts thoughts into the content of streams whose history holds an assistant message.
    quirks = {"think_tags": "warn", "agent_loop": "warn"}
    assert verdicts(report) == {**SMALL, **quirks, "reasoning_replay": "ok"}
    assert "the model sees it" in finding(report, "reasoning_replay").seen
    assert "not in whole replies" in finding(report, "think_tags").seen


async def test_vllm_with_a_thinking_model_and_no_reasoning_parser() -> None:
    report = await report_of("vllm-0.32", "thinking-toolonly", generation=GENERATIONS["k2-thinking"])

    assert finding(report, "tool_call").verdict == "ok"
    assert finding(report, "think_tags").verdict == "fail"
    assert finding(report, "think_tags").remedy == "start vllm with --reasoning-parser kimi_k2"
    assert report.start_command.endswith(
        "--enable-auto-tool-choice --tool-call-parser kimi_k2 --reasoning-parser kimi_k2"
    )


async def test_vllm_with_a_reasoning_parser_for_a_model_that_does_not_think() -> None:
    report = await report_of("vllm-0.32", "parser-reasoning")

    assert finding(report, "plain_answer").verdict == "fail"
    assert finding(report, "streamed_answer").verdict == "fail"
    assert finding(report, "plain_answer").remedy == (
        "a model that does not think is served without --reasoning-parser kimi_k2"
    )
    assert finding(report, "tool_call").verdict == "ok"
    assert not report.is_healthy


@pytest.mark.parametrize(("config", "key"), [("auth-nokey", None), ("auth-wrongkey", "sk-wrong-wrong")])
async def test_vllm_with_a_key(config: str, key: str | None) -> None:
    report = await report_of("vllm-0.32", config, key=key)

    assert verdicts(report) == {**dict.fromkeys(GOOD, "skip"), "reachable": "ok", "api_key": "fail"}
