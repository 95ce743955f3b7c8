"""What real engines sent, played again byte for byte, and what a user gets from it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from openai import AsyncOpenAI

from kimi_agent import KimiAgent, ModelOptions, RunLimits, RunResult, Tool, errors
from kimi_agent.events import ReasoningDelta, TextDelta
from kimi_agent.testing import (
    KimiServer,
    ReceivedRequest,
    Reply,
    ScriptedReply,
    adaptive_reply,
    json_reply,
    stream_reply,
)
from tests.recordings import Recording, expected, load
from tests.recordings.derive_expected import chunks, declared_tools, expectation

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPECTED = expected()
RECORDINGS = list(load())
CHAT = [each for each in RECORDINGS if each.method == "POST" and each.path == "/v1/chat/completions"]
RAW = [each for each in RECORDINGS if each.path == "/v1/completions"]
OTHER = [each for each in RECORDINGS if each.method == "GET"]
MODELS = [each for each in OTHER if each.path == "/v1/models"]
# Histories that this library sends to no server.
REFUSED_HERE = [each for each in CHAT if each.case in {"bad_role", "no_messages"}]

# Set anew by whoever sends the body.
FRAMING_HEADERS = {"transfer-encoding", "content-length", "connection", "keep-alive"}
OPTION_NAMES = ("temperature", "seed", "tool_choice", "parallel_tool_calls", "response_format")
NOT_OPTIONS = {*OPTION_NAMES, "model", "messages", "prompt", "tools", "stream", "stream_options", "stop"}


class Stage:
    """The script of the one server of this module: a test sets what it plays next."""

    def __init__(self) -> None:
        self.replies: list[ScriptedReply] = []
        self.requests: list[ReceivedRequest] = []
        self.models = json_reply({"object": "list", "data": []})

    def play(self, first: ScriptedReply) -> None:
        """Answer the next request with `first`, and all after it with a plain "done"."""
        self.replies = [first]
        self.requests = []

    def model_list(self, _: ReceivedRequest) -> Reply:
        """Answer `/v1/models`."""
        return self.models

    def __call__(self, request: ReceivedRequest) -> Reply:
        self.requests.append(request)
        reply = self.replies.pop() if self.replies else adaptive_reply("done")
        return reply if isinstance(reply, Reply) else reply(request)


@dataclass
class Outcome:
    """What a user saw of one run."""

    result: RunResult
    executed: list[tuple[str, Any]]
    shown: str = ""
    """All text and reasoning that the events carried, withdrawn or not; empty if not streamed."""


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage()


@pytest.fixture(scope="module")
def server(stage: Stage) -> Iterator[KimiServer]:
    with KimiServer(replies={"/v1/chat/completions": stage, "/v1/models": stage.model_list}) as server:
        yield server


@pytest.fixture(scope="module")
def client(portal: BlockingPortal, server: KimiServer) -> Iterator[AsyncOpenAI]:
    # One for all: making a client costs more than a run. Its own retries are on, as users leave them.
    client = portal.call(lambda: AsyncOpenAI(base_url=server.base_url, api_key="none"))
    yield client
    portal.call(client.close)


def reply_of(recording: Recording) -> Reply:
    """The recorded answer, one write for each server-sent event."""
    headers = {name: value for name, value in recording.headers.items() if name not in FRAMING_HEADERS}
    events = re.split(r"(?<=\n\n)", recording.body)
    body = [event for event in events if event] if recording.is_stream else recording.body
    return Reply(status=recording.status, headers=headers, body=body)


def options_of(request: dict[str, Any]) -> ModelOptions:
    """The recorded request's options; what has no option of its own goes into `extra_body`."""
    known = {name: request[name] for name in OPTION_NAMES if name in request}
    extra = {name: value for name, value in request.items() if name not in NOT_OPTIONS}
    limit = extra.pop("max_tokens", None) or extra.pop("max_completion_tokens", None)
    if known.get("temperature", 0) < 0:
        # The options refuse it; the recording is about the server's answer to it.
        extra["temperature"] = known.pop("temperature")
    stop = tuple(request["stop"]) if "stop" in request else None
    return ModelOptions(**known, max_output_tokens=limit, stop=stop, extra_body=extra)


async def run(
    recording: Recording,
    client: AsyncOpenAI,
    *,
    model: str | None = "kimi-k2",
    messages: list[dict[str, Any]] | None = None,
) -> Outcome:
    """Drive the public API as the recorded request asks."""
    request: dict[str, Any] = recording.request or {}
    executed: list[tuple[str, Any]] = []

    def tool_of(name: str, parameters: dict[str, Any]) -> Tool:
        async def function(arguments: dict[str, Any]) -> str:
            executed.append((name, arguments))
            return "ok"

        return Tool(name=name, description=f"{name}, recorded.", parameters=parameters, function=function)

    agent = KimiAgent(
        model,
        tools=[tool_of(name, schema) for name, schema in declared_tools(recording).items()],
        client=client,
        options=options_of(request),
        limits=RunLimits(max_retries=0),
    )
    history = request.get("messages") if messages is None else messages
    with anyio.fail_after(20):
        if not request.get("stream"):
            return Outcome(await agent.run(None, history=history), executed)
        async with agent.stream(None, history=history) as running:
            shown = [event.text async for event in running if isinstance(event, TextDelta | ReasoningDelta)]
        return Outcome(running.result, executed, "".join(shown))


def check(wanted: dict[str, Any], outcome: Outcome, requests: int) -> None:
    """Compare what came of the first reply with the expected entry."""
    result, following = outcome.result, wanted["next"]
    will_run = [(call["name"], call["arguments"]) for call in wanted["calls"] if call["outcome"] == "run"]

    assert requests == (1 if following == "final" else 2)
    assert result.text.strip() == (wanted["text"] if following == "final" else "done")
    assert in_order(outcome.executed) == in_order(will_run)
    assert "<|" not in outcome.shown
    assert "think>" not in outcome.shown
    if following == "retry_once":
        assert result.tool_calls == []
        return
    check_message(wanted, result)
    check_calls(wanted, result)
    check_step(wanted, result)


def check_message(wanted: dict[str, Any], result: RunResult) -> None:
    """The first message: its text, its reasoning, and nothing of the control tokens."""
    message: dict[str, Any] = dict(result.new_messages[0])
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""

    assert message["role"] == "assistant"
    assert (message.get("content") or "").strip() == wanted["text"]
    assert reasoning.strip() == (wanted["reasoning"] or "")


def check_calls(wanted: dict[str, Any], result: RunResult) -> None:
    """The calls of the first step: a cut one is left out, or alone answered with an error."""
    whole = [call for call in wanted["calls"] if call["outcome"] != "truncated"]
    records = [record for record in result.tool_calls if record.step == 1]
    if wanted["next"] == "truncated":
        assert [record.is_error for record in records] == [True]
        assert "truncated_call" in {repair.kind for repair in result.steps[0].repairs}
        return

    assert [record.name for record in records] == [call["name"] for call in whole]
    assert [record.is_error for record in records] == [call["outcome"] != "run" for call in whole]
    assert [record.arguments for record in records] == [call["arguments"] for call in whole]


def check_step(wanted: dict[str, Any], result: RunResult) -> None:
    """The first step's finish reason and tokens, as the server gave them."""
    step = result.steps[0]
    counts: dict[str, int | None] = wanted["usage"] or {}

    assert step.raw_finish_reason == wanted["finish_reason"]
    assert wanted.get("repaired", False) in {bool(step.repairs), None}, step.repairs
    for name, count in counts.items():
        assert getattr(step.usage, name) == (count or 0), name


def in_order(calls: list[tuple[str, Any]]) -> list[str]:
    """Calls in an order of their own: tools run side by side."""
    return sorted(json.dumps(call, sort_keys=True) for call in calls)


def check_error(wanted: dict[str, Any], caught: errors.KimiAgentError) -> None:
    """The class a user catches, and the numbers in it."""
    assert type(caught) is getattr(errors, wanted["error"])
    assert isinstance(caught, errors.TransportStatusError)
    assert caught.status_code == wanted["status"]
    for name in ("limit_tokens", "requested_tokens"):
        assert getattr(caught, name, None) == wanted.get(name), name


TAUGHT = {"raw_tool_mode", "field_dropped"}


def play(
    recording: Recording, reply: Reply, portal: BlockingPortal, stage: Stage, client: AsyncOpenAI, **how: Any
) -> None:
    """Play one reply and check what the user gets."""
    wanted = EXPECTED[recording.id]
    stage.play(reply)

    def carry_out() -> Outcome:
        return portal.call(lambda: run(recording, client, **how))

    if wanted["kind"] == "error":
        try:
            outcome = carry_out()
        except errors.TransportStatusError as caught:
            check_error(wanted, caught)
        else:
            # The refusal taught something, so the request went out once more, changed.
            assert TAUGHT & {repair.kind for repair in outcome.result.repairs}
            assert len(stage.requests) == 2
            return
    elif wanted["next"] == "model_error":
        with pytest.raises(errors.ModelError):
            carry_out()
    else:
        check(wanted, carry_out(), len(stage.requests))
        return

    assert len(stage.requests) == 1


@pytest.mark.parametrize("recording", CHAT, ids=lambda recording: recording.id)
def test_a_recorded_chat_gives_the_user_what_the_exchange_holds(
    recording: Recording, portal: BlockingPortal, stage: Stage, client: AsyncOpenAI
) -> None:
    messages = [{"role": "user", "content": "Hello"}] if recording in REFUSED_HERE else None

    play(recording, reply_of(recording), portal, stage, client, messages=messages)


@pytest.mark.parametrize("recording", REFUSED_HERE, ids=lambda recording: recording.id)
def test_a_history_no_server_can_use_is_refused_before_it_is_sent(
    recording: Recording, portal: BlockingPortal, stage: Stage, client: AsyncOpenAI
) -> None:
    stage.play(reply_of(recording))

    with pytest.raises(errors.ConfigurationError):
        portal.call(lambda: run(recording, client))

    assert stage.requests == []


# --- raw text ----------------------------------------------------------------------------------------


def as_chat(recording: Recording) -> Reply:
    """The recorded text as a server without parsers sends it in a chat, cut where it was cut."""
    if recording.status != 200:
        return reply_of(recording)
    sent: list[dict[str, Any]] = []
    for received in chunks(recording):
        choices = [
            {
                "index": choice["index"],
                "finish_reason": choice["finish_reason"],
                "delta" if recording.is_stream else "message": {
                    "role": "assistant",
                    "content": choice["text"],
                },
            }
            for choice in received["choices"]
        ]
        sent.append({**received, "choices": choices})
    return stream_reply(sent) if recording.is_stream else json_reply(sent[0])


def asked(recording: Recording) -> list[dict[str, Any]]:
    """The question in a rendered prompt."""
    question = re.search(
        r"<\|im_user\|>user<\|im_middle\|>(.*)<\|im_end\|><\|im_assistant\|>", prompt_of(recording)
    )
    return [{"role": "user", "content": question[1] if question else prompt_of(recording)}]


def prompt_of(recording: Recording) -> str:
    return recording.request["prompt"]


@pytest.mark.parametrize("recording", RAW, ids=lambda recording: recording.id)
def test_raw_text_recordings_come_out_the_same_as_content_of_a_chat(
    recording: Recording, portal: BlockingPortal, stage: Stage, client: AsyncOpenAI
) -> None:
    play(recording, as_chat(recording), portal, stage, client, messages=asked(recording))


# --- everything else -----------------------------------------------------------------------------------


@pytest.mark.parametrize("recording", MODELS, ids=lambda recording: recording.id)
def test_without_a_model_the_one_in_the_servers_list_is_used(
    recording: Recording, portal: BlockingPortal, stage: Stage, client: AsyncOpenAI
) -> None:
    stage.models = reply_of(recording)
    stage.play(adaptive_reply("done"))
    hello = [{"role": "user", "content": "Hello"}]

    def carry_out() -> Outcome:
        return portal.call(lambda: run(recording, client, model=None, messages=hello))

    if recording.status == 401:
        with pytest.raises(errors.AuthenticationError):
            carry_out()
        return

    assert carry_out().result.text == "done"
    assert [request.body["model"] for request in stage.requests] == [
        json.loads(recording.body)["data"][0]["id"]
    ]


# --- the expected entries themselves ----------------------------------------------------------------------


def test_every_recording_has_an_expected_entry_and_every_entry_a_recording() -> None:
    assert sorted(EXPECTED) == sorted(recording.id for recording in RECORDINGS)
    assert len(CHAT) + len(RAW) + len(OTHER) == len(RECORDINGS) == 1244


def test_the_expected_files_are_what_the_script_writes() -> None:
    derived = {recording.id: expectation(recording) for recording in RECORDINGS}

    assert derived == EXPECTED


@pytest.mark.parametrize("ending", ["", "_stream"])
def test_chat_and_raw_text_of_the_same_prompt_agree(ending: str) -> None:
    pairs = [
        (recording.id.replace("/completions", "/one_call"), recording)
        for recording in RAW
        if recording.case == f"completions{ending}"
    ]
    compared = [pair for pair in pairs if EXPECTED.get(pair[0], {}).get("kind") == "reply"]

    assert len(compared) >= 8
    for chat_id, recording in compared:
        chat, raw = EXPECTED[chat_id], EXPECTED[recording.id]

        assert chat["calls"] == raw["calls"], chat_id
        if recording.config == "parser-reasoning":
            # The engine's reasoning parser takes the text of a model that does not think.
            assert (chat["text"], chat["reasoning"]) == ("", raw["text"]), chat_id
        else:
            assert (chat["text"], chat["reasoning"]) == (raw["text"], raw["reasoning"]), chat_id


def test_the_same_words_give_the_same_calls_in_chat_and_as_raw_text() -> None:
    forced = {
        recording.request["structured_outputs"]["choice"][0]: recording
        for recording in CHAT
        if recording.engine.startswith("vllm")
        and recording.config == "parser"
        and "_stream" not in recording.case
        if "structured_outputs" in recording.request
    }
    compared = 0
    for recording in RAW:
        said = "".join(choice["text"] for choice in chunks(recording)[0].get("choices", []))
        chat = forced.get(said.rpartition("</think>")[2])
        # Where the engine lost the call there is nothing to compare.
        if chat is None or EXPECTED[chat.id]["next"] == "retry_once":
            continue
        compared += 1

        assert EXPECTED[chat.id]["calls"] == EXPECTED[recording.id]["calls"], (chat.id, recording.id)

    assert compared >= 12
