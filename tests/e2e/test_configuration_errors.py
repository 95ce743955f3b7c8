"""What is wrong in the caller's code is told before any request is sent."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kimi_agent import (
    ConfigurationError,
    InvalidHistoryError,
    KimiAgent,
    ModelOptions,
    RunLimits,
    Tool,
    ToolDefinitionError,
    TransportConnectionError,
)
from kimi_agent.testing import Reply, adaptive_reply, json_reply
from tests.e2e.support import CHAT, FAST, LONGEST_S, MODELS, served, weather

if TYPE_CHECKING:
    from collections.abc import Callable

HELLO = adaptive_reply("Hello!")
URL = "http://127.0.0.1:9/v1"


def model_list(*ids: str) -> Reply:
    return json_reply({"object": "list", "data": [{"id": name, "object": "model"} for name in ids]})


@pytest.mark.anyio
async def test_the_only_model_of_a_server_is_found() -> None:
    async with (
        served({CHAT: [HELLO, HELLO], MODELS: model_list("/models/kimi")}) as (server, _),
        KimiAgent(base_url=server.base_url) as agent,
    ):
        assert (await agent.run("Hello")).text == "Hello!"

    assert [request.path for request in server.requests] == [MODELS, CHAT]
    assert server.requests[1].body["model"] == "/models/kimi"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("models", "words"),
    [
        (model_list("kimi-a", "kimi-b"), ("kimi-a, kimi-b", "KIMI_MODEL")),
        (model_list(), ("lists none", "KIMI_MODEL")),
    ],
    ids=["several", "none"],
)
async def test_without_a_clear_model_nothing_is_asked_and_the_choice_is_named(
    models: Reply, words: tuple[str, ...]
) -> None:
    async with (
        served({CHAT: [HELLO], MODELS: models}) as (server, _),
        KimiAgent(base_url=server.base_url) as agent,
    ):
        with pytest.raises(ConfigurationError) as caught:
            await agent.run("Hello")
        url = server.base_url

    assert [request.path for request in server.requests] == [MODELS]
    for word in (url, *words):
        assert word in str(caught.value)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer",
    [
        json_reply({}),
        json_reply([]),
        json_reply({"data": "x"}),
        Reply(headers={"content-type": "text/html"}, body="<p>"),
    ],
    ids=["object", "array", "wrong type", "page"],
)
async def test_an_odd_list_of_models_is_told_with_its_url(answer: Reply) -> None:
    async with (
        served({CHAT: [HELLO], MODELS: answer}) as (server, _),
        KimiAgent(base_url=server.base_url) as agent,
    ):
        with pytest.raises(Exception, match="/models") as caught:
            await agent.run("Hello")

    assert type(caught.value).__module__ == "kimi_agent.errors"
    assert [request.path for request in server.requests] == [MODELS]


@pytest.mark.anyio
async def test_no_server_while_asking_for_the_models_is_told_with_a_way_out() -> None:
    with anyio.fail_after(LONGEST_S):
        async with KimiAgent(base_url=URL, limits=FAST) as agent:
            with pytest.raises(TransportConnectionError, match=r"127\.0\.0\.1:9.*kimi-agent simulate"):
                await agent.run("Hello")


@pytest.mark.anyio
async def test_without_an_address_it_is_said_how_to_give_one() -> None:
    with pytest.raises(ConfigurationError, match=r"base_url=.*KIMI_BASE_URL.*kimi-agent simulate"):
        await KimiAgent("kimi-k2").run("Hello")


@pytest.mark.anyio
@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "localhost", "ftp://x/v1", "http://", "http://[::1", "/v1"]
)
async def test_an_address_that_is_no_url_is_told(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a URL like"):
        await KimiAgent("kimi-k2", base_url=url, api_key="x").run("Hello")


@pytest.mark.anyio
async def test_without_a_key_a_server_elsewhere_is_not_asked() -> None:
    with pytest.raises(ConfigurationError, match=r"no API key for api\.moonshot\.ai.*KIMI_API_KEY"):
        await KimiAgent("kimi-k2", base_url="https://api.moonshot.ai/v1").run("Hello")


def positional(city: str, /) -> str:
    return city


def unannotated() -> Any:
    """A function whose parameter says nothing about itself."""
    namespace: dict[str, Any] = {}
    exec("def look_up(city): return city", namespace)  # noqa: S102 - a linter would not let it stand here
    return namespace["look_up"]


def starred(*cities: str) -> str:
    return "".join(cities)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: [unannotated()], ("'look_up'", "'city'", "no annotation")),
        (lambda: [positional], ("'positional'", "city", "by name")),
        (lambda: [starred], ("'starred'", "*cities", "by name")),
        (lambda: [lambda: 1], ("lambda",)),
        (lambda: [weather, weather], ("two tools are called 'weather'",)),
        (lambda: [Tool(name="weather", function=print), weather], ("two tools are called 'weather'",)),
        (lambda: [Tool(name=" ", function=print)], ("needs a name",)),
        (lambda: ["weather"], ("functions or Tool values", "'weather'")),
    ],
    ids=["no annotation", "positional", "starred", "lambda", "twice", "hand-built twice", "blank", "text"],
)
def test_a_tool_that_cannot_be_offered_is_told_at_once(
    make: Callable[[], list[Any]], words: tuple[str, ...]
) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        KimiAgent("kimi-k2", tools=make(), base_url=URL)

    assert isinstance(caught.value, ConfigurationError)
    for word in words:
        assert word in str(caught.value)


def call(identity: str = "a") -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": "weather", "arguments": "{}"}}


ASKED = {"role": "user", "content": "Hello"}
CALLED = {"role": "assistant", "tool_calls": [call("a"), call("b")]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "x"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("history", "words"),
    [
        ([{"role": "robot", "content": "x"}], ("history[0]", "robot")),
        (["Hello"], ("history[0]", "Hello")),
        ([ASKED, {"role": "tool", "content": "x"}], ("history[1]", "tool_call_id")),
    ],
)
@pytest.mark.parametrize("prompt", ["And now?", None])
async def test_a_history_no_server_could_read_is_told_with_the_place(
    history: list[Any], words: tuple[str, ...], prompt: str | None
) -> None:
    async with served([HELLO], tools=[weather]) as (server, agent):
        with pytest.raises(InvalidHistoryError) as caught:
            await agent.run(prompt, history=history)
        with pytest.raises(InvalidHistoryError):
            agent.stream(prompt, history=history)

    assert server.requests == []
    for word in words:
        assert word in str(caught.value)


@pytest.mark.anyio
@pytest.mark.parametrize(("history", "words"), [([CALLED], "calls a, b"), ([CALLED, RESULT], "calls b")])
async def test_to_go_on_from_unanswered_calls_takes_results_or_a_prompt(
    history: list[dict[str, Any]], words: str
) -> None:
    async with served([HELLO]) as (server, agent):
        with pytest.raises(InvalidHistoryError, match=words):
            await agent.run(None, history=[ASKED, *history])

    assert server.requests == []


@pytest.mark.anyio
async def test_a_history_json_cannot_hold_is_told_with_the_place() -> None:
    history: list[dict[str, Any]] = [ASKED, {"role": "assistant", "content": {1, 2}}]
    async with served([HELLO]) as (server, agent):
        with pytest.raises(ConfigurationError, match="role 'assistant' cannot be written as JSON"):
            await agent.run("x", history=history)

    assert server.requests == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RunLimits(max_steps=0), "RunLimits.max_steps"),
        (lambda: RunLimits(max_retries=-1), "RunLimits.max_retries"),
        (lambda: RunLimits(tool_timeout_s=float("nan")), "RunLimits.tool_timeout_s"),
        (lambda: RunLimits(max_parallel_tools=True), "RunLimits.max_parallel_tools"),
        (lambda: ModelOptions(temperature=-1), "ModelOptions.temperature"),
        (lambda: ModelOptions(max_output_tokens=0), "ModelOptions.max_output_tokens"),
        (lambda: KimiAgent("kimi-k2", engine="vlm", base_url=URL), "vllm"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_where_it_is_written(
    make: Callable[[], Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()


def test_importing_the_package_and_describing_an_agent_load_no_client() -> None:
    program = (
        "import sys, kimi_agent, kimi_agent.testing\n"
        "heavy = {'openai', 'pydantic', 'httpx', 'httpx2'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "kimi_agent.KimiAgent('kimi-k2', base_url='http://127.0.0.1:9/v1')\n"
        "print('openai' in sys.modules)\n"
    )
    done = subprocess.run(  # noqa: S603 - our own interpreter and text
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.split("\n")[:2] == ["[]", "False"]
