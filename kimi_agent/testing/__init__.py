"""A simulated engine and scripted replies, for tests that want a real HTTP server."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kimi_agent.testing.received import ReceivedRequest
from kimi_agent.testing.replies import (
    Close,
    Delay,
    Hang,
    Reply,
    Reset,
    ScriptedReply,
    adaptive_reply,
    chunk,
    error_reply,
    json_reply,
    message_reply,
    sse_reply,
    stream_reply,
    text_reply,
    tool_call,
)
from kimi_agent.testing.server import KimiServer

if TYPE_CHECKING:
    from kimi_agent.testing.checks import check_tool, check_transport
    from kimi_agent.testing.scripted_transport import RecordedTransport, ScriptedTransport, reply_chunks

__all__ = [
    "Close",
    "Delay",
    "Hang",
    "KimiServer",
    "ReceivedRequest",
    "RecordedTransport",
    "Reply",
    "Reset",
    "ScriptedReply",
    "ScriptedTransport",
    "adaptive_reply",
    "check_tool",
    "check_transport",
    "chunk",
    "error_reply",
    "json_reply",
    "message_reply",
    "reply_chunks",
    "sse_reply",
    "stream_reply",
    "text_reply",
    "tool_call",
]

# Loaded when first used: a server alone needs neither the agent nor pydantic.
_MODULES = {
    "RecordedTransport": "scripted_transport",
    "ScriptedTransport": "scripted_transport",
    "check_tool": "checks",
    "check_transport": "checks",
    "reply_chunks": "scripted_transport",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: Any = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
