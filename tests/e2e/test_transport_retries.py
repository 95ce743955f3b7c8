"""Which failures are asked again, how often, and what is left when it does not help."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent import (
    EngineOverloadedError,
    IncompleteStreamError,
    KimiAgent,
    KimiAgentError,
    ProtocolError,
    QuotaExhaustedError,
    RateLimitedError,
    RetryScheduled,
    RunLimits,
    ServerLoadingError,
    TransportConnectionError,
    TransportStatusError,
    TransportTimeoutError,
    Usage,
)
from kimi_agent.testing import (
    Close,
    Delay,
    Hang,
    Reply,
    Reset,
    adaptive_reply,
    chunk,
    error_reply,
    json_reply,
    stream_reply,
)
from tests.e2e.support import (
    FAST,
    asking_for,
    chat_requests,
    drained,
    events_of,
    is_valid_history,
    kinds,
    result_of,
    served,
    weather,
)

if TYPE_CHECKING:
    from kimi_agent.testing import ScriptedReply

pytestmark = pytest.mark.anyio

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
ANSWER = adaptive_reply("All is well.")
USER = {"role": "user", "content": "Hello"}
# A reset throws away what the client has not read yet.
GIVE_TIME = Delay(0.3)
# Long enough for a busy machine to answer in, short enough to wait for.
IMPATIENT = RunLimits(max_retry_delay_s=0.001, request_timeout_s=0.3)


def limits_for(name: str) -> RunLimits:
    """Only where a server falls silent is the limit for silence short."""
    return IMPATIENT if "silence" in name else FAST


def begun(*rest: Any, done: bool = False) -> Reply:
    """A stream that says "All is" and then does `rest`."""
    return stream_reply([chunk({"content": "All "}), chunk({"content": "is"}), *rest], done=done)


def wrapped(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


OVERLOADED = wrapped("The engine is currently overloaded", type="engine_overloaded_error")

# name -> reply, the error it stands for, and whether text was shown before it.
BROKEN_STREAMS: dict[str, tuple[Reply, type[KimiAgentError], bool]] = {
    "closed midway": (begun(Close()), TransportConnectionError, True),
    "reset midway": (begun(GIVE_TIME, Reset()), TransportConnectionError, True),
    "no finish reason and no [DONE]": (begun(), IncompleteStreamError, True),
    "nothing but the headers": (stream_reply([], done=False), IncompleteStreamError, False),
    "wrapped error object": (begun(OVERLOADED), EngineOverloadedError, True),
    "flat error object": (
        begun({"object": "error", "message": "internal failure", "type": "InternalServerError", "code": 500}),
        TransportStatusError,
        True,
    ),
    "error object with a numeric code": (
        begun({"choices": [], **wrapped("bad gateway", code=502)}),
        TransportStatusError,
        True,
    ),
    "error object first of all": (stream_reply([OVERLOADED], done=False), EngineOverloadedError, False),
    "error as a text": (begun({"error": "the worker died"}), TransportStatusError, True),
    "broken json": (begun('data: {"choices": [\n\n'), ProtocolError, True),
    "json that is no object": (begun("data: [1]\n\n"), ProtocolError, True),
    "silence midway": (begun(Hang()), TransportTimeoutError, True),
}

BROKEN_BEFORE: dict[str, tuple[Reply, type[KimiAgentError]]] = {
    "closed before the answer": (Reply(before=(Close(),)), TransportConnectionError),
    "reset before the answer": (Reply(before=(Reset(),)), TransportConnectionError),
    "silence before the answer": (Reply(before=(Hang(),)), TransportTimeoutError),
    "408": (error_reply(408, "timed out"), TransportStatusError),
    "409": (error_reply(409, "conflict"), TransportStatusError),
    "429 rate": (error_reply(429, "too fast", type="rate_limit_reached_error"), RateLimitedError),
    "429 overloaded": (error_reply(429, "busy", type="engine_overloaded_error"), EngineOverloadedError),
    "500": (error_reply(500, "broken", type="server_error"), TransportStatusError),
    "502 page": (Reply(status=502, body="<html>Bad Gateway</html>"), TransportStatusError),
    "503": (error_reply(503, "loading", type="unavailable_error"), ServerLoadingError),
    "504 page": (Reply(status=504, body="<html>Gateway Time-out</html>"), TransportStatusError),
    "529": (error_reply(529, "overloaded"), EngineOverloadedError),
    "200 with an error object": (json_reply(OVERLOADED), EngineOverloadedError),
}


@pytest.mark.parametrize("name", BROKEN_STREAMS)
async def test_a_broken_stream_is_sent_again_and_its_text_withdrawn(name: str) -> None:
    broken, kind, shows = BROKEN_STREAMS[name]
    async with served([broken, ANSWER], limits=limits_for(name)) as (server, agent):
        events, result = await events_of(agent)

    [retry] = [event for event in events if isinstance(event, RetryScheduled)]
    assert type(retry.error) is kind
    assert retry.attempt == 1
    assert retry.error.partial_text == ("All is" if shows else "")
    before = ["step_started", *(["text_delta", "text_reset"] if shows else []), "retry_scheduled"]
    assert kinds(events) == [*before, "text_delta", "step_finished"]
    assert [event.text for event in events if event.type == "text_reset"] == (["All is"] if shows else [])
    assert result.text == "All is well."
    assert result.messages == [USER, {"role": "assistant", "content": "All is well."}]
    assert len(server.requests) == 2
    assert server.requests[0].raw == server.requests[1].raw


@STREAMED
@pytest.mark.parametrize("name", BROKEN_BEFORE)
async def test_a_failure_that_may_pass_is_asked_again(name: str, streamed: bool) -> None:
    broken, kind = BROKEN_BEFORE[name]
    async with served([broken, broken, ANSWER], limits=limits_for(name)) as (server, agent):
        if streamed:
            events, result = await events_of(agent)
            retries = [event for event in events if isinstance(event, RetryScheduled)]
            assert [(event.attempt, type(event.error)) for event in retries] == [(1, kind), (2, kind)]
        else:
            result = await agent.run("Hello")

    assert result.text == "All is well."
    assert len(server.requests) == 3


WHOLE_BROKEN: dict[str, tuple[Reply, type[KimiAgentError]]] = {
    "cut body": (
        Reply(headers={"content-length": "500"}, body=['{"choices": ['], framing="close"),
        TransportConnectionError,
    ),
    "reset midway": (Reply(body=['{"choices": [', GIVE_TIME, Reset()]), TransportConnectionError),
    "silence midway": (
        Reply(headers={"content-type": "application/json"}, body=['{"choices": [', Hang()]),
        TransportTimeoutError,
    ),
    "broken json": (Reply(headers={"content-type": "application/json"}, body='{"choices": ['), ProtocolError),
}


@pytest.mark.parametrize("name", WHOLE_BROKEN)
async def test_a_whole_reply_that_breaks_is_asked_again(name: str) -> None:
    broken, kind = WHOLE_BROKEN[name]
    async with served([broken, ANSWER, broken], limits=limits_for(name)) as (server, agent):
        assert (await agent.run("Hello")).text == "All is well."
        never = KimiAgent(
            "kimi-k2", base_url=server.base_url, limits=replace(limits_for(name), max_retries=0)
        )
        async with never:
            with pytest.raises(KimiAgentError) as caught:
                await never.run("Hello")

    assert type(caught.value) is kind


@STREAMED
async def test_when_retries_are_used_up_the_last_error_comes_with_all_that_was_done(streamed: bool) -> None:
    script: list[ScriptedReply] = [
        asking_for(("weather", {"city": "Paris"})),
        error_reply(503, "first", type="server_unavailable"),
        begun(Close()) if streamed else Reply(before=(Close(),)),
        error_reply(500, "third", type="server_error"),
        ANSWER,
    ]
    async with served(script, tools=[weather]) as (server, agent):
        with pytest.raises(TransportStatusError, match="third") as caught:
            await result_of(agent, streamed=streamed)

    result = caught.value.result
    assert len(server.requests) == 4
    assert result.finish_reason == "error"
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool"]
    assert is_valid_history(result.messages)
    assert [call.name for call in result.tool_calls] == ["weather"]
    assert [step.step for step in result.steps] == [1]


async def test_the_text_of_the_last_attempt_is_kept_with_the_error() -> None:
    async with served([begun(Close())] * 3) as (_, agent):
        run = agent.stream("Hello")
        with pytest.raises(TransportConnectionError) as caught:
            await drained(run)

    assert caught.value.partial_text == "All is"
    assert caught.value.result.messages == [USER]
    assert run.result.messages == [USER]


async def test_an_error_that_ended_a_run_can_be_gone_on_from() -> None:
    script = [asking_for(("weather", {"city": "Paris"})), error_reply(400, "no"), ANSWER]
    async with served(script, tools=[weather]) as (_, agent):
        with pytest.raises(TransportStatusError) as caught:
            await agent.run("Hello")
        result = await agent.run(None, history=caught.value.result.messages)

    assert result.text == "All is well."
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool", "assistant"]


NEVER_AGAIN: dict[str, tuple[Reply, type[TransportStatusError]]] = {
    "429 quota by type": (
        error_reply(429, "Your account is suspended", type="exceeded_current_quota_error"),
        QuotaExhaustedError,
    ),
    "429 quota by words": (
        error_reply(429, "You exceeded your current quota, please check your plan and billing details"),
        QuotaExhaustedError,
    ),
    "429 token quota by words": (
        error_reply(429, "You exceeded your current token quota", type="rate_limit_reached_error"),
        QuotaExhaustedError,
    ),
    "429 tokens a day": (
        error_reply(
            429,
            "Your account org<key> request reached organization TPD rate limit, current: 9, limit: 9",
            type="rate_limit_reached_error",
        ),
        QuotaExhaustedError,
    ),
    "402": (error_reply(402, "Payment Required", type="billing"), QuotaExhaustedError),
    "403 balance": (error_reply(403, "insufficient balance, please recharge"), QuotaExhaustedError),
    "400": (error_reply(400, "bad field"), TransportStatusError),
    "401": (error_reply(401, "no"), TransportStatusError),
    "403": (error_reply(403, "no"), TransportStatusError),
    "404": (error_reply(404, "Not found the model x or Permission denied"), TransportStatusError),
    "413": (error_reply(413, "too large"), TransportStatusError),
    "422": (error_reply(422, "bad field"), TransportStatusError),
    "quota inside a stream": (
        begun(wrapped("You exceeded your current quota", type="exceeded_current_quota_error")),
        QuotaExhaustedError,
    ),
    "content filter inside a stream": (
        begun(wrapped("The request was rejected because it was considered high risk", type="content_filter")),
        TransportStatusError,
    ),
    "wrong key inside a stream": (
        begun(wrapped("Invalid Authentication", type="invalid_authentication_error", code=401)),
        TransportStatusError,
    ),
}


@pytest.mark.parametrize("name", NEVER_AGAIN)
async def test_a_failure_that_will_not_pass_is_never_asked_again(name: str) -> None:
    refusal, kind = NEVER_AGAIN[name]
    async with served([refusal, ANSWER, ANSWER]) as (server, agent):
        with pytest.raises(kind) as caught:
            await events_of(agent)

    assert len(chat_requests(server)) == 1
    assert not caught.value.retryable


@pytest.mark.parametrize("max_retries", [0, 1, 4])
async def test_each_step_may_be_repeated_as_often_as_allowed_and_no_oftener(max_retries: int) -> None:
    limits = RunLimits(max_retries=max_retries, max_retry_delay_s=0.001)
    broken = error_reply(500, "broken", type="server_error")
    round_ = asking_for(("weather", {"city": "Paris"}))
    script = [*[broken] * max_retries, round_, *[broken] * (max_retries + 1), ANSWER]
    async with served(script, tools=[weather], limits=limits) as (server, agent):
        with pytest.raises(TransportStatusError):
            await agent.run("Hello")

    assert len(server.requests) == 2 * (max_retries + 1)


async def test_retries_are_no_steps_and_are_counted_as_requests() -> None:
    broken = error_reply(500, "broken", type="server_error")
    round_ = asking_for(("weather", {"city": "Paris"}))
    limits = RunLimits(max_steps=2, max_retry_delay_s=0.001)
    async with served([broken, round_, broken, broken, ANSWER], tools=[weather], limits=limits) as (
        server,
        agent,
    ):
        result = await agent.run("Hello")

    assert len(server.requests) == 5
    assert len(result.steps) == 2
    assert result.usage == Usage(requests=5)
