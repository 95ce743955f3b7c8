"""Agents without a server: `ScriptedTransport` and `RecordedTransport`."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import kimi_agent.testing
from kimi_agent import (
    KimiAgent,
    RateLimitedError,
    RetryScheduled,
    RunLimits,
    TextDelta,
    TransportConnectionError,
    TransportStatusError,
)
from kimi_agent._runtime.openai_transport import OpenAITransport
from kimi_agent.testing import (
    KimiServer,
    RecordedTransport,
    ScriptedTransport,
    adaptive_reply,
    reply_chunks,
    tool_call,
)
from tests.e2e.support import FAST, LONGEST_S, events_of, weather

if TYPE_CHECKING:
    from pathlib import Path

    from kimi_agent.transport import Request


pytestmark = pytest.mark.anyio

PARIS = tool_call("weather", {"city": "Paris"})


def agent_on(transport: Any, **options: Any) -> KimiAgent:
    settings: dict[str, Any] = {"limits": FAST, **options}
    return KimiAgent("kimi-k2", transport=transport, **settings)


# --- ScriptedTransport ----------------------------------------------------------------------------


async def test_a_text_is_a_whole_reply() -> None:
    transport = ScriptedTransport(["Hello!"])
    result = await agent_on(transport).run("Hi")

    assert result.text == "Hello!"
    assert [request.decoded()["messages"] for request in transport.requests] == [
        [{"role": "user", "content": "Hi"}]
    ]
    assert (transport.requests_open, transport.closed) == (0, False)


async def test_a_tool_round_is_played_from_chunks() -> None:
    transport = ScriptedTransport(
        [reply_chunks("Let me look.", reasoning="Hm.", tool_calls=[PARIS], cuts=2), "Sunny."]
    )
    events, result = await events_of(agent_on(transport, tools=[weather]))

    assert result.text == "Sunny."
    assert [(call.name, call.arguments) for call in result.tool_calls] == [("weather", {"city": "Paris"})]
    assert [event.text for event in events if event.type == "text_reset"] == ["Let me look."]
    assert result.messages[1]["reasoning_content"] == "Hm."


async def test_replies_can_depend_on_the_request() -> None:
    def reply(request: Request) -> str:
        return f"You said {request.decoded()['messages'][-1]['content']}."

    transport = ScriptedTransport(itertools.repeat(reply))
    agent = agent_on(transport)

    assert [(await agent.run(text)).text for text in ("a", "b")] == ["You said a.", "You said b."]


async def test_errors_are_raised_where_they_stand_and_retried_like_any() -> None:
    busy = RateLimitedError("too fast", status_code=429, retryable=True)
    cut = TransportConnectionError("lost")
    transport = ScriptedTransport([busy, [*reply_chunks("All is")[:3], cut], lambda _: busy, "All is well."])
    events, result = await events_of(
        agent_on(transport, limits=RunLimits(max_retries=3, max_retry_delay_s=0))
    )

    assert [event.error for event in events if isinstance(event, RetryScheduled)] == [busy, cut, busy]
    assert result.text == "All is well."


async def test_a_script_that_has_ended_says_so() -> None:
    agent = agent_on(ScriptedTransport([]))
    with pytest.raises(AssertionError, match="no reply for request 1"):
        await agent.run("Hi")


async def test_a_run_that_is_left_closes_the_scripted_reply() -> None:
    transport = ScriptedTransport(["A long answer."])
    async with agent_on(transport).stream("Hi") as run:
        async for event in run:
            if isinstance(event, TextDelta):
                assert transport.requests_open == 1
                break

    assert transport.requests_open == 0


async def test_a_transport_passed_in_is_not_closed_by_the_agent() -> None:
    transport = ScriptedTransport(["Hello!"], models=["only"])
    async with KimiAgent(transport=transport) as agent:
        await agent.run("Hi")
    assert not transport.closed
    assert transport.requests[0].decoded()["model"] == "only"

    await transport.aclose()
    assert transport.closed


# --- RecordedTransport ----------------------------------------------------------------------------


async def test_a_run_recorded_once_is_played_without_a_server(tmp_path: Path) -> None:
    path = tmp_path / "weather.jsonl"
    source = ScriptedTransport([reply_chunks("ü", tool_calls=[PARIS]), "Sunny."])
    recorded = await agent_on(RecordedTransport(path, source=source), tools=[weather]).run("Paris?")
    never = ScriptedTransport([])
    played = await agent_on(RecordedTransport(path, source=never), tools=[weather]).run("Paris?")

    assert played.text == recorded.text == "Sunny."
    assert played.messages == recorded.messages
    assert never.requests == []
    assert list(json.loads(path.read_text("utf-8").splitlines()[0])) == ["request"]


async def test_a_recording_of_a_real_server_holds_no_key(tmp_path: Path) -> None:
    path = tmp_path / "hello.jsonl"
    with anyio.fail_after(LONGEST_S):
        async with KimiServer(replies=adaptive_reply("Hello!"), api_key="sk-secret-key-1") as server:
            source = OpenAITransport.connect(base_url=server.base_url, api_key="sk-secret-key-1")
            recording = RecordedTransport(path, source=source)
            assert [entry["id"] for entry in await recording.models()] == ["kimi-simulated"]
            await agent_on(recording).run("Hi")
            await recording.aclose()

    assert "sk-secret" not in path.read_text("utf-8")
    playing = RecordedTransport(path)
    assert await playing.models() == [{"id": "kimi-k2"}]
    assert (await agent_on(playing).run("Hi")).text == "Hello!"
    await playing.aclose()


async def test_only_replies_read_to_the_end_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "left.jsonl"
    source = ScriptedTransport(["A long answer.", TransportStatusError("no", status_code=400), "Short."])
    agent = agent_on(RecordedTransport(path, source=source))
    async with agent.stream("Hi") as run:
        async for event in run:
            if isinstance(event, TextDelta):
                break
    with pytest.raises(TransportStatusError):
        await agent.run("Hi")
    await agent.run("Hi")

    assert (await agent_on(RecordedTransport(path)).run("Hi")).text == "Short."


async def test_a_recording_for_another_request_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hello.jsonl"
    await agent_on(RecordedTransport(path, source=ScriptedTransport(["Hello!"]))).run("Hi")
    playing = agent_on(RecordedTransport(path))
    with pytest.raises(AssertionError, match=r"exchange 1 of .*hello\.jsonl .*another messages; delete"):
        await playing.run("Good morning")
    with pytest.raises(AssertionError, match="no exchange after number 1"):
        await playing.run("Hi")


async def test_a_recording_that_is_not_there_or_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="source="):
        RecordedTransport(tmp_path / "no.jsonl")
    odd = tmp_path / "odd.jsonl"
    odd.write_text('{"choices": []}\n')
    with pytest.raises(ValueError, match="line 1"):
        RecordedTransport(odd)


# --- the package ----------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_server_alone_stays_light_and_every_name_is_there() -> None:
    program = (
        "import sys; from kimi_agent.testing import KimiServer, adaptive_reply\n"
        "print(sorted({'openai', 'pydantic', 'kimi_agent.agent', 'kimi_agent.tools'} & set(sys.modules)))\n"
    )
    done = subprocess.run(  # noqa: ASYNC221, S603 - our own interpreter and text, and nothing else runs here
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "[]\n"
    for name in kimi_agent.testing.__all__:
        assert getattr(kimi_agent.testing, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = kimi_agent.testing.no_such_name
