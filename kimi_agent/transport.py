"""How bytes travel: the `Transport` protocol."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from kimi_agent.json_types import JsonObject

END_OF_REPLY: Final[JsonObject] = {"object": "kimi_agent.end_of_reply"}
"""The object a transport yields last, once the server said that the reply is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request to the model."""

    body: bytes
    """The JSON body."""

    stream: bool = False
    """Whether the body asks for a stream."""

    path: Literal["/chat/completions", "/completions"] = "/chat/completions"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    silence_timeout_s: float | None = None
    """Seconds the server may send nothing."""

    connect_timeout_s: float | None = None
    max_reply_bytes: int = 64 * 1024 * 1024

    def decoded(self) -> JsonObject:
        """The body as an object, for transports that do not send bytes."""
        return json.loads(self.body)


class Transport(Protocol):
    """Sends one request and yields what comes back. No policy: it never repeats a request."""

    def stream(self, request: Request) -> AsyncGenerator[JsonObject]:
        """Yield the decoded `data:` objects in order, or the one object of a whole reply.

        `END_OF_REPLY` follows them if the server said that it was done; a stream that just stops is not.
        Closing the generator ends the request at once.

        Raises:
            TransportError: the request failed.
            ProtocolError: what came back is not what the protocol says.
        """
        ...

    async def models(self) -> Sequence[JsonObject]:
        """The entries of the server's list of models, each with an `id`.

        Raises:
            TransportError: the server did not say.
        """
        ...

    async def aclose(self) -> None:
        """Release connections that the transport itself opened."""
        ...
