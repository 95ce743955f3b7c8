"""The transports that agents opened in the running event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import anyio.lowlevel

if TYPE_CHECKING:
    from kimi_agent.transport import Transport

# Connections belong to the event loop they were opened in, and an agent may see several loops.
_TRANSPORTS: anyio.lowlevel.RunVar[WeakKeyDictionary[object, Transport]] = anyio.lowlevel.RunVar(
    "kimi_agent transports"
)


def transports() -> WeakKeyDictionary[object, Transport]:
    """The running event loop's transports by the agent that opened them."""
    found = _TRANSPORTS.get(None)
    if found is None:
        found = WeakKeyDictionary[object, "Transport"]()
        _TRANSPORTS.set(found)
    return found
