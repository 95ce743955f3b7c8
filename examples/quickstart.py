"""Ask for the weather in two cities and watch everything that happens.

    python examples/quickstart.py

Without KIMI_BASE_URL this starts a simulated engine on this machine and says so. With a server of your own,
and KIMI_MODEL and KIMI_API_KEY where it needs them:

    KIMI_BASE_URL=http://127.0.0.1:8000/v1 python examples/quickstart.py
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Literal

import anyio

from kimi_agent import (
    Event,
    KimiAgent,
    KimiAgentError,
    ReasoningDelta,
    RetryScheduled,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolStarted,
    tool,
)
from kimi_agent.testing import KimiServer

QUESTION = "What is the weather in Paris and Tokyo?"
TEMPERATURES = {"Paris": 21, "Tokyo": 26}

BOLD, GREY, STRUCK_THROUGH, RED, GREEN, YELLOW, CYAN = "1", "2", "2;9", "31", "32", "33", "36"


@tool
async def get_weather(city: str, unit: Literal["C", "F"] = "C") -> dict[str, str | int]:
    """Current weather of a city.

    Args:
        city: City name, in English.
        unit: Temperature unit.
    """
    # A real tool would ask a weather service here. Calls run side by side: Tokyo does not wait for Paris.
    await anyio.sleep(0.6 if city == "Paris" else 0.2)
    celsius = TEMPERATURES.get(city, 18)
    temperature = celsius if unit == "C" else round(celsius * 9 / 5 + 32)
    return {"weather": "Sunny", "city": city, "temperature": temperature, "unit": unit}


class Screen:
    """Shows events, one a line: in colour on a terminal, as plain text anywhere else."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self._open_label = ""
        self._open_text = ""
        """What has been streamed into the line that is still open."""

    def show(self, event: Event) -> None:
        """What `event` means to a reader; events that tell nothing new are passed over."""
        match event:
            case ReasoningDelta(text=text) if text:
                self._stream("reasoning", text, GREY)
            case TextDelta(text=text):
                self._stream("text", text, BOLD)
            case TextReset(text=text):
                self._redraw("text", text, STRUCK_THROUGH)
                self.line("text_reset", "the text above was not the answer: it is withdrawn", YELLOW)
            case ToolStarted(call=call):
                self.line("tool_call", f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}", CYAN)
            case ToolFinished(result=result, is_error=is_error):
                self.line("tool_result", result, RED if is_error else GREEN)
            case RetryScheduled(error=error, delay_s=delay_s):
                self.line("retry", f"in {delay_s:.1f} s, because: {error}", YELLOW)
            case _:
                pass

    def line(self, label: str, text: str, style: str) -> None:
        """A whole line of its own."""
        self._end_line()
        print(self._styled(f"{label:11}", style), text, flush=True)

    def answer(self, text: str) -> None:
        """The answer, in place of its streamed text where a terminal can do that."""
        if self._is_terminal and self._open_text:
            self._redraw("answer", text, GREEN)
            self._end_line()
        else:
            self.line("answer", text, GREEN)

    def _stream(self, label: str, text: str, style: str) -> None:
        if self._open_label != label:
            self._end_line()
            self._open_label = label
            print(self._styled(f"{label:11}", style), end=" ")
        self._open_text += text
        print(text, end="", flush=True)

    def _redraw(self, label: str, text: str, style: str) -> None:
        if self._is_terminal and self._open_text:
            columns = shutil.get_terminal_size().columns
            lines = f"{label:11} {self._open_text}".split("\n")
            rows_above = sum(max(1, -(-len(line) // columns)) for line in lines) - 1
            up = f"\x1b[{rows_above}A" if rows_above else ""
            is_struck = style == STRUCK_THROUGH
            head = self._styled(f"{label:11}", GREY if is_struck else style)
            print(f"\r{up}\x1b[J{head} {self._styled(text, style) if is_struck else text}", end="")

    def _end_line(self) -> None:
        if self._open_label:
            self._open_label = self._open_text = ""
            print()

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._is_terminal else text


async def ask(base_url: str, model: str | None = None) -> None:
    """Stream one turn to the screen."""
    screen = Screen()
    screen.line("prompt", QUESTION, BOLD)
    async with (
        KimiAgent(model, tools=[get_weather], base_url=base_url) as agent,
        agent.stream(QUESTION) as run,
    ):
        async for event in run:
            screen.show(event)
    usage = run.result.usage
    screen.answer(run.result.text)
    print(
        f"\n{usage.requests} requests, {len(run.result.tool_calls)} tool calls, "
        f"{usage.input_tokens} tokens in, {usage.output_tokens} out"
    )


async def main() -> None:
    """Ask the configured server, or a simulated one."""
    if base_url := os.environ.get("KIMI_BASE_URL"):
        print(f"Server: {base_url}\n")
        await ask(base_url)
        return
    async with KimiServer(chunk_delay_s=0.03) as server:
        print(f"No KIMI_BASE_URL is set, so a simulated engine was started at {server.base_url}.")
        print("It follows rules and holds no neural network: set KIMI_BASE_URL to ask a real Kimi.\n")
        await ask(server.base_url, model="kimi-simulated")


if __name__ == "__main__":
    try:
        anyio.run(main)
    except KimiAgentError as error:
        sys.exit(f"\n{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
