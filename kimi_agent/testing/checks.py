"""The promises of transports and tools, as checks to call from the tests of your own."""

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

import anyio

from kimi_agent.agent import KimiAgent
from kimi_agent.errors import ProtocolError, TransportError
from kimi_agent.json_types import is_object
from kimi_agent.options import RunLimits
from kimi_agent.testing.json_values import JsonObject, as_list, as_object, encoded
from kimi_agent.testing.replies import tool_call
from kimi_agent.testing.scripted_transport import ScriptedTransport, reply_chunks
from kimi_agent.tools import Tool
from kimi_agent.tools import tool as tool_of
from kimi_agent.transport import END_OF_REPLY, Request, Transport

_LEAVING_S = 2.0
# What Moonshot's API accepts; it refuses the request for any other name.
_TOOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")


async def check_transport(
    transport: Transport, *, working: JsonObject, refused: JsonObject, within_s: float = 30.0
) -> None:
    """Assert what `Transport` promises; call it from the tests of your own transport.

    `working` is the body of a request that gets an answer, streamed in several chunks if it is asked for,
    and `refused` one that gets an error. Each is sent a few times; a part of the check may take `within_s`
    seconds.

    Raises:
        AssertionError: it says which promise is broken.
    """
    streamed, whole = _request(working, stream=True), _request(working, stream=False)
    with _bounded("a working request", within_s):
        _check_reply(await _collected(transport, streamed), "a streamed reply")
        _check_reply(await _collected(transport, whole), "a whole reply")
    with _bounded("a request that is given up", within_s):
        await _check_leaving(transport, streamed)
        await _check_cancelling(transport, streamed)
        _check_reply(await _collected(transport, streamed), "the reply after one that was given up")
    with _bounded("a refused request", within_s):
        for stream in (True, False):
            await _check_refused(transport, _request(refused, stream=stream))
    with _bounded("two requests side by side", within_s):
        await _check_side_by_side(transport, streamed)
    with _bounded("models", within_s):
        entries: Any = await transport.models()
        _promise(
            all(is_object(each) and isinstance(each.get("id"), str) and each["id"] for each in entries),
            f"models gives objects, each with an id that is a text; got {entries!r:.200}",
        )


async def check_tool(
    tool: Tool | Callable[..., Any],
    arguments: Mapping[str, Any],
    *,
    deps: Any = None,
    within_s: float = 30.0,
) -> str:
    """The text a model gets when it calls `tool` with `arguments`, once all that models need is asserted.

    The declaration must be one that servers accept, the call must end within `within_s` seconds without
    an error, and its result must be something that JSON can hold. The tool is run by an agent, as in
    production; `deps` reaches it in its `ToolContext`.

    Raises:
        AssertionError: it says what is wrong, or what the model was told instead of a result.
        ToolDefinitionError: the function cannot be a tool.
    """
    made = tool if isinstance(tool, Tool) else tool_of(tool)
    _check_declaration(made)
    call = tool_call(made.name, encoded(dict(arguments)))
    transport = ScriptedTransport([reply_chunks(tool_calls=[call]), "done"])
    agent = KimiAgent(
        "none", tools=[made], transport=transport, limits=RunLimits(tool_timeout_s=None, max_retries=0)
    )
    with _bounded(f"the tool {made.name!r}", within_s):
        result = await agent.run("Call the tool.", deps=deps)
    [record] = result.tool_calls
    _promise(not record.is_error, f"tool {made.name!r} with {dict(arguments)!r}: {record.result}")
    return record.result


def _promise(kept: object, broken: str) -> None:
    # Not `assert`: a check has to check under `python -O` too.
    if not kept:
        raise AssertionError(broken)


@contextmanager
def _bounded(what: str, within_s: float) -> Generator[None]:
    try:
        with anyio.fail_after(within_s):
            yield
    except TimeoutError as error:
        raise AssertionError(f"{what} took more than {within_s:g} seconds") from error


def _request(body: JsonObject, *, stream: bool) -> Request:
    fields = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
    if stream:
        fields["stream"] = True
    return Request(body=encoded(fields).encode(), stream=stream, silence_timeout_s=30, connect_timeout_s=10)


async def _collected(transport: Transport, request: Request) -> list[JsonObject]:
    async with aclosing(transport.stream(request)) as chunks:
        return [chunk async for chunk in chunks]


def _check_reply(chunks: list[JsonObject], what: str) -> None:
    _promise(chunks, f"{what} yields at least one chunk")
    _promise(chunks[-1] is END_OF_REPLY, f"{what} ends with END_OF_REPLY itself, got {chunks[-1]!r:.200}")
    _promise(chunks.count(END_OF_REPLY) == 1, f"{what} yields END_OF_REPLY once, as the last")
    for chunk in chunks[:-1]:
        _promise(as_object(chunk) is chunk, f"{what} yields decoded JSON objects, got {chunk!r:.200}")
    _promise(any(as_list(chunk.get("choices")) for chunk in chunks), f"{what} has a chunk with choices")


async def _check_leaving(transport: Transport, request: Request) -> None:
    chunks = transport.stream(request)
    await anext(chunks)
    with anyio.move_on_after(_LEAVING_S) as scope:
        await chunks.aclose()
    _promise(not scope.cancelled_caught, f"closing the generator ends the request within {_LEAVING_S:g} s")


async def _check_cancelling(transport: Transport, request: Request) -> None:
    """Cancellation passes through: it neither becomes an error nor a reply that just ends."""
    seen: list[JsonObject] = []
    with anyio.CancelScope() as scope:
        async with aclosing(transport.stream(request)) as chunks:
            async for chunk in chunks:
                seen.append(chunk)
                scope.cancel()
    # What had arrived already may still be yielded, up to the end.
    _promise(
        scope.cancelled_caught or seen[-1] is END_OF_REPLY,
        "a cancelled request ends by the loop's own exception, which `stream` must not keep to itself",
    )


async def _check_refused(transport: Transport, request: Request) -> None:
    kind = "streamed" if request.stream else "whole"
    try:
        chunks = await _collected(transport, request)
    except (TransportError, ProtocolError) as error:
        _promise(str(error).strip(), f"{type(error).__name__} of a refused request says what happened")
        return
    except Exception as error:
        raise AssertionError(
            f"a refused {kind} request has to raise TransportError or ProtocolError, not "
            f"{type(error).__name__}: {error}"
        ) from error
    raise AssertionError(f"a refused {kind} request has to raise TransportError; it yielded {chunks!r:.200}")


async def _check_side_by_side(transport: Transport, request: Request) -> None:
    async with aclosing(transport.stream(request)) as first, aclosing(transport.stream(request)) as second:
        one, other = [await anext(first)], [await anext(second)]
        one += [chunk async for chunk in first]
        other += [chunk async for chunk in second]
    _check_reply(one, "the first of two requests side by side")
    _check_reply(other, "the second of two requests side by side")


def _check_declaration(tool: Tool) -> None:
    where = f"tool {tool.name!r}"
    _promise(
        _TOOL_NAME.match(tool.name),
        f"{where}: Moonshot's API wants a name of letters, digits, _ and -, the first a letter",
    )
    _promise(
        tool.description.strip(), f"{where}: without a description the model has to guess what it is for"
    )
    try:
        encoded(tool.parameters)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{where}: the parameters cannot be written as JSON: {error}") from error
    _promise(tool.parameters.get("type") == "object", f"{where}: the parameters are a schema of type object")
    properties = as_object(tool.parameters.get("properties"))
    unknown = [name for name in as_list(tool.parameters.get("required")) if name not in properties]
    _promise(not unknown, f"{where}: required, but not among the properties: {', '.join(map(str, unknown))}")
    missing = sorted(set(_references(tool.parameters)) - _defined(tool.parameters))
    _promise(not missing, f"{where}: the schema refers to what it does not define: {', '.join(missing)}")


def _references(schema: Any) -> Iterator[str]:
    fields = as_object(schema)
    if isinstance(target := fields.get("$ref"), str):
        yield target
    for part in (*fields.values(), *as_list(schema)):
        yield from _references(part)


def _defined(schema: JsonObject) -> set[str]:
    return {"#"} | {
        f"#/{holder}/{name}" for holder in ("$defs", "definitions") for name in as_object(schema.get(holder))
    }
