"""What can go wrong, and where a program branches.

    python examples/error_handling.py

The servers are simulated, so that each failure is there when it is asked for.
"""

from __future__ import annotations

import anyio

from kimi_agent import (
    KimiAgent,
    LimitError,
    ModelNotFoundError,
    QuotaExhaustedError,
    RetryScheduled,
    RunLimits,
    TransportConnectionError,
    tool,
)
from kimi_agent.testing import KimiServer, adaptive_reply, error_reply, tool_call


@tool
async def next_page(page: int) -> str:
    """One page of a report that never ends.

    Args:
        page: Page number, from 1.
    """
    return f"Page {page}. It goes on on page {page + 1}."


async def wrong_model_name() -> None:
    """The error says what the server has, and which of these was probably meant."""
    async with (
        KimiServer(model="kimi-k2-instruct") as server,
        KimiAgent("kimi-k2", base_url=server.base_url) as agent,
    ):
        try:
            await agent.run("Hello")
        except ModelNotFoundError as error:
            print(f"wrong model:  available {error.available}, suggestion {error.suggestion!r}")


async def no_server() -> None:
    """The error names the address; `max_retries=0` gives up at once."""
    async with KimiAgent(
        "kimi-k2", base_url="http://127.0.0.1:9/v1", limits=RunLimits(max_retries=0)
    ) as agent:
        try:
            await agent.run("Hello")
        except TransportConnectionError as error:
            print(f"no server:    {str(error).partition('. ')[0]}")


async def overloaded_for_a_moment() -> None:
    """Failures that may pass are retried, and each retry is an event."""
    replies = [
        error_reply(
            429, "The engine is currently overloaded", type="engine_overloaded_error", retry_after_s=0.1
        ),
        adaptive_reply("Hello!"),
    ]
    async with (
        KimiServer(replies=replies) as server,
        KimiAgent("kimi-k2", base_url=server.base_url) as agent,
        agent.stream("Hello") as run,
    ):
        async for event in run:
            if isinstance(event, RetryScheduled):
                print(f"overloaded:   {type(event.error).__name__}, again in {event.delay_s} s")
    print(f"              then: {run.result.text}")


async def no_money_left() -> None:
    """Failures that will not pass are raised at once."""
    refusal = error_reply(429, "You exceeded your current quota", type="exceeded_current_quota_error")
    async with KimiServer(replies=refusal) as server, KimiAgent("kimi-k2", base_url=server.base_url) as agent:
        try:
            await agent.run("Hello")
        except QuotaExhaustedError as error:
            print(f"no quota:     status {error.status_code}, retryable {error.retryable}")
        print(f"              requests sent: {len(server.requests)}")


async def too_many_steps() -> None:
    """A limit keeps what was done: `error.result.messages` is a history to go on from."""
    replies = [adaptive_reply(tool_calls=[tool_call("next_page", {"page": page})]) for page in (1, 2, 3)]
    async with (
        KimiServer(replies=[*replies, adaptive_reply("It is long.")]) as server,
        KimiAgent(
            "kimi-k2", tools=[next_page], base_url=server.base_url, limits=RunLimits(max_steps=3)
        ) as agent,
    ):
        try:
            await agent.run("Read the whole report.")
        except LimitError as error:
            print(f"step limit:   {type(error).__name__} after {len(error.result.steps)} steps")
            result = await agent.run("Stop here: what do you have?", history=error.result.messages)
            print(f"              then: {result.text}")


async def main() -> None:
    """Run into each of them."""
    await wrong_model_name()
    await no_server()
    await overloaded_for_a_moment()
    await no_money_left()
    await too_many_steps()


if __name__ == "__main__":
    anyio.run(main)
