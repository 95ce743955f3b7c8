"""What to tell a person about a server that is not set up for the model, or a request it refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kimi_agent._core.json_bytes import to_json
from kimi_agent._core.mending import mended
from kimi_agent.dialects.engine import ENGINES
from kimi_agent.json_types import is_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimi_agent.dialects import Engine, Generation
    from kimi_agent.messages import Message, ToolSpec

_SHOWN_FINDINGS = 8


def parser_flags(engine: Engine, generation: Generation) -> str:
    """The flags that turn on tool calls, for the engine, or for those that have any."""
    format_name = generation.text_format
    if format_name in engine.parser_flags:
        return f"start {engine.name} with {engine.parser_flags[format_name]}"
    known = [
        f"{name}: {other.parser_flags[format_name]}"
        for name, other in ENGINES.items()
        if format_name in other.parser_flags
    ]
    return f"start the server with its tool parser on ({'; '.join(known)})"


def request_findings(messages: Sequence[Message], tools: Mapping[str, ToolSpec]) -> tuple[str, ...]:
    """What a local look at roles, ids and contents of a refused request shows."""
    roles = Counter(str(message.get("role")) for message in messages)
    counted = ", ".join(f"{count} {role}" for role, count in roles.items())
    size = sum(len(to_json(message)) for message in messages)
    largest = max(((len(to_json(message)), place) for place, message in enumerate(messages)), default=(0, 0))
    findings = [
        f"{len(messages)} messages ({counted}) of {size} bytes; messages[{largest[1]}] has {largest[0]}",
        f"{len(tools)} tools: {', '.join(tools) or 'none'}",
    ]
    findings += [f"{repair.where}: {repair.detail}" for repair in mended(messages)[1]]
    findings += _repeated_ids(messages)
    return tuple(findings[:_SHOWN_FINDINGS])


def _repeated_ids(messages: Sequence[Message]) -> list[str]:
    ids: Counter[str] = Counter()
    for message in messages:
        calls: Any = message.get("tool_calls") or ()
        ids.update(str(call.get("id")) for call in calls if is_object(call))
    return [f"the call id {call_id!r} stands {count} times" for call_id, count in ids.items() if count > 1]
