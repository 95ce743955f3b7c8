"""Agents and event loops, connections and clients: who opens, who closes, who may come again."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
from typing import Any

import anyio
import openai
import pytest
import trio
from anyio import to_thread

from kimi_agent import ConfigurationError, KimiAgent, ModelOptions, RunLimits, TransportStatusError
from kimi_agent.testing import KimiServer, Reply, adaptive_reply, error_reply
from tests.e2e.support import FAST, LONGEST_S, asking_for, served, weather

HELLO = adaptive_reply("Hello!")


def client_of(server: KimiServer, **options: Any) -> openai.AsyncOpenAI:
    settings: dict[str, Any] = {"base_url": server.base_url, "api_key": "sk-of-the-client", **options}
    return openai.AsyncOpenAI(**settings)


def connections(server: KimiServer) -> int:
    return len(server._connections)


def test_run_sync_works_again_and_again_with_one_agent() -> None:
    script = [asking_for(("weather", {"city": "Paris"})), adaptive_reply("Sunny."), HELLO]
    with KimiServer(replies=script) as server:
        agent = KimiAgent("kimi-k2", base_url=server.base_url, tools=[weather])
        first = agent.run_sync("Paris?")
        second = agent.run_sync("Hello", history=first.messages)
        server.wait_for(lambda: server.requests_open == 0)

    assert (first.text, second.text) == ("Sunny.", "Hello!")
    assert second.messages[: len(first.messages)] == first.messages


def test_run_sync_hands_deps_to_the_tools_and_raises_bare_errors() -> None:
    with KimiServer(replies=error_reply(401, "no", type="invalid_authentication_error")) as server:
        agent = KimiAgent("kimi-k2", base_url=server.base_url)
        with pytest.raises(TransportStatusError) as caught:
            agent.run_sync("Hello")

    assert caught.value.status_code == 401


@pytest.mark.anyio
async def test_run_sync_inside_a_running_loop_says_what_to_write_instead() -> None:
    async with served(HELLO) as (server, agent):
        with pytest.raises(ConfigurationError, match=r"event loop is running.*await agent\.run"):
            agent.run_sync("Hello")

        assert server.requests == []
        assert (await agent.run("Hello")).text == "Hello!"


@pytest.mark.anyio
async def test_run_sync_works_in_a_worker_thread_of_a_running_loop() -> None:
    async with served(HELLO) as (_, agent):
        result = await to_thread.run_sync(agent.run_sync, "Hello")

    assert result.text == "Hello!"


def test_one_agent_serves_one_loop_after_the_other() -> None:
    async def ask(agent: KimiAgent) -> str:
        async with agent:
            return (await agent.run("Hello")).text

    with KimiServer(replies=HELLO) as server:
        agent = KimiAgent("kimi-k2", base_url=server.base_url)

        assert [asyncio.run(ask(agent)), asyncio.run(ask(agent)), trio.run(ask, agent)] == ["Hello!"] * 3
        server.wait_for(lambda: connections(server) == 0)


PROGRAM = """
    import asyncio, sys
    from kimi_agent import KimiAgent, tool

    @tool
    async def get_weather(city: str) -> dict:
        "Current weather of a city."
        return {"city": city, "weather": "Sunny"}

    agent = KimiAgent(tools=[get_weather], base_url=sys.argv[1])
    for _ in range(2):
        result = asyncio.run(agent.run("What is the weather in Beijing?"))
        print(result.text)
"""


def test_the_first_program_of_the_manual_runs_without_a_warning() -> None:
    with KimiServer() as server:
        done = subprocess.run(  # noqa: S603 - our own interpreter and text
            [sys.executable, "-W", "error", "-c", textwrap.dedent(PROGRAM), server.base_url],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert done.stderr == ""
    assert done.stdout.count("Sunny") == 2


@pytest.mark.anyio
async def test_aclose_closes_the_agents_own_connections_and_a_later_run_opens_new_ones() -> None:
    with anyio.fail_after(LONGEST_S):
        async with KimiServer(replies=HELLO) as server:
            agent = KimiAgent("kimi-k2", base_url=server.base_url)
            await agent.aclose()
            await agent.run("Hello")
            await agent.run("Hello")
            assert connections(server) == 1

            await agent.aclose()
            await agent.aclose()
            while connections(server):
                await anyio.lowlevel.checkpoint()

            assert (await agent.run("Hello")).text == "Hello!"
            await agent.aclose()


@pytest.mark.anyio
async def test_leaving_the_agents_block_closes_its_connections_even_after_an_error() -> None:
    with anyio.fail_after(LONGEST_S):
        async with KimiServer(replies=HELLO) as server:

            async def fail() -> None:
                async with KimiAgent("kimi-k2", base_url=server.base_url) as agent:
                    await agent.run("Hello")
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail()
            while connections(server):
                await anyio.lowlevel.checkpoint()


@pytest.mark.anyio
async def test_connections_are_used_again_from_step_to_step_and_run_to_run() -> None:
    script = [asking_for(("weather", {"city": "Paris"})), adaptive_reply("Sunny."), HELLO, HELLO]
    async with served(script, tools=[weather]) as (server, agent):
        await agent.run("Paris?")
        for _ in range(2):
            async with agent.stream("Hello") as run:
                async for _ in run:
                    pass

        assert (len(server.requests), connections(server)) == (4, 1)


@pytest.mark.anyio
async def test_a_client_passed_in_stays_open_and_is_used_with_its_key_and_headers() -> None:
    with anyio.fail_after(LONGEST_S):
        async with KimiServer(replies=HELLO) as server:
            client = client_of(server, default_headers={"x-team": "blue"}, default_query={"v": "1"})
            async with KimiAgent("kimi-k2", client=client) as agent:
                await agent.run("Hello")
            await agent.aclose()
            assert not client.is_closed()
            assert (await agent.run("Hello")).text == "Hello!"
            await client.close()

    for request in server.requests:
        assert request.headers["authorization"] == "Bearer sk-of-the-client"
        assert (request.headers["x-team"], request.query) == ("blue", "v=1")


@pytest.mark.anyio
@pytest.mark.parametrize("max_retries", [0, 1])
async def test_the_retries_of_a_client_passed_in_are_not_used(max_retries: int) -> None:
    limits = RunLimits(max_retries=max_retries, max_retry_delay_s=0.001)
    with anyio.fail_after(LONGEST_S):
        async with (
            KimiServer(replies=error_reply(500, "broken", type="server_error")) as server,
            client_of(server, max_retries=7) as client,
        ):
            agent = KimiAgent("kimi-k2", client=client, limits=limits)
            with pytest.raises(TransportStatusError):
                await agent.run("Hello")
            with pytest.raises(TransportStatusError):
                await KimiAgent(client=client, limits=limits).run("Hello")

    chat = [request for request in server.requests if request.method == "POST"]
    assert len(chat) == 2 * (1 + max_retries)


@pytest.mark.anyio
async def test_two_agents_may_share_a_client() -> None:
    def reply(request: Any) -> Reply:
        return adaptive_reply(request.body["model"])(request)

    with anyio.fail_after(LONGEST_S):
        async with KimiServer(replies=reply) as server, client_of(server) as client:
            agents = [KimiAgent(name, client=client) for name in ("one", "two")]
            texts = [(await agent.run("Hello")).text for agent in agents]
            await agents[0].aclose()
            texts.append((await agents[1].run("Hello")).text)

    assert texts == ["one", "two", "two"]


def test_a_client_and_an_address_together_are_refused() -> None:
    client = openai.AsyncOpenAI(base_url="http://127.0.0.1:1/v1", api_key="x")
    both: list[dict[str, Any]] = [{"base_url": "http://127.0.0.1:2/v1"}, {"api_key": "y"}]
    for more in both:
        with pytest.raises(ConfigurationError, match="not both"):
            KimiAgent("kimi-k2", client=client, **more)


@pytest.mark.anyio
async def test_a_new_agent_never_gets_the_connection_of_one_that_is_gone() -> None:
    with anyio.fail_after(LONGEST_S):
        async with (
            KimiServer(replies=adaptive_reply("old")) as old,
            KimiServer(replies=adaptive_reply("new")) as new,
            client_of(old) as old_client,
            client_of(new) as new_client,
        ):
            seen = set[int]()
            for _ in range(5):
                # An agent made where another one died has the same id().
                agent = KimiAgent("kimi-k2", client=old_client)
                assert (await agent.run("Hello")).text == "old"
                seen.add(id(agent))
                del agent
                gc.collect()
                agent = KimiAgent("kimi-k2", client=new_client)
                assert (await agent.run("Hello")).text == "new"
                if id(agent) in seen:
                    break


@pytest.mark.anyio
async def test_the_environment_names_server_key_and_model(monkeypatch: pytest.MonkeyPatch) -> None:
    with anyio.fail_after(LONGEST_S):
        async with KimiServer(replies=HELLO, api_key="sk-from-environment") as server:
            for name, value in {
                "KIMI_BASE_URL": server.base_url,
                "KIMI_API_KEY": "sk-from-environment",
                "KIMI_MODEL": "kimi-from-environment",
                "MOONSHOT_BASE_URL": "http://127.0.0.1:1/v1",
                "OPENAI_API_KEY": "sk-other",
            }.items():
                monkeypatch.setenv(name, value)
            async with KimiAgent() as agent, KimiAgent("kimi-argument", api_key="sk-argument") as other:
                await agent.run("Hello")
                await other.run("Hello")

    assert [(each.body["model"], each.headers["authorization"]) for each in server.requests] == [
        ("kimi-from-environment", "Bearer sk-from-environment"),
        ("kimi-argument", "Bearer sk-argument"),
    ]


@pytest.mark.anyio
async def test_extra_headers_are_sent() -> None:
    async with served(HELLO, options=ModelOptions(extra_headers={"x-trace": "7"})) as (server, agent):
        await agent.run("Hello")

    assert server.requests[0].headers["x-trace"] == "7"


@pytest.mark.anyio
async def test_a_run_cannot_be_used_outside_its_block_or_entered_twice() -> None:
    async with served(HELLO, limits=FAST) as (_, agent):
        run = agent.stream("Hello")
        with pytest.raises(ConfigurationError, match="inside the block"):
            await anext(run)
        with pytest.raises(ConfigurationError, match="not finished"):
            _ = run.result
        async with run:
            with pytest.raises(ConfigurationError, match="not finished"):
                _ = run.result
            async for _ in run:
                pass
            assert run.result.text == "Hello!"
        with pytest.raises(ConfigurationError, match="entered once"):
            await run.__aenter__()

        assert run.result.text == "Hello!"
