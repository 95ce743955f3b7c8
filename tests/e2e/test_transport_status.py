"""Every way a server can refuse: the class, its fields, and a message that says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from kimi_agent import (
    AuthenticationError,
    InvalidRequestError,
    KimiAgent,
    KimiAgentError,
    ModelNotFoundError,
    RunLimits,
    TransportStatusError,
)
from kimi_agent.testing import (
    KimiServer,
    Reply,
    chunk,
    json_reply,
    stream_reply,
)
from tests.e2e.refusals import CASES, moonshot, vllm
from tests.e2e.support import CHAT, LONGEST_S, MODELS, result_of, served

if TYPE_CHECKING:
    from kimi_agent.testing import ScriptedReply

pytestmark = pytest.mark.anyio

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
NO_RETRY = RunLimits(max_retries=0)


@STREAMED
@pytest.mark.parametrize("name", CASES)
async def test_a_refusal_is_told_by_its_class_its_fields_and_its_words(name: str, streamed: bool) -> None:
    case = CASES[name]
    # A second time for what one refusal teaches; a loading server is given up at once.
    limits = RunLimits(max_retries=0, max_retry_delay_s=0.001, loading_timeout_s=0.0001)
    async with served({CHAT: [case.reply] * 40}, limits=limits) as (server, agent):
        with pytest.raises(KimiAgentError) as caught:
            await result_of(agent, streamed=streamed)
        url = f"{server.base_url}/chat/completions"

    error = caught.value
    assert type(error) is case.kind
    assert isinstance(error, TransportStatusError)
    assert error.status_code == case.reply.status
    assert error.request_id == "req-42"
    assert error.retryable is case.retryable
    message = str(error)
    for word in (url, str(case.reply.status), "req-42", *case.words):
        assert word in message
    for attribute, value in case.fields.items():
        assert getattr(error, attribute) == value
    assert error.result.messages == [{"role": "user", "content": "Hello"}]
    assert error.partial_text == ""


async def test_the_servers_own_words_are_kept() -> None:
    reply = moonshot(401, "incorrect_api_key_error", "Incorrect API key provided")
    async with served([reply]) as (_, agent):
        with pytest.raises(AuthenticationError) as caught:
            await agent.run("Hello")

    assert (caught.value.error_type, caught.value.server_message) == (
        "incorrect_api_key_error",
        "Incorrect API key provided",
    )


@pytest.mark.parametrize("header", ["x-request-id", "x-trace-id", "msh-request-id", "request-id"])
async def test_a_request_id_is_found_under_every_name_servers_use(header: str) -> None:
    reply = Reply(status=400, headers={header: "id-7"}, body="{}")
    async with served([reply]) as (_, agent):
        with pytest.raises(InvalidRequestError, match="id-7") as caught:
            await agent.run("Hello")

    assert caught.value.request_id == "id-7"


async def test_an_error_inside_a_stream_says_where_and_which_request_too() -> None:
    reply = stream_reply(
        [
            chunk({"content": "Hi"}),
            {"error": {"message": "the worker died", "type": "server_error", "code": 500}},
        ],
        headers={"x-request-id": "req-42"},
    )
    async with served([reply], limits=NO_RETRY) as (server, agent):
        with pytest.raises(TransportStatusError, match="the worker died") as caught:
            await result_of(agent, streamed=True)
        url = server.base_url

    assert caught.value.status_code == 500
    assert caught.value.partial_text == "Hi"
    assert caught.value.request_id == "req-42"
    assert url in str(caught.value)


async def test_a_huge_error_page_makes_a_short_message() -> None:
    page = Reply(status=500, headers={"content-type": "text/html"}, body="<html>" + "x" * 300_000)
    async with served([page], limits=NO_RETRY) as (_, agent):
        with pytest.raises(TransportStatusError) as caught:
            await agent.run("Hello")

    assert len(str(caught.value)) < 4000


# --- models ---------------------------------------------------------------------------------------


def model_list(*ids: str) -> Reply:
    return json_reply({"object": "list", "data": [{"id": name, "object": "model"} for name in ids]})


@pytest.mark.parametrize(
    ("wanted", "served_ids", "suggestion"),
    [
        ("kimi-k2", ("moonshotai/Kimi-K2", "other"), "moonshotai/Kimi-K2"),
        ("kimi-k2-instruct-0906", ("kimi-k2-instruct-0905", "llama"), "kimi-k2-instruct-0905"),
        ("anything", ("/models/only-one",), "/models/only-one"),
        ("anything", ("apple", "pear"), None),
        ("anything", (), None),
    ],
)
async def test_a_wrong_model_is_answered_with_what_the_server_has(
    wanted: str, served_ids: tuple[str, ...], suggestion: str | None
) -> None:
    script: dict[str, list[ScriptedReply]] = {
        CHAT: [vllm(404, "NotFoundError", f"The model `{wanted}` does not exist.")],
        MODELS: [model_list(*served_ids)],
    }
    with anyio.fail_after(LONGEST_S):
        async with (
            KimiServer(replies=script) as server,
            KimiAgent(wanted, base_url=server.base_url) as agent,
        ):
            with pytest.raises(ModelNotFoundError) as caught:
                await agent.run("Hello")

    assert caught.value.available == served_ids
    assert caught.value.suggestion == suggestion
    for name in served_ids:
        assert name in str(caught.value)
    assert ("Did you mean" in str(caught.value)) == (suggestion is not None)
    assert [request.path for request in server.requests] == [CHAT, MODELS]


async def test_a_wrong_model_is_told_even_if_the_server_lists_nothing() -> None:
    script: dict[str, list[ScriptedReply]] = {
        CHAT: [vllm(404, "NotFoundError", "The model `kimi-k2` does not exist.")],
        MODELS: [Reply(status=500, body="no")],
    }
    async with served(script) as (_, agent):
        with pytest.raises(ModelNotFoundError, match="does not exist") as caught:
            await agent.run("Hello")

    assert caught.value.available == ()
