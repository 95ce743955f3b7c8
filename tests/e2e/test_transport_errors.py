"""Servers that speak no API, secrets that must not be told, and errors that can be carried elsewhere."""

from __future__ import annotations

import logging
import pickle
import traceback
from typing import TYPE_CHECKING

import anyio
import openai
import pytest

from kimi_agent import (
    AuthenticationError,
    IncompleteStreamError,
    InvalidRequestError,
    KimiAgent,
    KimiAgentError,
    ModelError,
    ModelOptions,
    ProtocolError,
    RunLimits,
    StepLimitError,
    TransportConnectionError,
    TransportError,
    TransportTimeoutError,
    errors,
)
from kimi_agent.testing import (
    Close,
    Hang,
    KimiServer,
    Reply,
    adaptive_reply,
    chunk,
    error_reply,
    json_reply,
    stream_reply,
)
from tests.e2e.refusals import CASES
from tests.e2e.support import CHAT, LONGEST_S, asking_for, chat_requests, drained, result_of, served, weather

if TYPE_CHECKING:
    from kimi_agent.testing import ReceivedRequest, ScriptedReply

pytestmark = pytest.mark.anyio

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
NO_RETRY = RunLimits(max_retries=0)
SECRET = "sk-aVerySecretKey0123456789"


# --- what is no API at all ------------------------------------------------------------------------

PAGE = Reply(headers={"content-type": "text/html"}, body="<!doctype html><html>Welcome to nginx</html>")
NOT_AN_API: dict[str, Reply] = {
    "page": PAGE,
    "page in pieces": Reply(headers={"content-type": "text/html"}, body=["<!doctype html>", "<html>Welcome"]),
    "plain text": Reply(headers={"content-type": "text/plain"}, body="Ollama is running"),
    "json array": json_reply([1, 2]),
    "json text": json_reply("hello"),
    "json with a wrong type": Reply(headers={"content-type": "application/json"}, body="<html>"),
    "binary": Reply(headers={"content-type": "application/octet-stream"}, body=b"\x00\xff\xfe" * 50),
}


@STREAMED
@pytest.mark.parametrize("name", NOT_AN_API)
async def test_a_server_that_speaks_no_json_is_told_as_such(name: str, streamed: bool) -> None:
    async with served([NOT_AN_API[name]], limits=NO_RETRY) as (server, agent):
        with pytest.raises(ProtocolError) as caught:
            await result_of(agent, streamed=streamed)
        url = server.base_url

    assert type(caught.value) is ProtocolError
    assert url in str(caught.value)
    assert caught.value.raw


EMPTY_REPLIES: dict[str, Reply] = {
    "empty object": json_reply({}),
    "no choices": json_reply({"choices": []}),
    "null choices": json_reply({"choices": None}),
    "choices of wrong type": json_reply({"choices": "none"}),
    "choice of wrong type": json_reply({"choices": [7]}),
    "message of wrong type": json_reply({"choices": [{"message": "hello", "finish_reason": "stop"}]}),
}


@pytest.mark.parametrize("name", EMPTY_REPLIES)
async def test_a_reply_without_anything_in_it_is_an_error_and_never_an_answer(name: str) -> None:
    async with served([EMPTY_REPLIES[name]] * 2, limits=NO_RETRY) as (server, agent):
        with pytest.raises((ModelError, ProtocolError)):
            await agent.run("Hello")

    assert len(server.requests) == 2


async def test_a_reply_larger_than_allowed_is_given_up() -> None:
    limits = RunLimits(max_reply_bytes=10_000, max_retries=0)
    huge = adaptive_reply("x" * 20_000, cuts=5000)
    endless = stream_reply(["data: " + "x" * 6000, "x" * 6000, Hang()])
    async with served([huge, huge, endless], limits=limits) as (_, agent):
        for streamed in (False, True, True):
            with pytest.raises(ProtocolError, match="max_reply_bytes"):
                await result_of(agent, streamed=streamed)


# --- secrets --------------------------------------------------------------------------------------


def echo(request: ReceivedRequest) -> Reply:
    """A server that is careless with keys."""
    key = request.headers["authorization"]
    return json_reply(
        {"error": {"message": f"Incorrect API key provided: {key}", "type": "invalid_api_key"}}, status=401
    )


def everything_told(error: BaseException) -> str:
    """What a log or a traceback shows of an error."""
    shown = traceback.format_exception(error)
    # The lines of our own source that a traceback quotes are no news.
    told = [line for line in "".join(shown).splitlines() if not line.startswith("    ")]
    return "\n".join([*told, repr(error), repr(vars(error))])


@STREAMED
async def test_a_key_that_the_server_repeats_is_in_no_message_repr_or_log(
    streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    options = ModelOptions(extra_headers={"x-internal-token": "header-secret-1"})
    with caplog.at_level(logging.DEBUG):
        async with served(echo, api_key=SECRET, options=options) as (_, agent):
            with pytest.raises(AuthenticationError) as caught:
                await result_of(agent, streamed=streamed)
            told = everything_told(caught.value) + repr(agent) + repr(agent.stream("x"))

    assert SECRET not in told
    assert "header-secret-1" not in told
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("kimi_agent")]
    assert not any(SECRET in line or "header-secret-1" in line for line in ours)


async def test_a_short_key_of_a_local_server_is_hidden_too() -> None:
    async with served(echo, api_key="letmein9") as (_, agent):
        with pytest.raises(AuthenticationError) as caught:
            await agent.run("Hello")

    assert "letmein9" not in everything_told(caught.value)


@pytest.mark.parametrize(
    "reply",
    [
        error_reply(500, "x", type="server_error"),
        Reply(before=(Close(),)),
        PAGE,
        error_reply(404, "no such path"),
    ],
    ids=["status", "connection", "page", "path"],
)
async def test_a_password_in_the_address_is_in_no_message(reply: Reply) -> None:
    with anyio.fail_after(LONGEST_S):
        async with KimiServer(replies=reply) as server:
            url = server.base_url.replace("http://", "http://user:hunter22@")
            async with KimiAgent("kimi-k2", base_url=url, limits=NO_RETRY) as agent:
                with pytest.raises(KimiAgentError) as caught:
                    await agent.run("Hello")

    assert "hunter22" not in everything_told(caught.value)


async def test_a_key_in_a_clients_query_is_in_no_message() -> None:
    with anyio.fail_after(LONGEST_S):
        async with (
            KimiServer(replies=error_reply(500, "x", type="server_error")) as server,
            openai.AsyncOpenAI(
                base_url=server.base_url, api_key=SECRET, default_query={"key": "query-secret-1"}
            ) as client,
        ):
            with pytest.raises(KimiAgentError) as caught:
                await KimiAgent("kimi-k2", client=client, limits=NO_RETRY).run("Hello")

    told = everything_told(caught.value)
    assert SECRET not in told
    assert "query-secret-1" not in told


# --- every error can be carried elsewhere -----------------------------------------------------------


GIVEN_UP = RunLimits(max_retries=0, max_retry_delay_s=0.001, loading_timeout_s=0.0001)


async def raised_errors() -> list[KimiAgentError]:
    """One error of each kind a run can raise, as a run raises it."""
    scripts: list[tuple[list[ScriptedReply], RunLimits]] = [
        # Again and again, for what a refusal teaches; a loading server is given up at once.
        *(([case.reply] * 40, GIVEN_UP) for case in CASES.values()),
        ([Reply(before=(Close(),))], NO_RETRY),
        ([Reply(before=(Hang(),))], RunLimits(max_retries=0, request_timeout_s=0.05)),
        ([PAGE], NO_RETRY),
        ([stream_reply([chunk({"content": "x"})], done=False)], NO_RETRY),
        ([adaptive_reply(""), adaptive_reply("")], NO_RETRY),
        ([asking_for(("weather", {"city": "Paris"}))], RunLimits(max_steps=1)),
    ]
    raised: list[KimiAgentError] = []
    for script, limits in scripts:
        async with served({CHAT: script}, tools=[weather], limits=limits) as (_, agent):
            with pytest.raises(KimiAgentError) as caught:
                await result_of(agent, streamed=True)
            raised.append(caught.value)
    return raised


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_every_error_survives_pickling_with_its_fields_and_its_result() -> None:
    for error in await raised_errors():
        copied = pickle.loads(pickle.dumps(error))  # noqa: S301 - pickled one line ago

        assert type(copied) is type(error)
        assert str(copied) == str(error)
        assert vars(copied) == vars(error)
        assert copied.result.messages == error.result.messages


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_every_class_of_transport_error_is_raised_by_some_server_here() -> None:
    seen = {type(error) for error in await raised_errors()}

    assert seen >= {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, TransportError) and kind is not TransportError
    }
    assert seen >= {
        ProtocolError,
        IncompleteStreamError,
        ModelError,
        StepLimitError,
        TransportConnectionError,
        TransportTimeoutError,
    }


async def test_an_error_comes_out_alone_and_with_its_cause() -> None:
    async with served([error_reply(400, "no")]) as (server, agent):
        run = agent.stream("Hello")
        with pytest.raises(InvalidRequestError) as caught:
            await drained(run)
        assert len(chat_requests(server)) == 1

    assert isinstance(caught.value.__cause__, openai.APIStatusError)
    assert run.result.finish_reason == "error"
