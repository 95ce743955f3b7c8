"""A simulated engine and scripted replies, for tests that want a real HTTP server."""

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

__all__ = [
    "Close",
    "Delay",
    "Hang",
    "KimiServer",
    "ReceivedRequest",
    "Reply",
    "Reset",
    "ScriptedReply",
    "adaptive_reply",
    "chunk",
    "error_reply",
    "json_reply",
    "message_reply",
    "sse_reply",
    "stream_reply",
    "text_reply",
    "tool_call",
]
