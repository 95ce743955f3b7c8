"""Which failures are asked again, how often, how soon, and what is left when it does not help."""

from __future__ import annotations

import math
import socket
from typing import TYPE_CHECKING, Any

import anyio
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
    LONGEST_S,
    asking_for,
    chat_requests,
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
SOON = RunLimits(max_retry_delay_s=0.001, request_timeout_s=0.15)


def begun(*rest: Any, done: bool = False) -> Reply:
    """A stream that says "All is" and then does `rest`."""
    return stream_reply([chunk({"content": "All "}), chunk({"content": "is"}), *rest], done=done)


def wrapped(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


OVERLOADED = wrapped("The engine is currently overloaded", type="engine_overloaded_error")

# name -> reply, the error it stands for, and whether text was shown before it.
BROKEN_STREAMS: dict[str, tuple[Reply, type[KimiAgentError], bool]] = {
    "closed midway": (begun(Close()), TransportConnectionError, True),
    "reset midway": (begun(Delay(0.02), Reset()), TransportConnectionError, True),
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
    "503": (error_reply(503, "loading", type="unavailable_error"), TransportStatusError),
    "504 page": (Reply(status=504, body="<html>Gateway Time-out</html>"), TransportStatusError),
    "529": (error_reply(529, "overloaded"), EngineOverloadedError),
    "200 with an error object": (json_reply(OVERLOADED), EngineOverloadedError),
}


@pytest.mark.parametrize("name", BROKEN_STREAMS)
async def test_a_broken_stream_is_sent_again_and_its_text_withdrawn(name: str) -> None:
    broken, kind, shows = BROKEN_STREAMS[name]
    async with served([broken, ANSWER], limits=SOON) as (server, agent):
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
    async with served([broken, broken, ANSWER], limits=SOON) as (server, agent):
        if streamed:
            events, result = await events_of(agent)
            retries = [event for event in events if isinstance(event, RetryScheduled)]
            assert [(event.attempt, type(event.error)) for event in retries] == [(1, kind), (2, kind)]
        else:
            result = await agent.run("Hello")

    assert result.text == "All is well."
    assert len(server.requests) == 3


WHOLE_BROKEN: dict[str, tuple[Reply, type[KimiAgentError]]] = {
    "cut body": (Reply(headers={"content-length": "500"}, body=['{"choices": ['], framing="close"), TransportConnectionError),
    "reset midway": (Reply(body=['{"choices": [', Delay(0.02), Reset()]), TransportConnectionError),
    "silence midway": (
        Reply(headers={"content-type": "application/json"}, body=['{"choices": [', Hang()]),
        TransportTimeoutError,
    ),
    "broken json": (Reply(headers={"content-type": "application/json"}, body='{"choices": ['), ProtocolError),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE_BROKEN)
async def test_a_whole_reply_that_breaks_is_asked_again(name: str) -> None:
    broken, kind = WHOLE_BROKEN[name]
    async with served([broken, ANSWER, broken], limits=SOON) as (server, agent):
        assert (await agent.run("Hello")).text == "All is well."
        never = KimiAgent(
            "kimi-k2", base_url=server.base_url, limits=RunLimits(max_retries=0, request_timeout_s=0.15)
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
            async with run:
                async for _ in run:
                    pass

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


# --- how soon ---------------------------------------------------------------------------------


async def delays(script: list[ScriptedReply], limits: RunLimits) -> list[float]:
    async with served(script, limits=limits) as (_, agent):
        events, _ = await events_of(agent)
    return [event.delay_s for event in events if isinstance(event, RetryScheduled)]


@pytest.mark.parametrize(
    ("headers", "message", "expected"),
    [
        ({"retry-after": "0.02"}, "too fast", 0.02),
        ({"retry-after": "0"}, "too fast", 0.0),
        ({"retry-after-ms": "15"}, "too fast", 0.015),
        ({"retry-after": "900"}, "too fast", 0.1),
        ({"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"}, "too fast", 0.1),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, "too fast", 0.0),
        ({}, "reached max RPM rate limit, please try again after 0.03 seconds", 0.03),
        ({}, "request reached organization max concurrency: 3, please try again after 1 seconds", 0.1),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_the_wait_the_server_asks_for_is_kept_up_to_the_limit(
    headers: dict[str, str], message: str, expected: float, status: int
) -> None:
    busy = json_reply(wrapped(message, type="rate_limit_reached_error"), status=status, headers=headers)
    seen = await delays([busy, ANSWER], RunLimits(max_retry_delay_s=0.1))

    assert seen == [pytest.approx(expected)]


@pytest.mark.parametrize("value", ["soon", "", "nan", "inf", "-5", "1e400"])
async def test_a_wait_that_makes_no_sense_is_not_waited_for(value: str) -> None:
    busy = error_reply(429, "too fast", type="rate_limit_reached_error")
    odd = Reply(status=429, headers={**busy.headers, "retry-after": value}, body=busy.body)
    [seen] = await delays([odd, ANSWER], RunLimits(max_retry_delay_s=0.05))

    assert math.isfinite(seen)
    assert 0 <= seen <= 0.05


async def test_the_wait_is_real() -> None:
    busy = error_reply(429, "too fast", type="rate_limit_reached_error", retry_after_s=0.2)
    async with served([busy, ANSWER], limits=RunLimits()) as (_, agent):
        started = anyio.current_time()
        await agent.run("Hello")

        assert anyio.current_time() - started >= 0.2


async def test_without_a_word_of_the_server_the_waits_grow() -> None:
    """Read from the first waits only, so that the test does not have to sit through them."""
    async with served([error_reply(500, "x", type="server_error"), ANSWER], limits=RunLimits()) as (_, agent):
        async with agent.stream("Hello") as run:
            async for event in run:
                if isinstance(event, RetryScheduled):
                    assert 0.25 <= event.delay_s <= 0.5
                    break
    busy = error_reply(429, "x", type="engine_overloaded_error")
    async with served([busy, ANSWER], limits=RunLimits()) as (_, agent):
        async with agent.stream("Hello") as run:
            async for event in run:
                if isinstance(event, RetryScheduled):
                    assert 1 <= event.delay_s <= 2
                    break


# --- no server ----------------------------------------------------------------------------------


@STREAMED
async def test_a_refused_connection_is_tried_again_and_then_told_with_url_and_way_out(streamed: bool) -> None:
    with socket.socket() as plug:
        plug.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{plug.getsockname()[1]}/v1"
        with anyio.fail_after(LONGEST_S):
            async with KimiAgent("kimi-k2", base_url=url, limits=FAST) as agent:
                run = agent.stream("Hello")
                retries = 0
                with pytest.raises(TransportConnectionError) as caught:
                    if not streamed:
                        await agent.run("Hello")
                    async with run:
                        async for event in run:
                            retries += isinstance(event, RetryScheduled)

    assert retries == (2 if streamed else 0)
    assert url in str(caught.value)
    assert "kimi-agent simulate" in str(caught.value)
    assert caught.value.result.messages == [USER]
    assert caught.value.__cause__ is not None


async def test_a_server_that_comes_up_during_the_retries_is_found() -> None:
    async with served([Reply(before=(Reset(),)), Reply(before=(Close(),)), ANSWER]) as (server, agent):
        assert (await agent.run("Hello")).text == "All is well."

    assert len(server.requests) == 3


async def test_a_server_that_takes_no_connection_is_given_up_after_the_connect_timeout() -> None:
    with socket.socket() as plug:
        plug.bind(("127.0.0.1", 0))
        plug.listen(0)
        address = plug.getsockname()
        fillers = [socket.socket() for _ in range(8)]
        try:
            for filler in fillers:
                # The queue of connections nobody accepts is full after one or two.
                filler.setblocking(False)
                filler.connect_ex(address)
            limits = RunLimits(connect_timeout_s=0.2, max_retries=0)
            url = f"http://127.0.0.1:{address[1]}/v1"
            with anyio.fail_after(LONGEST_S):
                async with KimiAgent("kimi-k2", base_url=url, limits=limits) as agent:
                    with pytest.raises(TransportTimeoutError) as caught:
                        await agent.run("Hello")
        finally:
            for filler in fillers:
                filler.close()

    assert url in str(caught.value)
    assert "connect" in str(caught.value)


async def test_a_host_that_has_no_address_is_told_as_a_connection_error() -> None:
    limits = RunLimits(max_retries=0)
    with anyio.fail_after(LONGEST_S):
        async with KimiAgent(
            "kimi-k2", base_url="http://no.such.host.localhost:9/v1", limits=limits
        ) as agent:
            with pytest.raises(TransportConnectionError, match="no server answered at"):
                await agent.run("Hello")


# --- silence ------------------------------------------------------------------------------------


async def test_the_timeout_is_for_silence_and_not_for_the_whole_reply() -> None:
    pieces: list[Any] = []
    for place in range(6):
        pieces += [chunk({"content": str(place)}), Delay(0.08)]
    slow = stream_reply([*pieces, chunk({}, finish_reason="stop")])
    limits = RunLimits(request_timeout_s=0.3, max_retries=0)
    async with served([slow], limits=limits) as (_, agent):
        _, result = await events_of(agent)

    assert result.text == "012345"


async def test_a_silent_list_of_models_does_not_hold_a_run_up_for_ever() -> None:
    limits = RunLimits(request_timeout_s=0.15, max_retries=0)
    async with served({"/v1/models": Reply(before=(Hang(),))}, limits=limits) as (server, _):
        async with KimiAgent(base_url=server.base_url, limits=limits) as agent:
            with anyio.fail_after(5), pytest.raises(TransportTimeoutError, match="/models"):
                await agent.run("Hello")


async def test_a_silent_list_of_models_does_not_hide_that_the_model_is_unknown() -> None:
    limits = RunLimits(request_timeout_s=0.15, max_retries=0)
    script = {
        "/v1/models": Reply(before=(Hang(),)),
        "/v1/chat/completions": error_reply(404, "The model `kimi-k2` does not exist.", type="NotFoundError"),
    }
    async with served(script, limits=limits) as (_, agent):
        with anyio.fail_after(5), pytest.raises(TransportStatusError, match="does not exist"):
            await agent.run("Hello")
