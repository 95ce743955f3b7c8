"""How long is waited: before asking again, for a connection, for a server that says nothing."""

from __future__ import annotations

import math
import socket
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kimi_agent import (
    KimiAgent,
    RetryScheduled,
    RunLimits,
    TransportConnectionError,
    TransportStatusError,
    TransportTimeoutError,
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
    events_of,
    result_of,
    served,
)

if TYPE_CHECKING:
    from kimi_agent.testing import ScriptedReply

pytestmark = pytest.mark.anyio

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
ANSWER = adaptive_reply("All is well.")
USER = {"role": "user", "content": "Hello"}


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
    busy = json_reply(
        {"error": {"message": message, "type": "rate_limit_reached_error"}}, status=status, headers=headers
    )
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
    async with (
        served([error_reply(500, "x", type="server_error"), ANSWER], limits=RunLimits()) as (_, agent),
        agent.stream("Hello") as run,
    ):
        async for event in run:
            if isinstance(event, RetryScheduled):
                assert 0.25 <= event.delay_s <= 0.5
                break
    busy = error_reply(429, "x", type="engine_overloaded_error")
    async with served([busy, ANSWER], limits=RunLimits()) as (_, agent), agent.stream("Hello") as run:
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
                with pytest.raises(TransportConnectionError) as caught:
                    await result_of(agent, streamed=streamed)

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
                    with pytest.raises(TransportConnectionError) as caught:
                        await agent.run("Hello")
        finally:
            for filler in fillers:
                filler.close()

    assert url in str(caught.value)
    assert "connect_timeout_s" in str(caught.value)


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
        pieces += [chunk({"content": str(place)}), Delay(0.1)]
    slow = stream_reply([*pieces, chunk({}, finish_reason="stop")])
    limits = RunLimits(request_timeout_s=0.5, max_retries=0)
    async with served([slow], limits=limits) as (_, agent):
        _, result = await events_of(agent)

    assert result.text == "012345"


async def test_a_silent_list_of_models_does_not_hold_a_run_up_for_ever() -> None:
    limits = RunLimits(request_timeout_s=0.15, max_retries=0)
    async with (
        served({"/v1/models": Reply(before=(Hang(),))}, limits=limits) as (server, _),
        KimiAgent(base_url=server.base_url, limits=limits) as agent,
    ):
        with anyio.fail_after(5), pytest.raises(TransportTimeoutError, match="did not list its models"):
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
