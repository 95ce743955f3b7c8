"""The models a server lists, asked for within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from kimi_agent.errors import ServerLoadingError, TransportTimeoutError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_agent.json_types import JsonObject
    from kimi_agent.options import RunLimits
    from kimi_agent.transport import Transport

_LOADING_DELAY_S = 2.0


async def listed_models(transport: Transport, limits: RunLimits) -> Sequence[JsonObject]:
    """The entries of the server's list; a server that is still loading is waited for.

    Raises:
        TransportError: it does not list them, or not in time.
    """
    started = anyio.current_time()
    while True:
        try:
            with anyio.fail_after(limits.request_timeout_s):
                return await transport.models()
        except ServerLoadingError:
            if anyio.current_time() - started >= limits.loading_timeout_s:
                raise
            await anyio.sleep(min(_LOADING_DELAY_S, limits.max_retry_delay_s))
        except TimeoutError:
            url = getattr(transport, "base_url", "the server")
            raise TransportTimeoutError(
                f"{url} did not list its models within {limits.request_timeout_s:g} seconds; pass model= "
                "or set KIMI_MODEL"
            ) from None
