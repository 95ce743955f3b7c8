"""What `examine` makes of servers that are not there, not yet, or not any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from kimi_agent._runtime.openai_transport import OpenAITransport
from kimi_agent.doctor import Asked, examine
from kimi_agent.testing import Close, Hang, KimiServer, Reply, error_reply, json_reply
from tests.e2e.test_doctor import (
    CHAT,
    GOOD,
    K2,
    LONGEST_S,
    answering,
    finding,
    report_of,
    report_on,
    verdicts,
)

if TYPE_CHECKING:
    from kimi_agent.testing import ReceivedRequest

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here, the command's: what is found is decided without waiting."""
    return "asyncio"


def refused_url() -> str:
    """An address nobody listens on any more."""
    with KimiServer() as server:
        return server.base_url


async def test_where_nothing_listens_everything_else_is_skipped() -> None:
    report = await report_on(refused_url())

    assert verdicts(report) == {**dict.fromkeys(GOOD, "skip"), "reachable": "fail"}
    assert "connection refused" in finding(report, "reachable").seen


async def test_an_address_without_v1_is_put_right_and_the_checks_go_on() -> None:
    async with KimiServer(model=K2) as server:
        report = await report_on(server.base_url.removesuffix("/v1"))

        assert verdicts(report) == {**GOOD, "reachable": "fail"}
        assert f"--base-url {server.base_url}" in finding(report, "reachable").remedy


async def test_a_web_page_is_no_server() -> None:
    page = Reply(headers={"content-type": "text/html"}, body="<html>Welcome</html>")

    report = await report_of(replies={"/v1/models": page, CHAT: page})

    assert finding(report, "reachable").verdict == "fail"
    assert "ending with /v1" in finding(report, "reachable").remedy


async def test_a_server_that_lists_no_models_is_examined_by_the_given_name() -> None:
    absent = error_reply(404, "Not Found")

    unnamed = await report_of(model=K2, replies={"/v1/models": absent})
    named = await report_of(model=K2, replies={"/v1/models": absent}, asked={"model": K2})

    assert finding(unnamed, "reachable").verdict == "fail"
    # No list tells the context, but the first reply tells the engine.
    assert verdicts(named) == {**GOOD, "context_limit": "skip"}
    assert named.engine == "vllm"


LOADING = error_reply(503, "Loading model", type="unavailable_error")


async def test_a_loading_server_fails_and_the_remedy_is_to_wait() -> None:
    report = await report_of("llama.cpp", replies={"/v1/models": LOADING})

    assert finding(report, "reachable").verdict == "fail"
    assert "--wait" in finding(report, "reachable").remedy


async def test_a_loading_server_is_waited_for_until_it_is_ready() -> None:
    entries = json_reply(
        {"object": "list", "data": [{"id": K2, "owned_by": "vllm", "max_model_len": 131_072}]}
    )
    greeted: list[str] = []

    def chat(request: ReceivedRequest) -> Reply:
        # The list may be there before the model is.
        greeted.append(request.path)
        return LOADING if len(greeted) == 1 else answering()(request)

    report = await report_of(
        replies={"/v1/models": [LOADING, entries], CHAT: chat, "/v1/completions": error_reply(404, "no")},
        asked={"wait_s": 20},
    )

    assert verdicts(report) == {**GOOD, "usage": "ok", "raw_completions": "skip"}
    assert "of waiting" in finding(report, "reachable").seen


async def test_waiting_ends() -> None:
    report = await report_on(refused_url(), wait_s=0.6)

    assert finding(report, "reachable").verdict == "fail"


async def test_a_server_that_dies_on_the_way_is_left_in_peace() -> None:
    first = [answering(), answering()]

    def dying(request: ReceivedRequest) -> Reply:
        return first.pop()(request) if first else Reply(before=(Close(),))

    report = await report_of(model=K2, replies=dying)

    assert finding(report, "streamed_answer").verdict == "ok"
    assert finding(report, "tool_call").verdict == "fail"
    assert finding(report, "usage").verdict == "skip"
    assert finding(report, "usage").seen == "the server stopped answering"


async def test_a_connection_cut_once_is_no_finding() -> None:
    chat = answering()
    cut = [Reply(before=(Close(),))]

    def cutting(request: ReceivedRequest) -> Reply:
        return cut.pop() if cut and request.body.get("tools") else chat(request)

    report = await report_of(model=K2, replies={CHAT: cutting, "/v1/completions": error_reply(404, "no")})

    assert verdicts(report) == {**GOOD, "raw_completions": "skip"}


async def test_a_server_that_hangs_costs_no_more_than_its_time() -> None:
    hanging = Reply(headers={"content-type": "application/json"}, body=[Hang()])

    async with KimiServer(model=K2, replies=hanging) as server:
        with anyio.fail_after(LONGEST_S):
            report = await examine(
                Asked(),
                lambda url: OpenAITransport.connect(base_url=url, api_key="none"),
                server.base_url,
                timeout_s=0.2,
            )

    assert finding(report, "plain_answer").verdict == "fail"
    assert "no whole reply within 0.2 s" in finding(report, "plain_answer").seen
