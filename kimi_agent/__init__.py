"""Moonshot's Kimi models as tool-calling agents on any OpenAI-compatible server.

The names below are loaded when they are first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kimi_agent._version import __version__

if TYPE_CHECKING:
    from kimi_agent.agent import KimiAgent, Run
    from kimi_agent.dialects import Engine, Generation
    from kimi_agent.errors import (
        AccessDeniedError,
        AuthenticationError,
        ConfigurationError,
        ContentFilteredError,
        ContextTooLongError,
        EngineOverloadedError,
        IncompleteStreamError,
        InvalidHistoryError,
        InvalidRequestError,
        KimiAgentError,
        LimitError,
        LoopDetectedError,
        ModelError,
        ModelNotFoundError,
        ProtocolError,
        QuotaExhaustedError,
        RateLimitedError,
        RequestTooLargeError,
        ServerLoadingError,
        StepLimitError,
        TokenLimitError,
        ToolDefinitionError,
        ToolsUnsupportedError,
        TransportConnectionError,
        TransportError,
        TransportStatusError,
        TransportTimeoutError,
    )
    from kimi_agent.events import (
        Event,
        ReasoningDelta,
        RetryScheduled,
        StepFinished,
        StepStarted,
        TextDelta,
        TextReset,
        ToolCallDelta,
        ToolCallStarted,
        ToolFinished,
        ToolStarted,
    )
    from kimi_agent.messages import ToolCall, ToolSpec
    from kimi_agent.options import ModelOptions, RunLimits
    from kimi_agent.results import Repair, RunResult, StepRecord, ToolCallRecord, Usage
    from kimi_agent.tools import Approval, Tool, ToolContext, ToolError, tool

__all__ = [
    "AccessDeniedError",
    "Approval",
    "AuthenticationError",
    "ConfigurationError",
    "ContentFilteredError",
    "ContextTooLongError",
    "Engine",
    "EngineOverloadedError",
    "Event",
    "Generation",
    "IncompleteStreamError",
    "InvalidHistoryError",
    "InvalidRequestError",
    "KimiAgent",
    "KimiAgentError",
    "LimitError",
    "LoopDetectedError",
    "ModelError",
    "ModelNotFoundError",
    "ModelOptions",
    "ProtocolError",
    "QuotaExhaustedError",
    "RateLimitedError",
    "ReasoningDelta",
    "Repair",
    "RequestTooLargeError",
    "RetryScheduled",
    "Run",
    "RunLimits",
    "RunResult",
    "ServerLoadingError",
    "StepFinished",
    "StepLimitError",
    "StepRecord",
    "StepStarted",
    "TextDelta",
    "TextReset",
    "TokenLimitError",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallRecord",
    "ToolCallStarted",
    "ToolContext",
    "ToolDefinitionError",
    "ToolError",
    "ToolFinished",
    "ToolSpec",
    "ToolStarted",
    "ToolsUnsupportedError",
    "TransportConnectionError",
    "TransportError",
    "TransportStatusError",
    "TransportTimeoutError",
    "Usage",
    "__version__",
    "tool",
]

# Cheap modules first: a name is looked for in this order.
_MODULES = ("errors", "events", "messages", "options", "results", "dialects", "transport", "tools", "agent")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module_name in _MODULES:
            module = import_module(f"{__name__}.{module_name}")
            if hasattr(module, name):
                value: Any = getattr(module, name)
                globals()[name] = value
                return value
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
