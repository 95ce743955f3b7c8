"""The types a user of `KimiAgent` sees; pyright reads this file, nothing runs it."""

from __future__ import annotations

from typing import Any, assert_type

import openai

from kimi_agent import (
    Approval,
    Event,
    KimiAgent,
    ModelOptions,
    Repair,
    Run,
    RunLimits,
    RunResult,
    StepRecord,
    ToolCall,
    ToolCallRecord,
    Usage,
)
from kimi_agent.dialects import ENGINES
from kimi_agent.messages import Message


async def approve(call: ToolCall) -> Approval:
    assert_type(call.arguments, dict[str, Any])
    return Approval.deny("not today") if call.name == "delete" else Approval.allow()


def every_way_to_make_an_agent() -> None:
    assert_type(KimiAgent(), KimiAgent)
    KimiAgent("kimi-k2", base_url="http://127.0.0.1:8000/v1", api_key="k", engine="vllm")
    KimiAgent(model=None, client=openai.AsyncOpenAI(), engine=ENGINES["moonshot"])
    KimiAgent(
        "kimi-k2",
        tools=[len],
        instructions="Be brief.",
        options=ModelOptions(temperature=0.5, effort="high", tool_choice="required", stop=("a",)),
        limits=RunLimits(max_steps=3, tool_timeout_s=None),
        approve=approve,
    )


def wrong_ways_to_make_an_agent() -> None:
    KimiAgent("kimi-k2", "http://127.0.0.1:8000/v1")  # pyright: ignore[reportCallIssue]
    KimiAgent(tools=["len"])  # pyright: ignore[reportArgumentType]
    KimiAgent(unheard_of=1)  # pyright: ignore[reportCallIssue]
    ModelOptions(0.5)  # pyright: ignore[reportCallIssue]
    RunLimits(max_steps="3")  # pyright: ignore[reportArgumentType]


async def what_running_gives(agent: KimiAgent) -> None:
    assert_type(await agent.run("Hi"), RunResult)
    assert_type(agent.run_sync([{"type": "text", "text": "Hi"}]), RunResult)
    result = await agent.run(None, history=[{"role": "user", "content": "Hi"}], deps=3)

    assert_type(result.text, str)
    assert_type(result.reasoning, str | None)
    assert_type(result.output, Any)
    assert_type(result.messages, list[Message])
    assert_type(result.new_messages, list[dict[str, Any]])
    assert_type(result.tool_calls, list[ToolCallRecord])
    assert_type(result.steps, list[StepRecord])
    assert_type(result.usage, Usage)
    assert_type(result.finish_reason, str)
    assert_type(result.repairs, list[Repair])
    assert_type(result.usage + result.usage, Usage)
    assert_type(await agent.run("And now?", history=result.messages), RunResult)
    await agent.run(3)  # pyright: ignore[reportArgumentType]
    result.text = "changed"  # pyright: ignore[reportAttributeAccessIssue]


async def what_streaming_gives(agent: KimiAgent) -> None:
    async with agent.stream("Hi", history=[]) as run:
        assert_type(run, Run)
        async for event in run:
            assert_type(event, Event)
        assert_type(run.text, str)
        assert_type(run.result, RunResult)

    async with agent.stream("Hi") as run:
        async for text in run.text_deltas(on_reset=print, final_only=True):
            assert_type(text, str)


async def what_an_agent_is_as_a_block() -> None:
    async with KimiAgent("kimi-k2") as agent:
        assert_type(agent, KimiAgent)
    await agent.aclose()
