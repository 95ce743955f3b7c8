"""Replies a test writes by hand: exact bytes, exact pauses, exact failures."""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kimi_agent.testing.json_values import JsonObject, as_object, encoded
from kimi_agent.testing.received import ReceivedRequest

DEFAULT_MODEL = "kimi-simulated"


@dataclass(frozen=True, slots=True)
class Delay:
    """Send nothing for `seconds`, then go on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reset:
    """Reset the TCP connection (the client sees "connection reset by peer")."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection without finishing the body."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Send nothing more until the client leaves."""


Action: TypeAlias = Delay | Reset | Close | Hang
Piece: TypeAlias = bytes | str | Action
"""Bytes to send in one write (a `str` as UTF-8), or something that happens to the connection."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP response, byte for byte.

    A `bytes` or `str` body is sent whole with its length; pieces are sent one write each, framed
    as `framing` says. Actions in `before` happen ahead of the status line. An iterator given as
    the body can be played once.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Sent as given; `content-length`, `transfer-encoding` and `connection` come with the framing."""
    body: bytes | str | Iterable[Piece] = b""
    before: tuple[Action, ...] = ()
    framing: Literal["auto", "chunked", "close"] = "auto"
    """`"auto"`: whole bodies by length, pieces chunked. `"close"`: the end of the connection is the
    end of the body, as HTTP/1.0 has it."""

    def __post_init__(self) -> None:
        if isinstance(self.body, list):
            object.__setattr__(self, "body", tuple(self.body))


ScriptedReply: TypeAlias = Reply | Callable[[ReceivedRequest], Reply]
"""A reply, or a function that makes one from the request."""


def json_reply(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A whole JSON body."""
    return Reply(
        status=status, headers={"content-type": "application/json", **(headers or {})}, body=encoded(value)
    )


def message_reply(
    message: JsonObject,
    *,
    finish_reason: str | None = "stop",
    usage: JsonObject | None = None,
    model: str = DEFAULT_MODEL,
) -> Reply:
    """A whole `chat.completion` with one choice; `usage=None` leaves the field out."""
    completion: JsonObject = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
    }
    if usage is not None:
        completion["usage"] = usage
    return json_reply(completion)


def sse_reply(
    lines: Iterable[Piece], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Reply:
    """A `text/event-stream` of exactly these pieces: the caller writes `data: `, blank lines and all."""
    return Reply(
        status=status,
        headers={"content-type": "text/event-stream", **(headers or {})},
        body=tuple(lines),
        framing="chunked",
    )


def stream_reply(
    chunks: Iterable[JsonObject | Piece], *, done: bool = True, headers: Mapping[str, str] | None = None
) -> Reply:
    """A stream of `data:` events, one for each dict, encoded as it is: no field is added.

    Actions stand between chunks where they happen; a `str` or `bytes` is sent raw. `done=False`
    leaves out the closing `[DONE]`.
    """
    pieces = [event(chunk) if isinstance(chunk, dict) else chunk for chunk in chunks]
    return sse_reply([*pieces, "data: [DONE]\n\n"] if done else pieces, headers=headers)


def event(value: object) -> str:
    """One server-sent event that holds `value` as JSON."""
    return f"data: {encoded(value)}\n\n"


def chunk(
    delta: JsonObject | None = None,
    *,
    finish_reason: str | None = None,
    usage: JsonObject | None = None,
    model: str = DEFAULT_MODEL,
) -> JsonObject:
    """A plain `chat.completion.chunk`; with `delta=None` and no finish reason `choices` is empty."""
    choices: list[JsonObject] = []
    if delta is not None or finish_reason is not None:
        choices.append({"index": 0, "delta": delta or {}, "finish_reason": finish_reason})
    value: JsonObject = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": model,
        "choices": choices,
    }
    if usage is not None:
        value["usage"] = usage
    return value


def cut_text(text: str, cuts: int | Iterable[int]) -> list[str]:
    """`text` in pieces of `cuts` characters, or cut at the positions `cuts`; joined they are `text`."""
    if isinstance(cuts, int):
        positions = range(cuts, len(text), cuts) if cuts > 0 else range(0)
    else:
        positions = sorted({position for position in cuts if 0 < position < len(text)})
    edges = [0, *positions, len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges) if end > start]


def text_reply(
    text: str,
    *,
    field: str = "content",
    cuts: int | Iterable[int] = (),
    finish_reason: str | None = "stop",
    usage: JsonObject | None = None,
    done: bool = True,
) -> Reply:
    """A stream that says `text` in deltas of `field` (`content`, `reasoning_content`, `reasoning`).

    `cuts` is a size in characters or the positions to cut at; without it the text is one delta.
    """
    chunks = [chunk({"role": "assistant", "content": ""})]
    chunks += [chunk({field: piece}) for piece in cut_text(text, cuts)]
    chunks.append(chunk({}, finish_reason=finish_reason))
    if usage is not None:
        chunks.append(chunk(usage=usage))
    return stream_reply(chunks, done=done)


def error_reply(
    status: int,
    message: str,
    *,
    type: str = "invalid_request_error",  # noqa: A002 - the field is called so on the wire
    code: object = None,
    retry_after_s: float | None = None,
    shape: Literal["openai", "flat"] = "openai",
) -> Reply:
    """An error as Moonshot and vLLM wrap it (`"openai"`), or as SGLang leaves it (`"flat"`)."""
    fields: JsonObject = {"message": message, "type": type}
    if code is not None:
        fields["code"] = code
    headers = {} if retry_after_s is None else {"retry-after": f"{retry_after_s:g}"}
    value = {"error": fields} if shape == "openai" else {"object": "error", **fields}
    return json_reply(value, status=status, headers=headers)


def tool_call(name: str, arguments: object = "{}", *, id: str | None = None) -> JsonObject:  # noqa: A002
    """A call as it stands in a message; `arguments` is JSON text, or a value to encode."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {
        "id": f"functions.{name}:0" if id is None else id,
        "type": "function",
        "function": {"name": name, "arguments": text},
    }


def adaptive_reply(
    content: str | None = None,
    *,
    reasoning: str | None = None,
    tool_calls: Iterable[JsonObject] = (),
    finish_reason: str | None = None,
    usage: JsonObject | None = None,
    model: str = DEFAULT_MODEL,
    reasoning_field: str = "reasoning_content",
    cuts: int | Iterable[int] = 4,
) -> Callable[[ReceivedRequest], Reply]:
    """A reply that is streamed or whole as each request asks, from one description.

    Texts and arguments are streamed in pieces of `cuts`. Without a `finish_reason` it is
    `"tool_calls"` or `"stop"`, as the reply holds. The usage is sent whole, or, streamed, in a
    last chunk of its own.
    """
    calls = [dict(call) for call in tool_calls]
    reason = finish_reason or ("tool_calls" if calls else "stop")
    if not isinstance(cuts, int):
        cuts = tuple(cuts)

    def whole() -> Reply:
        message: JsonObject = {"role": "assistant", "content": content}
        if reasoning is not None:
            message[reasoning_field] = reasoning
        if calls:
            message["tool_calls"] = calls
        return message_reply(message, finish_reason=reason, usage=usage, model=model)

    def streamed() -> Reply:
        deltas: list[JsonObject] = [{"role": "assistant", "content": ""}]
        deltas += [{reasoning_field: piece} for piece in cut_text(reasoning or "", cuts)]
        deltas += [{"content": piece} for piece in cut_text(content or "", cuts)]
        for index, call in enumerate(calls):
            deltas += call_deltas(index, call, cuts)
        chunks = [chunk(delta, model=model) for delta in deltas]
        chunks.append(chunk({}, finish_reason=reason, model=model))
        if usage is not None:
            chunks.append(chunk(usage=usage, model=model))
        return stream_reply(chunks)

    def reply(request: ReceivedRequest) -> Reply:
        return streamed() if as_object(request.body).get("stream") else whole()

    return reply


def call_deltas(index: int, call: JsonObject, cuts: int | Iterable[int]) -> Iterable[JsonObject]:
    """The deltas of one call: its head with empty arguments, then the arguments in pieces."""
    function: JsonObject = call["function"]
    yield {"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]}
    for piece in cut_text(function["arguments"], cuts):
        yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
