"""A server without tool-call parser: its calls arrive as text, and are made calls again.

    python examples/raw_token_server.py

The server is simulated here, an SGLang that was started without `--tool-call-parser kimi_k2`. First comes
what any client gets from it, then what an agent makes of the same reply.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import anyio
import openai

from kimi_agent import KimiAgent, tool
from kimi_agent.testing import KimiServer

QUESTION = "What is the weather in Paris and Tokyo?"


@tool
async def get_weather(city: str) -> dict[str, str | int]:
    """Current weather of a city.

    Args:
        city: City name, in English.
    """
    return {"city": city, "weather": "Sunny", "temperature": 21}


async def show_plain_reply(base_url: str) -> None:
    """Print the content of one reply as the openai client hands it over."""
    declarations: list[Any] = [get_weather.spec.to_json()]
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none") as client:
        completion = await client.chat.completions.create(
            model="kimi-simulated",
            messages=[{"role": "user", "content": QUESTION}],
            tools=declarations,
        )
    message = completion.choices[0].message
    print(f"content:    {message.content}")
    print(f"tool_calls: {message.tool_calls}")


async def show_agent_run(base_url: str) -> None:
    """Print the answer, the calls that were made, and what had to be repaired for them."""
    async with KimiAgent(tools=[get_weather], base_url=base_url) as agent:
        result = await agent.run(QUESTION)
    print(f"answer:     {result.text}")
    for call in result.tool_calls:
        print(f"call:       {call.name} {call.arguments} -> {call.result}")
    for repair in result.repairs:
        print(f"repair:     {repair.kind} ({repair.where}): {repair.detail}")


async def main() -> None:
    """Ask the same server in both ways."""
    async with KimiServer("sglang", parser=False) as server:
        print("A plain client sees:\n")
        await show_plain_reply(server.base_url)
        print("\nAn agent makes of it:\n")
        await show_agent_run(server.base_url)


if __name__ == "__main__":
    # What the package has to say about the server.
    logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format="log:        %(message)s")
    anyio.run(main)
