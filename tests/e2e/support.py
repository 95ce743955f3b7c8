"""What the end-to-end tests share: an agent on a scripted server, and a look at what it leaves behind."""

from __future__ import annotations

import dataclasses
import gc
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from kimi_agent import KimiAgent, RunLimits, RunResult
from kimi_agent.testing import KimiServer, ReceivedRequest, adaptive_reply, tool_call

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from kimi_agent import Run
    from kimi_agent.events import Event
    from kimi_agent.testing.server import Script

CHAT = "/v1/chat/completions"
MODELS = "/v1/models"
# Retries as in production, without the waiting.
FAST = RunLimits(max_retry_delay_s=0.005)
LONGEST_S = 15
# Workers of the loops' own pools, which wait for more work and end with the loop.
IDLE_THREADS = ("asyncio_", "AnyIO worker", "Trio thread")


def weather(city: str, unit: str = "C") -> dict[str, Any]:
    """Current weather of a city."""
    return {"city": city, "weather": "Sunny", "unit": unit}


def calls(*named: tuple[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Calls as they stand in a message, with ids as the model numbers them."""
    return [
        tool_call(name, dict(arguments), id=f"functions.{name}:{place}")
        for place, (name, arguments) in enumerate(named)
    ]


def asking_for(*named: tuple[str, Mapping[str, Any]], text: str = "") -> Any:
    """A reply that makes these calls."""
    return adaptive_reply(text or None, tool_calls=calls(*named))


@asynccontextmanager
async def served(
    replies: Script | Mapping[str, Script], **options: Any
) -> AsyncGenerator[tuple[KimiServer, KimiAgent]]:
    """A server that plays `replies` and an agent on it, for a bounded time."""
    limits = options.pop("limits", FAST)
    with anyio.fail_after(LONGEST_S):
        async with (
            KimiServer(replies=replies) as server,
            KimiAgent("kimi-k2", base_url=server.base_url, limits=limits, **options) as agent,
        ):
            yield server, agent


async def drained(run: Run) -> list[Event]:
    """Every event of a run that has not been entered yet."""
    async with run:
        return [event async for event in run]


async def events_of(agent: KimiAgent, prompt: Any = "Hello", **options: Any) -> tuple[list[Event], RunResult]:
    """Everything that one streamed run tells, and its result."""
    run = agent.stream(prompt, **options)
    return await drained(run), run.result


async def result_of(agent: KimiAgent, *, streamed: bool, **options: Any) -> RunResult:
    """The result of one run, asked for in one of the two ways."""
    prompt = options.pop("prompt", "Hello")
    return (await events_of(agent, prompt, **options))[1] if streamed else await agent.run(prompt, **options)


def kinds(events: list[Event]) -> list[str]:
    """The events' tags, a row of the same ones as one."""
    tags = [event.type for event in events]
    return [tag for place, tag in enumerate(tags) if place == 0 or tags[place - 1] != tag]


def chat_requests(server: KimiServer) -> list[ReceivedRequest]:
    """The requests to the model, without those for the list of models."""
    return [request for request in server.requests if request.path == CHAT]


def untimed(result: RunResult) -> RunResult:
    """`result` without what the clock put in."""
    return dataclasses.replace(
        result,
        steps=[dataclasses.replace(step, ttft_s=None, duration_s=0.0) for step in result.steps],
        tool_calls=[dataclasses.replace(call, duration_s=0.0) for call in result.tool_calls],
    )


@asynccontextmanager
async def nothing_left() -> AsyncGenerator[None]:
    """A block after which no task and no thread is there that was not there before."""
    await to_thread.run_sync(int)  # the worker thread that waiting for the server needs
    tasks = {task.id for task in anyio.get_running_tasks()}
    threads = set(threading.enumerate())
    yield
    # Async generators nobody closed warn when they are collected, and warnings are errors here.
    gc.collect()
    left: list[object] = [task for task in anyio.get_running_tasks() if task.id not in tasks]
    left += [
        thread
        for thread in threading.enumerate()
        if thread not in threads and not thread.name.startswith(IDLE_THREADS)
    ]
    assert not left, f"left behind: {left}"


def is_valid_history(messages: list[dict[str, Any]]) -> bool:
    """Whether every call has exactly one result, right after its message and in call order."""
    expected: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if not expected or message["tool_call_id"] != expected.pop(0):
                return False
            continue
        if expected:
            return False
        expected = [call["id"] for call in message.get("tool_calls", ())]
    return not expected


def results_told(request: ReceivedRequest) -> list[str]:
    """The tool results that a request tells the model, in order."""
    return [message["content"] for message in request.body["messages"] if message["role"] == "tool"]
