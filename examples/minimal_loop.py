"""The smallest agent: one tool, one question, one answer.

Start a server first, for example the simulated one, then name it:

    kimi-agent simulate --port 8000
    KIMI_BASE_URL=http://127.0.0.1:8000/v1 python examples/minimal_loop.py
"""

from __future__ import annotations

import sys

import anyio

from kimi_agent import KimiAgent, KimiAgentError, tool


@tool
def add(a: float, b: float) -> float:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


async def main() -> None:
    """Ask once and print what came of it."""
    async with KimiAgent(tools=[add]) as agent:
        result = await agent.run("Add 19.5 and 22.5.")
    for call in result.tool_calls:
        print(f"{call.name}({call.arguments}) -> {call.result}")
    print(result.text)


if __name__ == "__main__":
    try:
        anyio.run(main)
    except KimiAgentError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
