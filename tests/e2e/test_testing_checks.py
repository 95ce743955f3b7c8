"""`check_transport` and `check_tool`: what is good passes, and a broken promise is named."""

from __future__ import annotations

import itertools
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kimi_agent import (
    Tool,
    ToolContext,
    ToolDefinitionError,
    TransportStatusError,
)
from kimi_agent._runtime.openai_transport import OpenAITransport
from kimi_agent.testing import (
    KimiServer,
    Reply,
    ScriptedTransport,
    adaptive_reply,
    check_tool,
    check_transport,
    error_reply,
    reply_chunks,
)
from kimi_agent.transport import END_OF_REPLY, Request
from tests.e2e.support import LONGEST_S, weather

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kimi_agent.testing import ReceivedRequest

pytestmark = pytest.mark.anyio

# --- check_transport ------------------------------------------------------------------------------

WORKING: dict[str, Any] = {"model": "kimi-k2", "messages": [{"role": "user", "content": "Hello"}]}
REFUSED: dict[str, Any] = {"model": "kimi-k2", "messages": [], "bad": True}


def reply_over_http(request: ReceivedRequest) -> Reply:
    return error_reply(400, "no") if "bad" in request.body else adaptive_reply("Hello there!")(request)


async def test_the_built_in_transport_keeps_its_promises() -> None:
    with anyio.fail_after(LONGEST_S):
        async with KimiServer(replies=reply_over_http) as server:
            transport = OpenAITransport.connect(base_url=server.base_url, api_key="x")
            await check_transport(transport, working=WORKING, refused=REFUSED)
            await transport.aclose()


def scripted_reply(request: Request) -> Any:
    if "bad" in request.decoded():
        return TransportStatusError("no", status_code=400)
    return reply_chunks("Hello there!")


async def test_the_scripted_transport_keeps_its_promises() -> None:
    transport = ScriptedTransport(itertools.repeat(scripted_reply))
    await check_transport(transport, working=WORKING, refused=REFUSED)

    assert transport.requests_open == 0
    assert {request.stream for request in transport.requests} == {True, False}


class Broken:
    """A transport that keeps all promises but the one its subclass breaks."""

    def __init__(self) -> None:
        self.inner = ScriptedTransport(itertools.repeat(scripted_reply), models=["kimi-k2"])

    async def stream(self, request: Request) -> AsyncGenerator[dict[str, Any]]:
        async with aclosing(self.inner.stream(request)) as chunks:
            async for chunk in chunks:
                for changed in self.change(chunk):
                    yield changed

    def change(self, chunk: dict[str, Any]) -> list[Any]:
        """What is yielded for `chunk`."""
        return [chunk]

    async def models(self) -> Any:
        return await self.inner.models()

    async def aclose(self) -> None:
        await self.inner.aclose()


class YieldsNothing(Broken):
    def change(self, chunk: dict[str, Any]) -> list[Any]:
        return [chunk][:0]


class ForgetsTheEnd(Broken):
    def change(self, chunk: dict[str, Any]) -> list[Any]:
        return [] if chunk is END_OF_REPLY else [chunk]


class CopiesTheEnd(Broken):
    def change(self, chunk: dict[str, Any]) -> list[Any]:
        return [dict(chunk)]


class EndsTwice(Broken):
    def change(self, chunk: dict[str, Any]) -> list[Any]:
        return [chunk, chunk] if chunk is END_OF_REPLY else [chunk]


class YieldsText(Broken):
    def change(self, chunk: dict[str, Any]) -> list[Any]:
        return [chunk if chunk is END_OF_REPLY else json.dumps(chunk)]


class YieldsNoChoices(Broken):
    def change(self, chunk: dict[str, Any]) -> list[Any]:
        return [chunk if chunk is END_OF_REPLY else {"choices": []}]


class RaisesItsOwnErrors(Broken):
    async def stream(self, request: Request) -> AsyncGenerator[dict[str, Any]]:
        if "bad" in request.decoded():
            raise ValueError("no")
        async with aclosing(super().stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk


class RefusesNothing(Broken):
    def __init__(self) -> None:
        super().__init__()
        self.inner = ScriptedTransport(itertools.repeat("Sure."))


class SwallowsCancellation(Broken):
    async def stream(self, request: Request) -> AsyncGenerator[dict[str, Any]]:
        async with aclosing(super().stream(request)) as chunks:
            try:
                async for chunk in chunks:
                    yield chunk
            except anyio.get_cancelled_exc_class():
                return


class TakesLongToClose(Broken):
    async def stream(self, request: Request) -> AsyncGenerator[dict[str, Any]]:
        async with aclosing(super().stream(request)) as chunks:
            try:
                async for chunk in chunks:
                    yield chunk
            except GeneratorExit:
                await anyio.sleep_forever()


class NamesOneModel(Broken):
    async def models(self) -> Any:
        return "kimi-k2"


class Hangs(Broken):
    async def models(self) -> Any:
        await anyio.sleep_forever()


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (YieldsNothing, "at least one chunk"),
        (ForgetsTheEnd, "END_OF_REPLY"),
        (CopiesTheEnd, "END_OF_REPLY itself"),
        (EndsTwice, "END_OF_REPLY once"),
        (YieldsNoChoices, "a chunk with choices"),
        (YieldsText, "decoded JSON objects"),
        (RaisesItsOwnErrors, "not ValueError: no"),
        (RefusesNothing, "has to raise"),
        (SwallowsCancellation, "cancelled request"),
        (TakesLongToClose, "a request that is given up took more than|ends the request within"),
        (NamesOneModel, "each with an id"),
        (Hangs, "models took more than"),
    ],
)
async def test_a_broken_promise_is_named(broken: type[Broken], words: str) -> None:
    within_s = 0.3 if broken in (Hangs, TakesLongToClose) else LONGEST_S
    with pytest.raises(AssertionError, match=words):
        await check_transport(broken(), working=WORKING, refused=REFUSED, within_s=within_s)


# --- check_tool -----------------------------------------------------------------------------------


async def test_a_good_tool_gives_the_text_the_model_gets() -> None:
    assert json.loads(await check_tool(weather, {"city": "Paris"})) == {
        "city": "Paris",
        "weather": "Sunny",
        "unit": "C",
    }


async def test_a_tool_under_check_gets_its_deps() -> None:
    async def who(context: ToolContext) -> str:
        """Say who is asked."""
        return f"{context.deps} at step {context.step}"

    assert await check_tool(who, {}, deps="me") == "me at step 1"


def failing(city: str) -> str:
    """Fail."""
    raise RuntimeError("disk full")


def giving_bytes(city: str) -> bytes:
    """Give bytes."""
    return b"x"


def silent(city: str) -> str:
    return city


async def stuck(city: str) -> str:
    """Never finish."""
    await anyio.sleep_forever()
    return city


def built(**fields: Any) -> Tool:
    settings: dict[str, Any] = {"name": "built", "description": "Built.", "function": str, **fields}
    return Tool(**settings)


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        (failing, {"city": "Paris"}, "disk full"),
        (giving_bytes, {"city": "Paris"}, "bytes"),
        (weather, {"town": "Paris"}, "city"),
        (silent, {"city": "Paris"}, "description"),
        (stuck, {"city": "Paris"}, "took more than"),
        (built(name="1.odd name"), {}, "Moonshot"),
        (built(parameters={"type": "string"}), {}, "of type object"),
        (built(parameters={"type": "object", "properties": {}, "required": ["x"]}), {}, "required"),
        (built(parameters={"type": "object", "properties": {"a": {"default": {1}}}}), {}, "JSON"),
        (
            built(parameters={"type": "object", "properties": {"a": {"$ref": "#/$defs/Gone"}}}),
            {},
            "does not define: #/\\$defs/Gone",
        ),
    ],
)
async def test_what_is_wrong_with_a_tool_is_named(tool: Any, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        await check_tool(tool, arguments, within_s=0.3 if tool is stuck else LONGEST_S)


async def test_what_cannot_be_a_tool_is_told_as_everywhere() -> None:
    with pytest.raises(ToolDefinitionError):
        await check_tool(lambda: 1, {})
