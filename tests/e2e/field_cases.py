"""Field cases: what servers sent to people, played over HTTP, and what a user has to get from it.

A case is a row of `tests/data/field-cases.jsonl`, or one written beside its test in the same form.
`ways_of` says how it can reach a client, `carry_out` sends it that way, `differences` compares.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from kimi_agent import KimiAgent, KimiAgentError, ModelOptions, RunLimits, Tool, errors
from kimi_agent._core.wire_names import safe_name
from kimi_agent.events import ReasoningDelta, TextDelta, TextReset
from kimi_agent.json_types import is_array, is_object
from kimi_agent.testing import Close, Delay, Reset, adaptive_reply, message_reply, sse_reply
from kimi_agent.testing.replies import chunk, cut_text, event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import openai

    from kimi_agent import Event, RunResult, ToolCallRecord
    from kimi_agent.testing import ReceivedRequest, Reply
    from kimi_agent.testing.replies import Piece, ScriptedReply

PROMPT = "How is it there?"
ANSWER = "It is done."
RETRIES = 2
SIZES = (1, 7, None)
"""Characters, or bytes, of a piece; `None` is everything at once."""

MAX_PIECES = 1000
"""Longer texts come in larger pieces."""

EVENTS_TOGETHER = 8
"""Events of one write; the client still gets each as a chunk of its own."""

UNREAD_S = 0.03
"""A reset throws away what the client has not read yet, so a server that resets lets it read first."""

REASONING_FIELDS = ("reasoning_content", "reasoning")
TEXT_FIELDS = (*REASONING_FIELDS, "content")
ERRORS: dict[str, type[KimiAgentError]] = {
    "ProviderError": errors.TransportStatusError,
    "EngineOverloaded": errors.EngineOverloadedError,
    "RateLimited": errors.RateLimitedError,
    "QuotaExhausted": errors.QuotaExhaustedError,
    "ContextTooLong": errors.ContextTooLongError,
    "RequestTooLarge": errors.RequestTooLargeError,
    "ContentFiltered": errors.ContentFilteredError,
    "InvalidRequest": errors.InvalidRequestError,
    "InvalidHistory": errors.InvalidHistoryError,
    "DuplicateTool": errors.ToolDefinitionError,
    "ConnectionLost": errors.TransportConnectionError,
    "IncompleteStream": errors.IncompleteStreamError,
    "Protocol": errors.ProtocolError,
    "MalformedToolCalls": errors.ModelError,
    "UnusableReply": errors.ModelError,
}
_MARKER = re.compile(
    r"<\|(?:tool_calls?_(?:section_)?(?:begin|end)|tool_call_argument_begin"
    r"|im_(?:end|user|assistant|system|middle)|(?:start|end)_header_id|media_(?:begin|content|end|pad))\|>"
    r"|</?think>"
)
_EVENT_LETTERS = {
    "step_started": "S",
    "reasoning_delta": "d",
    "text_delta": "d",
    "tool_call_started": "d",
    "tool_call_delta": "d",
    "text_reset": "x",
    "retry_scheduled": "r",
    "step_finished": "F",
    "tool_started": "t",
    "tool_finished": "t",
}
# `x` may also stand among the deltas, where a thought came as text and only its end marker told.
_GRAMMAR = re.compile(r"S([dx]*r)*[dx]*F(t*S([dx]*r)*[dx]*F)*\Z")
_EVENT_WORDS = {
    "text_delta": "text",
    "text_reset": "text_reset",
    "tool_started": "tool_call",
    "tool_finished": "tool_result",
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row."""

    id: str
    kind: str
    channel: str
    title: str = ""
    input: dict[str, Any]
    expected: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way a case reaches a client."""

    name: str
    streamed: bool
    """Whether the client asks for a stream."""

    replies: tuple[Reply, ...]


@dataclass(kw_only=True)
class Outcome:
    """What a user, the tools and the server saw."""

    result: RunResult | None = None
    error: KimiAgentError | None = None
    text: str = ""
    executed: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    events: list[Event] = field(default_factory=list["Event"])
    requests: list[ReceivedRequest] = field(default_factory=list["ReceivedRequest"])


class Stage:
    """The script of one server for many cases: a test sets what is played next."""

    def __init__(self) -> None:
        self._replies: list[ScriptedReply] = []
        self._repeat_last = False
        self.requests: list[ReceivedRequest] = []

    def play(self, replies: Iterable[ScriptedReply], *, repeat_last: bool = False) -> None:
        """Answer with `replies` in order, then with the last again, or with a plain answer."""
        self._replies = list(replies)
        self._repeat_last = repeat_last
        self.requests = []

    def __call__(self, request: ReceivedRequest) -> Reply:
        self.requests.append(request)
        following: ScriptedReply = adaptive_reply(ANSWER, cuts=3)
        if self._replies:
            keep = self._repeat_last and len(self._replies) == 1
            following = self._replies[0] if keep else self._replies.pop(0)
        return following(request) if callable(following) else following


def load() -> list[Case]:
    """Every row of the file."""
    path = Path(__file__).parent.parent / "data" / "field-cases.jsonl"
    return [_case(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _case(row: dict[str, Any]) -> Case:
    return Case(**{name: row[name] for name in ("id", "kind", "channel", "title", "input", "expected")})


# --- ways to send ------------------------------------------------------------------------------------


def ways_of(case: Case) -> Iterator[Way]:
    """A whole message is also streamed in pieces; a stream is also cut elsewhere and asked for by `run`."""
    if "sse_lines" in case.input:
        yield from _byte_ways("\n".join(case.input["sse_lines"]).encode() + b"\n")
    elif "chunks" in case.input or "attempts" in case.input:
        yield from _stream_ways(case)
    else:
        message = message_of(case)
        finish_reason, usage = case.input.get("finish_reason", "stop"), case.input.get("usage")
        whole = message_reply(message, finish_reason=finish_reason, usage=usage)
        yield Way(name="whole", streamed=False, replies=(whole,))
        for size in SIZES:
            chunks = [chunk(delta) for delta in _deltas(message, size)]
            chunks.append(chunk({}, finish_reason=finish_reason))
            if usage is not None:
                chunks.append(chunk(usage=usage))
            yield Way(name=f"cut-{size or 'nowhere'}", streamed=True, replies=(stream_of(chunks),))


def message_of(case: Case) -> dict[str, Any]:
    """The assistant message of a case that holds one."""
    if "message" in case.input:
        return case.input["message"]
    message = {"role": "assistant", "content": case.input.get("content", "")}
    message[case.input.get("field", "content")] = case.input["text"]
    if "tool_calls" in case.input:
        message["tool_calls"] = case.input["tool_calls"]
    return message


def stream_of(chunks: Sequence[dict[str, Any] | Piece], *, done: bool = True) -> Reply:
    """A stream of `chunks`, several in a write as busy servers send them; it ends where it breaks."""
    pieces: list[Piece] = []
    waiting: list[str] = []
    for each in chunks:
        if isinstance(each, dict):
            waiting.append(event(each))
        if waiting and (len(waiting) == EVENTS_TOGETHER or not isinstance(each, dict)):
            pieces.append("".join(waiting))
            waiting.clear()
        if isinstance(each, Reset) and pieces:
            pieces.append(Delay(UNREAD_S))
        if not isinstance(each, dict):
            pieces.append(each)
    pieces.append("".join(waiting))
    broken = bool(chunks) and isinstance(chunks[-1], Reset | Close)
    return sse_reply([*pieces, "data: [DONE]\n\n"] if done and not broken else pieces)


def _byte_ways(body: bytes) -> Iterator[Way]:
    yield Way(name="run", streamed=False, replies=(sse_reply([body]),))
    for size in SIZES:
        pieces = _byte_pieces(body, size)
        yield Way(name=f"bytes-{size or 'all'}", streamed=True, replies=(sse_reply(pieces),))


def _stream_ways(case: Case) -> Iterator[Way]:
    rounds = _rounds(case)
    done = case.input.get("done", True)

    def way(name: str, scripts: Iterable[list[Any]], *, streamed: bool = True) -> Way:
        return Way(
            name=name, streamed=streamed, replies=tuple(stream_of(each, done=done) for each in scripts)
        )

    yield way("run", rounds, streamed=False)
    yield way("as-sent", rounds)
    yield way("cut-1", ([*_recut(each, 1)] for each in rounds))
    yield way("cut-7", ([*_recut(each, 7)] for each in rounds))
    yield way("joined", ([*_joined(each)] for each in rounds))
    yield way("bytes-3", (_bytes(each) for each in rounds))


def _rounds(case: Case) -> list[list[Any]]:
    """What each request is answered with: chunks, and how the connection ends."""
    attempts: list[list[Any]] = case.input.get("attempts") or [case.input["chunks"]]
    rounds: list[list[Any]] = []
    for attempt in attempts:
        rounds.append([])
        for each in attempt:
            if is_object(each) and "next_round" in each:
                rounds.append(each["next_round"])
            else:
                rounds[-1].append(Reset() if each == {"error": "connection reset"} else each)
    if "raises" in case.input:
        rounds[0].append(Close())
    return rounds


def _recut(chunks: Iterable[Any], size: int) -> Iterator[Any]:
    """The same stream with every text and every piece of arguments cut into pieces of `size`."""
    for each in chunks:
        choice = _only_choice(each)
        deltas = [] if choice is None else [*_recut_delta(choice["delta"], size)]
        if choice is None or not deltas:
            yield each
            continue
        for delta in deltas[:-1]:
            yield {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield {**each, "choices": [{**choice, "delta": deltas[-1]}]}


def _only_choice(each: Any) -> dict[str, Any] | None:
    """The choice of a chunk that has one, with a delta."""
    choices: Any = each.get("choices") if is_object(each) else None
    choice: Any = choices[0] if is_array(choices) and len(choices) == 1 else None
    return (
        choice if is_object(choice) and is_object(choice.get("delta")) and not choice.get("index") else None
    )


def _recut_delta(delta: dict[str, Any], size: int) -> Iterator[dict[str, Any]]:
    texts = [name for name in TEXT_FIELDS if isinstance(delta.get(name), str) and delta[name]]
    if len(texts) == 1 and not delta.get("tool_calls"):
        rest = {name: value for name, value in delta.items() if name != texts[0]}
        for place, piece in enumerate(_pieces(delta[texts[0]], size)):
            yield {**rest, texts[0]: piece} if not place else {texts[0]: piece}
    elif isinstance(delta.get("tool_calls"), list) and not texts:
        for entry in filter(None, delta["tool_calls"]):
            yield from ({"tool_calls": [piece]} for piece in _recut_entry(entry, size))


def _recut_entry(entry: dict[str, Any], size: int) -> Iterator[dict[str, Any]]:
    pieces = _pieces(_arguments_text(entry), size)
    if not pieces:
        yield entry
        return
    yield {**entry, "function": {**entry["function"], "arguments": pieces[0]}}
    label = {name: entry[name] for name in ("index", "id") if entry.get(name) is not None}
    if "index" in label:
        label.pop("id", None)
    for piece in pieces[1:]:
        yield {**label, "function": {"arguments": piece}}


def _pieces(text: str, size: int | None) -> list[str]:
    return cut_text(text, () if size is None else max(size, len(text) // MAX_PIECES))


def _arguments_text(entry: dict[str, Any]) -> str:
    """The arguments of a call, if they are text."""
    function: Any = entry.get("function")
    arguments: Any = function.get("arguments") if is_object(function) else None
    return arguments if isinstance(arguments, str) else ""


def _joined(chunks: Iterable[Any]) -> Iterator[Any]:
    """The same stream with neighbouring pieces of content made one."""
    waiting = ""
    for each in chunks:
        text = _content_alone(each)
        if text is not None:
            waiting += text
            continue
        if waiting:
            yield chunk({"content": waiting})
            waiting = ""
        yield each
    if waiting:
        yield chunk({"content": waiting})


def _content_alone(each: Any) -> str | None:
    """The content of a chunk that holds nothing else."""
    choice = _only_choice(each)
    if choice is None or [*choice["delta"]] != ["content"] or choice.get("finish_reason") or "usage" in each:
        return None
    content = choice["delta"]["content"]
    return content if isinstance(content, str) else None


def _bytes(chunks: Iterable[Any]) -> list[Any]:
    """The same stream in writes of three bytes, which cut characters and lines."""
    pieces: list[Any] = []
    for each in chunks:
        data: Any = event(each).encode() if is_object(each) else each
        pieces += _byte_pieces(data, 3) if isinstance(data, bytes) else [data]
    return pieces


def _byte_pieces(data: bytes, size: int | None) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)] if size else [data]


def _deltas(message: dict[str, Any], size: int | None) -> Iterator[dict[str, Any]]:
    """The deltas of a whole message, its texts and arguments in pieces of `size`."""
    yield {"role": "assistant", "content": ""}
    # Releases that know both names send the same piece under both at once.
    names = [(name,) for name in REASONING_FIELDS if message.get(name)]
    reasoning = [REASONING_FIELDS] if len(names) > 1 else names
    for fields in (*reasoning, ("content",)):
        value: Any = message.get(fields[0])
        for piece in _pieces(value, size) if isinstance(value, str) else [value] if value else []:
            yield dict.fromkeys(fields, piece)
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    for index, call in enumerate(calls):
        pieces = [] if size is None else _pieces(_arguments_text(call), size)
        if not pieces:
            yield {"tool_calls": [{**call, "index": index}]}
            continue
        yield {"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": ""}}]}
        for piece in pieces:
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


# --- the run -----------------------------------------------------------------------------------------


def tools_of(case: Case, executed: list[tuple[str, Any]]) -> list[Tool]:
    """The declared tools, built by hand; each notes its call and returns a text."""

    def tool_of(declared: str | dict[str, Any]) -> Tool:
        described: dict[str, Any] = {"name": declared} if isinstance(declared, str) else declared
        name: str = described["name"]

        async def function(arguments: dict[str, Any]) -> str:
            executed.append((name, arguments))
            return result_of(name, arguments)

        schema: Any = described.get("parameters", {"type": "object", "properties": {}})
        return Tool(name=name, description="", parameters=schema, function=function)

    return [tool_of(declared) for declared in case.input.get("tools") or ()]


def result_of(name: str, arguments: Any) -> str:
    """The text a tool returns."""
    return f"{name} got {json.dumps(arguments, sort_keys=True)}"


def options_of(case: Case) -> ModelOptions:
    """What the case asks of the model."""
    request = {name: value for name, value in case.input.get("request", {}).items() if name == "tool_choice"}
    return ModelOptions(**request, **case.input.get("options", {}))


async def carry_out(case: Case, way: Way, client: openai.AsyncOpenAI, stage: Stage) -> Outcome:
    """Play the case, let an agent meet it, and report what everybody saw."""
    outcome = Outcome()
    agent = KimiAgent(
        "kimi-k2",
        tools=tools_of(case, outcome.executed),
        client=client,
        options=options_of(case),
        limits=RunLimits(max_retries=RETRIES, max_retry_delay_s=0, loading_timeout_s=0.001),
    )
    stage.play(way.replies, repeat_last="error" in case.expected)
    with anyio.fail_after(20):
        try:
            if way.streamed:
                async with agent.stream(PROMPT) as run:
                    async for each in run:
                        outcome.events.append(each)
                outcome.result, outcome.text = run.result, run.text
            else:
                outcome.result = await agent.run(PROMPT)
        except KimiAgentError as error:
            outcome.error = error
    outcome.requests = stage.requests
    return outcome


async def ask(
    agent: KimiAgent, *, streamed: bool = False, history: list[dict[str, Any]] | None = None
) -> RunResult:
    """One run in one of the two ways, for a bounded time."""
    with anyio.fail_after(20):
        if not streamed:
            return await agent.run(PROMPT, history=history)
        async with agent.stream(PROMPT, history=history) as run:
            async for _ in run:
                pass
        return run.result


# --- the comparison ------------------------------------------------------------------------------------


class _Report:
    def __init__(self) -> None:
        self.differences: list[str] = []

    def equal(self, what: str, seen: object, wanted: object) -> None:
        if seen != wanted:
            self.differences.append(f"{what}: expected {wanted!r}, got {seen!r}")

    def holds(self, what: str, *, claim: bool) -> None:
        if not claim:
            self.differences.append(what)


def differences(case: Case, way: Way, outcome: Outcome) -> list[str]:
    """What is not as the case expects, in words; nothing if all is well."""
    report = _Report()
    expected = case.expected
    if "error" in expected:
        _compare_error(expected["error"], outcome, report)
    elif outcome.result is None:
        report.holds(f"raised {type(outcome.error).__name__}: {outcome.error}", claim=False)
        return report.differences
    else:
        _compare_result(case, outcome, outcome.result, report)
    if way.streamed:
        _compare_events(expected, outcome, report)
    return report.differences


def _compare_error(wanted: dict[str, Any], outcome: Outcome, report: _Report) -> None:
    error = outcome.error
    report.equal("error", type(error), ERRORS[wanted["class"]])
    report.equal("executed", outcome.executed, [])
    if "requests" in wanted or "retryable" in wanted:
        sent = wanted.get("requests", 1 + RETRIES if wanted.get("retryable") else 1)
        report.equal("requests", len(outcome.requests), sent)
    for name, attribute in (("status", "status_code"), ("retryable", "retryable"), ("limit", "limit_bytes")):
        if name in wanted:
            report.equal(name, getattr(error, attribute, None), wanted[name])
    if "partial_text" in wanted and outcome.events:
        report.equal("partial text", getattr(error, "partial_text", None), wanted["partial_text"])


def _compare_result(case: Case, outcome: Outcome, result: RunResult, report: _Report) -> None:
    expected = case.expected
    records = [record for record in result.tool_calls if record.step == 1]
    first = next(message for message in result.new_messages if message["role"] == "assistant")
    following = expected.get("next")
    _compare_calls(expected, records, outcome, report)
    _compare_next(case, outcome, result, records, report)
    if following != "retry_once":
        for name, key in (("content", "content"), ("reasoning", "reasoning_content")):
            if name in expected:
                report.equal(name, (first.get(key) or "").strip(), expected[name])
    _compare_step(expected, result, report)
    if records:
        _compare_history(expected, outcome, records, report)
    for message in result.new_messages:
        shown = f"{message.get('content') or ''}{message.get('reasoning_content') or ''}"
        if message["role"] == "assistant":
            report.holds(f"a marker is left in {shown!r}", claim=not _MARKER.search(shown))
    json.dumps(result.messages, ensure_ascii=False).encode()


def _compare_calls(
    expected: dict[str, Any], records: list[ToolCallRecord], outcome: Outcome, report: _Report
) -> None:
    wanted = expected.get("calls")
    if wanted is None:
        return
    ran = [record for record in records if not record.is_error]
    report.equal("calls", [(each.name, each.arguments) for each in ran], [_pair(each) for each in wanted])
    report.equal("executed", _in_order(outcome.executed), _in_order(_pair(each) for each in wanted))
    report.equal("results", [each.result for each in ran], [result_of(*_pair(each)) for each in wanted])
    for record, call in zip(ran, wanted, strict=False):
        if "id" in call:
            report.equal("id", record.id, call["id"])
    if "failed" in expected:
        report.equal("failed", [each.name for each in records if each.is_error], expected["failed"])


def _pair(call: dict[str, Any]) -> tuple[str, Any]:
    return call["name"], call["arguments"]


def _in_order(calls: Iterable[tuple[str, Any]]) -> list[str]:
    """Calls in an order of their own: tools run side by side."""
    return sorted(json.dumps(call, sort_keys=True) for call in calls)


def _compare_next(
    case: Case, outcome: Outcome, result: RunResult, records: list[ToolCallRecord], report: _Report
) -> None:
    expected, sent = case.expected, len(outcome.requests)
    following = expected.get("next", "final")
    failed = [record for record in records if record.is_error]
    if following == "final":
        wanted = expected.get("final_text", expected.get("content", ""))
        report.equal("text", result.text.strip(), wanted)
        report.equal("requests", sent, expected.get("requests", sent if "events" in expected else 1))
        return
    report.equal("text", result.text, ANSWER)
    report.equal("requests", sent, expected.get("requests", 2))
    if following == "retry_once":
        report.equal("calls", records, [])
        report.equal("steps", len(result.steps), 1)
        bodies = [_without_streaming(request.body) for request in outcome.requests]
        report.holds("the two requests differ", claim=all(body == bodies[0] for body in bodies))
    elif following == "run_tools":
        report.equal("failed", [each.name for each in failed], expected.get("failed", []))
    elif following == "truncated":
        report.equal("errors told", [record.is_error for record in records], [True])
        report.holds("the cut is in no repair", claim="truncated_call" in _kinds(result))
    else:
        report.holds("no call was answered with an error", claim=bool(failed))
        _compare_explanation(case, failed, report)


def _compare_explanation(case: Case, failed: list[ToolCallRecord], report: _Report) -> None:
    expected = case.expected
    if "tool_error_for" in expected:
        report.equal("failed ids", [record.id for record in failed], expected["tool_error_for"])
    words = list(expected.get("explained", ()))
    if expected.get("message_lists_tools"):
        words += [each if isinstance(each, str) else each["name"] for each in case.input["tools"]]
    for word in words:
        told = [record.result for record in failed]
        report.holds(f"{word!r} is not told in {told}", claim=all(word in text for text in told))


def _without_streaming(body: dict[str, Any]) -> dict[str, Any]:
    """A request without what only says how its answer travels."""
    return {name: value for name, value in body.items() if name not in ("stream", "stream_options")}


def _kinds(result: RunResult) -> set[str]:
    return {repair.kind for repair in result.repairs}


def _compare_step(expected: dict[str, Any], result: RunResult, report: _Report) -> None:
    step = result.steps[0]
    names = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
    counted: dict[str, int] = expected.get("counted") or expected.get("usage") or {}
    for name, wanted in counted.items():
        if name != "total_tokens":
            report.equal(name, getattr(step.usage, names.get(name, name)), wanted)
    if "finish" in expected:
        report.equal("finish", step.finish_reason, expected["finish"])
    if "raw_finish" in expected:
        report.equal("raw finish", step.raw_finish_reason, expected["raw_finish"])
    if "run_finish" in expected:
        report.equal("finish of the run", result.finish_reason, expected["run_finish"])
    if expected.get("truncated"):
        report.equal("finish", step.finish_reason, "length")
    for label in expected.get("dropped", ()):
        told = [repair.detail for repair in result.repairs]
        report.holds(f"{label} is in no repair: {told}", claim=any(label in detail for detail in told))
    for kind in expected.get("repairs", ()):
        report.holds(f"no repair {kind!r} in {_kinds(result)}", claim=kind in _kinds(result))


def _compare_history(
    expected: dict[str, Any], outcome: Outcome, records: list[ToolCallRecord], report: _Report
) -> None:
    """The request after a tool round pairs each call with its result, in order."""
    sent: list[list[dict[str, Any]]] = [request.body["messages"] for request in outcome.requests]
    messages = next((each for each in sent if len(each) > 1), sent[0])
    roles = ["user", "assistant", *["tool"] * len(records)]
    report.equal("roles sent", [each["role"] for each in messages], roles)
    if len(messages) != len(roles):
        return
    said, results = messages[1], messages[2:]
    calls: list[dict[str, Any]] = said.get("tool_calls") or []
    report.equal(
        "names sent", [call["function"]["name"] for call in calls], [safe_name(each.name) for each in records]
    )
    report.equal("ids sent", [each["tool_call_id"] for each in results], [call["id"] for call in calls])
    report.equal("distinct ids", len({call["id"] for call in calls}), len(records))
    report.equal(
        "results sent",
        [each["content"].encode("utf-8", "replace").decode() for each in results],
        [record.result.encode("utf-8", "replace").decode() for record in records],
    )
    for call, record in zip(calls, records, strict=False):
        arguments = json.loads(call["function"]["arguments"])
        report.holds(f"{arguments!r} in the history is no object", claim=isinstance(arguments, dict))
        if not record.is_error:
            report.equal("arguments in the history", arguments, record.arguments)
    if "content" in expected:
        report.equal("content in the history", (said.get("content") or "").strip(), expected["content"])
    seen = expected.get("reasoning_field_seen")
    if seen:
        report.equal(f"{seen} sent back", said.get(seen), expected["reasoning"])
    if expected.get("stored_message_has_reasoning_field"):
        report.equal("reasoning_content sent back", said.get("reasoning_content"), "")


def _compare_events(expected: dict[str, Any], outcome: Outcome, report: _Report) -> None:
    """The order of events, and that nothing shown holds a marker."""
    letters = "".join(_EVENT_LETTERS[each.type] for each in outcome.events)
    if outcome.result is not None:
        report.holds(f"the events come in the order {letters}", claim=bool(_GRAMMAR.match(letters)))
        report.equal("run.text", outcome.text, outcome.result.text)
    shown = _shown(outcome.events)
    hidden = expected.get("streamed_text_must_not_contain")
    report.holds(f"a marker was shown: {shown!r}", claim=not _MARKER.search(shown))
    if hidden:
        report.holds(f"{hidden!r} was shown: {shown!r}", claim=hidden not in shown)
    if "events" in expected:
        words = [_EVENT_WORDS[each.type] for each in outcome.events if each.type in _EVENT_WORDS]
        collapsed = [word for place, word in enumerate(words) if not place or word != words[place - 1]]
        report.equal("events", [*collapsed, "done"], expected["events"])
    if expected.get("history_keeps_preamble") and outcome.result is not None:
        said = outcome.result.new_messages[1].get("content") or ""
        report.equal(
            "preamble", said, next(each.text for each in outcome.events if isinstance(each, TextReset))
        )


def _shown(events: Iterable[Event]) -> str:
    return "".join(each.text for each in events if isinstance(each, TextDelta | ReasoningDelta))
