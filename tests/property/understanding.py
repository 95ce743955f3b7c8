"""What a user gets from the chunks of one reply, in a form that tests compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimi_agent._core.reply_reader import ReplyReader
from kimi_agent._core.settle import settle
from kimi_agent._core.settled import Asked, SettledReply
from kimi_agent.events import ModelEvent, ReasoningDelta, TextDelta, ToolCallDelta

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kimi_agent.json_types import JsonObject
    from kimi_agent.messages import ToolSpec


@dataclass(frozen=True, kw_only=True)
class Understood:
    """The events of a reply, pieces of one text joined, and what it means."""

    events: list[ModelEvent]
    reply: SettledReply


def understood(chunks: Iterable[JsonObject], tools: Mapping[str, ToolSpec]) -> Understood:
    """What comes of `chunks`, after which the server said that it was done."""
    reader = ReplyReader(tools)
    events: list[ModelEvent] = []
    for chunk in chunks:
        events += reader.feed(chunk)
    reader.end()
    closing, reply = reader.close()
    return Understood(
        events=merged_events([*events, *closing]), reply=settle(reply, Asked(step=1, tools=tools))
    )


def merged_events(events: Iterable[ModelEvent]) -> list[ModelEvent]:
    """`events` with neighbouring pieces of one text joined."""
    joined: list[ModelEvent] = []
    for event in events:
        match joined[-1:], event:
            case [TextDelta(text=before)], TextDelta(text=text):
                joined[-1] = TextDelta(text=before + text)
            case [ReasoningDelta(text=before)], ReasoningDelta(text=text):
                joined[-1] = ReasoningDelta(text=before + text)
            case [ToolCallDelta(index=one, arguments=before)], ToolCallDelta(index=other, arguments=text) if (
                one == other
            ):
                joined[-1] = ToolCallDelta(index=one, arguments=before + text)
            case _:
                joined.append(event)
    return joined
