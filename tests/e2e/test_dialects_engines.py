"""Which engine a server is: from its host, its list of models or its first reply, and without asking more."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kimi_agent import KimiAgent, ModelOptions
from kimi_agent.dialects import ENGINES, GENERATIONS, Engine, Generation
from kimi_agent.errors import ConfigurationError
from kimi_agent.testing import Reply, ScriptedTransport, adaptive_reply, json_reply
from kimi_agent.testing.replies import chunk
from tests.e2e.dialects import (
    ANSWER,
    CHAT,
    COMPLETIONS,
    LONGEST_S,
    MODELS,
    Row,
    agent_on,
    answering,
    exchange,
    run_of,
)
from tests.recordings import Recording, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_agent.testing import ReceivedRequest

pytestmark = pytest.mark.anyio

SAID: Row = {"role": "assistant", "content": "Hello", "reasoning_content": "hm"}
CONFIGS = {
    "vllm-0.32/parser": "vllm",
    "vllm-0.32/none": "vllm",
    "vllm-0.32/thinking": "vllm",
    "sglang-0.5/parser": "sglang",
    "sglang-0.5/thinking": "sglang",
    "llamacpp-xllamacpp-2026.10.11549/parser": "llama.cpp",
    "llamacpp-xllamacpp-2026.10.11549/thinking": "llama.cpp",
}
# What only a server that leaves calls as text is told; the flags in it name the engine.
RAW = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
    "<|tool_call_end|><|tool_calls_section_end|>"
)
FLAGS = {
    "vllm": "start vllm with --enable-auto-tool-choice --tool-call-parser kimi_k2",
    "sglang": "start sglang with --tool-call-parser kimi_k2",
    "llama.cpp": "start llama.cpp with --jinja",
}


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here: what is sent does not depend on it."""
    return "asyncio"


def recorded(config: str, case: str) -> Recording:
    """One recorded exchange."""
    return next(each for each in RECORDINGS if each.id == f"{config}/{case}")


RECORDINGS = [each for each in load() if each.case in ("who", "who_stream", "models")]


def played(recording: Recording) -> Reply:
    """The recorded answer, byte for byte."""
    events = [each for each in re.split(r"(?<=\n\n)", recording.body) if each]
    return Reply(
        status=recording.status,
        headers={"content-type": recording.headers["content-type"]},
        body=events if recording.is_stream else recording.body,
    )


def paths(requests: Sequence[ReceivedRequest]) -> list[str]:
    """Where the requests went."""
    return [request.path for request in requests]


def flags_said(details: str) -> list[str]:
    """The engines whose flags, and no other's, a text names."""
    return [name for name, flags in FLAGS.items() if flags in details]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("config", "engine"), CONFIGS.items())
async def test_the_first_reply_tells_the_engine_and_nothing_else_is_asked(
    config: str, engine: str, streamed: bool
) -> None:
    first = played(recorded(config, "who_stream" if streamed else "who"))
    script = [first, adaptive_reply(RAW), adaptive_reply(ANSWER)]

    async with agent_on(script, tools=["f"]) as (server, agent):
        await run_of(agent, streamed=streamed)
        second = await run_of(agent, streamed=streamed)

    assert paths(server.requests) == [CHAT] * 3
    assert flags_said("".join(repair.detail for repair in second.repairs)) == [engine]


@pytest.mark.parametrize(("config", "engine"), CONFIGS.items())
async def test_the_list_of_models_tells_the_engine_where_it_is_asked_for_anyway(
    config: str, engine: str
) -> None:
    script = [adaptive_reply(RAW), adaptive_reply(ANSWER)]
    model = json.loads(recorded(config, "models").body)["data"][0]["id"]

    async with agent_on(
        {MODELS: played(recorded(config, "models")), CHAT: script}, model=None, tools=["f"]
    ) as (
        server,
        agent,
    ):
        result = await run_of(agent)

    assert paths(server.requests) == [MODELS, CHAT, CHAT]
    assert server.requests[1].body["model"] == model
    assert flags_said("".join(repair.detail for repair in result.repairs)) in ([engine], [])


async def test_within_the_first_run_the_first_reply_already_tells_whose_flags_are_meant() -> None:
    seen = await exchange((), [of_sglang(RAW), of_sglang(ANSWER)], tools=["f"])

    assert flags_said(seen.details) == ["sglang"]


def of_sglang(text: str) -> Reply:
    """A whole reply as SGLang marks it."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json_reply({"object": "chat.completion", "choices": [{**choice, "matched_stop": None}]})


class Hosted(ScriptedTransport):
    """A transport to a host that no test may reach."""

    def __init__(self, base_url: str, replies: Sequence[Any]) -> None:
        super().__init__(replies)
        self.base_url = base_url

    async def models(self) -> Sequence[Row]:
        """Nothing here asks for it."""
        raise AssertionError


def relayed(text: str) -> list[Row]:
    """The chunks of a reply that a gateway passed on from vLLM."""
    marks = {"system_fingerprint": "vllm-0.32.0", "kv_transfer_params": None, "prompt_token_ids": None}
    return [{**chunk({"content": text}), **marks}, chunk({}, finish_reason="stop")]


HOSTS = {
    "https://api.moonshot.ai/v1": "moonshot",
    "https://api.moonshot.cn/v1": "moonshot",
    "https://api.kimi.com/coding/v1": "moonshot",
    "https://openrouter.ai/api/v1": "openrouter",
    "http://127.0.0.1:8000/v1": "vllm",
    "https://gateway.example.com/openrouter.ai/v1": "vllm",
}


@pytest.mark.parametrize(("url", "engine"), HOSTS.items())
async def test_a_host_tells_its_engine_whatever_the_replies_look_like(url: str, engine: str) -> None:
    transport = Hosted(url, [relayed("one"), relayed("two")])
    options = ModelOptions(thinking=True, max_output_tokens=77)

    with anyio.fail_after(LONGEST_S):
        async with KimiAgent("kimi-k2.6", transport=transport, options=options) as agent:
            for _ in range(2):
                await run_of(agent, [SAID])

    assert len(transport.requests) == 2
    described = ENGINES[engine]
    for place, request in enumerate(transport.requests):
        body = json.loads(request.body)
        assert body[described.thinking_field]
        assert body[described.output_limit_field] == 77
        assert set(described.reasoning_fields) <= body["messages"][0].keys(), place
        if engine in ("moonshot", "openrouter"):
            assert {"reasoning", "reasoning_content"} & body["messages"][0].keys() == {
                *described.reasoning_fields
            }


# --- given by the caller ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENGINES)
async def test_an_engine_may_be_named(name: str) -> None:
    engine = ENGINES[name]

    seen = await exchange(
        [SAID], engine=name, model="kimi-k2.6", options=ModelOptions(max_output_tokens=5, thinking=True)
    )

    assert paths(seen.requests) == [CHAT]
    assert seen.body[engine.output_limit_field] == 5
    assert engine.thinking_field in seen.body
    assert seen.messages == [
        {"role": "assistant", "content": "Hello", **dict.fromkeys(engine.reasoning_fields, "hm")}
    ]


async def test_an_engine_may_be_described() -> None:
    mine = Engine(
        name="mine", output_limit_field="limit", reasoning_fields=("thoughts",), thinking_field="thinking"
    )

    seen = await exchange(
        [SAID], engine=mine, model="kimi-k2.6", options=ModelOptions(max_output_tokens=5, thinking=True)
    )

    assert seen.body["limit"] == 5
    assert seen.body["thinking"] == {"type": "enabled"}
    assert seen.messages == [{"role": "assistant", "content": "Hello", "thoughts": "hm"}]


async def test_a_generation_may_be_named_or_described() -> None:
    mine = Generation(name="mine", temperature=0.25)

    for generation, temperature in (("k2", 0.6), ("k2-thinking", 1.0), (mine, 0.25)):
        seen = await exchange((), model="my-fine-tune", generation=generation)
        assert seen.body["temperature"] == temperature


async def test_a_model_nobody_knows_is_sent_nothing_special() -> None:
    seen = await exchange((), model="my-fine-tune")

    assert seen.body.keys() == {"model", "messages"}


@pytest.mark.parametrize(
    ("option", "value", "known"), [("engine", "vlm", ENGINES), ("generation", "k9", GENERATIONS)]
)
def test_a_wrong_name_is_answered_with_the_right_ones(option: str, value: str, known: Any) -> None:
    options: dict[str, Any] = {option: value}

    with pytest.raises(ConfigurationError) as caught:
        KimiAgent("kimi-k2", **options)

    assert [name for name in ("auto", repr(value), *known) if name not in str(caught.value)] == []


async def test_an_engine_given_by_the_caller_is_kept_whatever_replies_look_like() -> None:
    async with agent_on([of_sglang(RAW), of_sglang(ANSWER)] * 2, tools=["f"], engine="vllm") as (_, agent):
        results = [await run_of(agent) for _ in range(2)]

    assert [flags_said("".join(repair.detail for repair in each.repairs)) for each in results] == [
        ["vllm"]
    ] * 2


async def test_completions_ask_for_the_list_of_models_once() -> None:
    def complete(_: ReceivedRequest) -> Reply:
        choice = {"index": 0, "text": ANSWER, "finish_reason": "stop"}
        return json_reply({"object": "text_completion", "choices": [choice]})

    listed = json_reply({"data": [{"id": "kimi-k2", "owned_by": "vllm", "max_model_len": 500}]})
    async with agent_on({MODELS: listed, COMPLETIONS: complete}, api="completions") as (server, agent):
        for _ in range(3):
            await run_of(agent)

    assert sorted(paths(server.requests)) == [COMPLETIONS] * 3 + [MODELS]
    sent = [request.body for request in server.requests if request.path == COMPLETIONS]
    assert all(body["skip_special_tokens"] is False for body in sent)
    assert all(body["max_tokens"] < 500 for body in sent)


async def test_nothing_but_the_chat_is_asked_where_the_model_is_given() -> None:
    async with agent_on({CHAT: answering}, tools=["f"]) as (server, agent):
        for _ in range(3):
            await run_of(agent)

    assert paths(server.requests) == [CHAT] * 3
