"""The verdicts of `examine` on engines that run a real model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kimi_agent._runtime.openai_transport import OpenAITransport
from kimi_agent.dialects import GENERATIONS
from kimi_agent.doctor import CHECKS, Asked, Finding, Report, examine

if TYPE_CHECKING:
    from kimi_agent.dialects import Generation
    from tests.engines.weather import Served

pytestmark = pytest.mark.anyio

LONGEST_S = 120
# The temperature that Kimi-K2-Thinking wants makes a model this small ramble.
K2_THINKING = replace(GENERATIONS["k2-thinking"], temperature=0.0)
PROBE_S = 30
NAMES = [check.name for check in CHECKS]
# The models have 2,048 tokens of context.
GOOD = dict.fromkeys(NAMES, "ok") | {"context_limit": "warn"}
NO_THOUGHTS = {"reasoning_replay": "skip"}
# What each engine does by design, with its parser on.
OTHERWISE = {
    "llama.cpp": {"tool_choice": "warn"},
    "vllm": {"cached_tokens": "warn"},
}
# vLLM 0.32 puts thoughts into the content of streams whose history holds an assistant message.
THINKING_OTHERWISE = {
    "llama.cpp": OTHERWISE["llama.cpp"],
    "vllm": {**OTHERWISE["vllm"], "think_tags": "warn", "agent_loop": "warn"},
}


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here: what is found is decided without waiting."""
    return "asyncio"


async def report_on(base_url: str, **asked: Any) -> Report:
    with anyio.fail_after(LONGEST_S):
        return await examine(
            Asked(has_key=False, **asked),
            lambda url: OpenAITransport.connect(base_url=url, api_key="none"),
            base_url,
            timeout_s=PROBE_S,
        )


def verdicts(report: Report) -> dict[str, str]:
    return {finding.check: finding.verdict for finding in report.findings}


def finding(report: Report, check: str) -> Finding:
    return next(each for each in report.findings if each.check == check)


async def test_a_server_with_its_parser_is_healthy(engine: str, plain: Served) -> None:
    report = await report_on(plain.base_url)

    assert verdicts(report) == {**GOOD, **NO_THOUGHTS, **OTHERWISE[engine]}
    assert report.is_healthy
    assert (report.engine, report.generation, report.context_tokens) == (engine, "k2", 2048)
    assert finding(report, "tool_call").seen == 'get_weather({"city": "Paris"})'
    assert finding(report, "call_ids").seen == "functions.get_weather:0, functions.get_weather:1"


async def test_a_server_with_a_thinking_model_is_healthy(engine: str, thinking: Served) -> None:
    report = await report_on(thinking.base_url, generation=K2_THINKING)

    assert verdicts(report) == {**GOOD, **THINKING_OTHERWISE[engine]}
    # The thought of the history makes the prompt longer, so the model sees it.
    assert "the model sees it" in finding(report, "reasoning_replay").seen


async def test_a_thinking_model_under_the_name_of_another_is_noticed(thinking: Served) -> None:
    report = await report_on(thinking.base_url)

    assert finding(report, "reasoning_field").verdict == "warn"
    assert "--generation k2-thinking" in finding(report, "reasoning_field").remedy
    assert report.is_healthy


async def test_a_wrong_model_name_is_answered_with_the_right_one(engine: str, plain: Served) -> None:
    report = await report_on(plain.base_url, model="moonshotai/Kimi-K2-Instruct")

    # llama.cpp serves whatever name it is asked for.
    verdict = "warn" if engine == "llama.cpp" else "fail"
    assert verdicts(report) == {**GOOD, **NO_THOUGHTS, **OTHERWISE[engine], "model": verdict}
    assert "--model kimi-k2" in finding(report, "model").remedy


@pytest.mark.parametrize("generation", [GENERATIONS["k2"], K2_THINKING], ids=["plain", "thinking"])
async def test_raw_prompts_work(plain: Served, thinking: Served, generation: Generation) -> None:
    served = thinking if generation is K2_THINKING else plain

    report = await report_on(served.base_url, generation=generation, api="completions")

    about_chat = {check.name for check in CHECKS if check.chat_only}
    checked = {name: verdict for name, verdict in verdicts(report).items() if name not in about_chat}
    assert {verdicts(report)[name] for name in about_chat} == {"skip"}
    assert checked.pop("raw_completions") == "skip"
    assert checked.pop("context_limit") == "warn"
    assert checked.pop("cached_tokens") in ("ok", "warn")
    assert set(checked.values()) == {"ok"}
    assert finding(report, "agent_loop").seen == "2 turns, 2 calls, 4 requests, no repairs"


# llama.cpp always parses.
@pytest.mark.parametrize("engine", [pytest.param("vllm", marks=pytest.mark.live)], indirect=True)
async def test_a_server_without_a_parser_is_told_the_flags(plain: Served) -> None:
    if plain.raw_base_url is None:
        pytest.skip("no server without a parser is named; see tests/engines/README.md")

    report = await report_on(plain.raw_base_url)

    assert finding(report, "tool_call").verdict == "fail"
    assert "--enable-auto-tool-choice --tool-call-parser kimi_k2" in finding(report, "tool_call").remedy
    assert finding(report, "agent_loop").verdict == "warn"
    assert not report.is_healthy
