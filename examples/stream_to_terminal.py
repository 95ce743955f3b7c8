"""Show the answer while it is written, and wipe text that turns out not to be the answer.

    KIMI_BASE_URL=http://127.0.0.1:8000/v1 python examples/stream_to_terminal.py "Weather in Oslo and Lima?"

A model often says something before it calls a tool ("Let me look that up"). That text is withdrawn once the
call arrives. A terminal can wipe it; a file or a pipe cannot, so there only final text is written.
"""

from __future__ import annotations

import shutil
import sys

import anyio

from kimi_agent import KimiAgent, KimiAgentError, tool


@tool
async def get_weather(city: str) -> dict[str, str | int]:
    """Current weather of a city.

    Args:
        city: City name, in English.
    """
    return {"city": city, "weather": "Sunny", "temperature": 21}


def wipe(text: str) -> None:
    """Take `text` off the screen again, provided that it began at the start of a line."""
    columns = shutil.get_terminal_size().columns
    rows_above = sum(max(1, -(-len(line) // columns)) for line in text.split("\n")) - 1
    up = f"\x1b[{rows_above}A" if rows_above else ""
    print(f"\r{up}\x1b[J", end="", flush=True)


async def main() -> None:
    """Stream the answer to the question on the command line."""
    question = " ".join(sys.argv[1:]) or "What is the weather in Paris and Tokyo?"
    is_terminal = sys.stdout.isatty()
    async with (
        KimiAgent(tools=[get_weather]) as agent,
        agent.stream(question) as run,
    ):
        async for text in run.text_deltas(on_reset=wipe if is_terminal else None, final_only=not is_terminal):
            print(text, end="", flush=True)
    print()


if __name__ == "__main__":
    try:
        anyio.run(main)
    except KimiAgentError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
