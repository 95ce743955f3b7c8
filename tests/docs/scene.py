"""A stage for the promised behaviours: an agent with two tools, and a server that plays what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kimi_agent import KimiAgent, TextDelta, TextReset
from kimi_agent.testing import KimiServer, ReceivedRequest, Reply, adaptive_reply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kimi_agent import Event, RunResult
    from kimi_agent.testing import ScriptedReply

CALL_BEGIN, CALL_ARGUMENTS, CALL_END = (
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
)
SECTION_BEGIN, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"


def raw_call(name_and_index: str, arguments: str) -> str:
    """One call as K2 writes it."""
    return f"{CALL_BEGIN}{name_and_index}{CALL_ARGUMENTS}{arguments}{CALL_END}"


def raw_section(*calls: str) -> str:
    """The section of calls that ends a reply."""
    return SECTION_BEGIN + "".join(calls) + SECTION_END


PARIS = raw_call("functions.get_weather:0", '{"city": "Paris"}')
DONE = adaptive_reply("Done.")


@dataclass
class Scene:
    """What happened in one run."""

    executed: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    """The tools that really ran, in the order in which they began."""
    events: list[Event] = field(default_factory=list["Event"])
    requests: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])
    outcome: RunResult | None = None

    @property
    def result(self) -> RunResult:
        """The run's result."""
        assert self.outcome is not None
        return self.outcome

    @property
    def cities(self) -> list[str]:
        """The cities whose weather was really asked for."""
        return [arguments["city"] for name, arguments in self.executed if name == "get_weather"]

    @property
    def shown(self) -> str:
        """All text that was shown, withdrawn or not."""
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def withdrawn(self) -> list[str]:
        """What was taken back."""
        return [event.text for event in self.events if isinstance(event, TextReset)]

    @property
    def repair_kinds(self) -> list[str]:
        """What had to be put right."""
        return [repair.kind for repair in self.result.repairs]

    def tools(self) -> list[Callable[..., Any]]:
        """Functions that note each call."""

        def get_weather(city: str) -> str:
            """Current weather of a city."""
            self.executed.append(("get_weather", {"city": city}))
            return f"Sunny in {city}"

        def save_note(text: str) -> str:
            """Save a note."""
            self.executed.append(("save_note", {"text": text}))
            return "saved"

        return [get_weather, save_note]


async def play(
    replies: Sequence[ScriptedReply], *, scene: Scene | None = None, prompt: str = "Go", **settings: Any
) -> Scene:
    """Stream one run against a server that plays `replies`; `settings` are the agent's."""
    scene = scene if scene is not None else Scene()
    settings.setdefault("tools", scene.tools())
    async with (
        KimiServer(replies=replies) as server,
        KimiAgent("kimi-k2", base_url=server.base_url, **settings) as agent,
    ):
        try:
            async with agent.stream(prompt) as run:
                async for event in run:
                    scene.events.append(event)
            scene.outcome = run.result
        finally:
            scene.requests = server.requests
    return scene


def whole(reply: Callable[[ReceivedRequest], Reply]) -> Reply:
    """`reply` as a server sends it that does not stream, whatever was asked for."""
    return reply(ReceivedRequest(method="POST", path="/v1/chat/completions", body={}))
