"""A conversation: each question goes on from the messages before it.

    KIMI_BASE_URL=http://127.0.0.1:8000/v1 python examples/chat_with_history.py

Type a question a line; Ctrl-D or an empty line ends the conversation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from kimi_agent import KimiAgent, KimiAgentError, tool

if TYPE_CHECKING:
    from kimi_agent.messages import Message


@tool
async def get_weather(city: str) -> dict[str, str | int]:
    """Current weather of a city.

    Args:
        city: City name, in English.
    """
    return {"city": city, "weather": "Sunny", "temperature": 21}


def next_question() -> str:
    """What the user types, or `""` at the end of input."""
    try:
        return input("you>  ").strip()
    except EOFError:
        return ""


async def main() -> None:
    """Answer questions until there are no more."""
    history: list[Message] = []
    async with KimiAgent(tools=[get_weather], instructions="You answer in one sentence.") as agent:
        while question := await to_thread.run_sync(next_question, abandon_on_cancel=True):
            try:
                result = await agent.run(question, history=history)
            except KimiAgentError as error:
                # The history stays as it was: an unanswered question would stand in front of the next one.
                print(f"error> {error}")
                continue
            history = result.messages
            print(f"kimi> {result.text}")
    print(f"\nThe conversation has {len(history)} messages.")


if __name__ == "__main__":
    anyio.run(main)
