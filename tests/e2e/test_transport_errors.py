"""Every way a server can refuse: the class, its fields, and a message that says what to do."""

from __future__ import annotations

import logging
import pickle
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import openai
import pytest

from kimi_agent import (
    AccessDeniedError,
    AuthenticationError,
    ContentFilteredError,
    ContextTooLongError,
    EngineOverloadedError,
    IncompleteStreamError,
    InvalidRequestError,
    KimiAgent,
    KimiAgentError,
    ModelError,
    ModelNotFoundError,
    ModelOptions,
    ProtocolError,
    QuotaExhaustedError,
    RateLimitedError,
    RequestTooLargeError,
    RunLimits,
    StepLimitError,
    ToolsUnsupportedError,
    TransportConnectionError,
    TransportError,
    TransportStatusError,
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
from tests.e2e.support import CHAT, LONGEST_S, MODELS, asking_for, chat_requests, result_of, served, weather

if TYPE_CHECKING:
    from kimi_agent.testing import ReceivedRequest, ScriptedReply

pytestmark = pytest.mark.anyio

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
NO_RETRY = RunLimits(max_retries=0, request_timeout_s=0.3)
SECRET = "sk-aVerySecretKey0123456789"


@dataclass
class Case:
    """One refusal and what a user must be able to tell from it."""

    reply: Reply
    kind: type[TransportStatusError]
    words: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    retryable: bool = False


def moonshot(status: int, kind: str, message: str) -> Reply:
    return json_reply(
        {"error": {"message": message, "type": kind}}, status=status, headers={"x-request-id": "req-42"}
    )


def vllm(status: int, kind: str, message: str, *, flat: bool = False) -> Reply:
    fields = {"message": message, "type": kind, "param": None, "code": status}
    body = {"object": "error", **fields} if flat else {"error": fields}
    return json_reply(body, status=status, headers={"x-request-id": "req-42"})


CASES: dict[str, Case] = {
    "wrong key": Case(
        moonshot(401, "invalid_authentication_error", "Invalid Authentication"),
        AuthenticationError,
        ("KIMI_API_KEY", "api.moonshot.cn"),
    ),
    "no permission": Case(
        moonshot(403, "permission_denied_error", "The API you are accessing is not open"),
        AccessDeniedError,
        ("may not do this",),
    ),
    "unknown model": Case(
        moonshot(404, "resource_not_found_error", "Not found the model kimi-k2 or Permission denied"),
        ModelNotFoundError,
        ("kimi-simulated",),
        {"available": ("kimi-simulated",)},
    ),
    "unknown model, vllm": Case(
        vllm(404, "NotFoundError", "The model `kimi-k2` does not exist."),
        ModelNotFoundError,
        ("kimi-simulated",),
    ),
    "unknown model, old vllm": Case(
        vllm(404, "NotFoundError", "The model `kimi-k2` does not exist.", flat=True), ModelNotFoundError
    ),
    "no such path": Case(
        json_reply({"detail": "Not Found"}, status=404, headers={"x-request-id": "req-42"}),
        TransportStatusError,
        ("/v1", "base_url"),
    ),
    "rate": Case(
        moonshot(
            429,
            "rate_limit_reached_error",
            "Your account org<key> request reached organization max RPM: 3, please try again after 2 seconds",
        ),
        RateLimitedError,
        ("too many requests",),
        {"retry_after_s": 2.0},
        retryable=True,
    ),
    "overloaded": Case(
        moonshot(
            429, "engine_overloaded_error", "The engine is currently overloaded, please try again later"
        ),
        EngineOverloadedError,
        ("try again later",),
        retryable=True,
    ),
    "no money": Case(
        moonshot(429, "exceeded_current_quota_error", "Your account is suspended, please check your plan"),
        QuotaExhaustedError,
        ("balance",),
    ),
    "content": Case(
        moonshot(400, "content_filter", "The request was rejected because it was considered high risk"),
        ContentFilteredError,
        ("will not help",),
    ),
    "too long, moonshot": Case(
        moonshot(
            400,
            "invalid_request_error",
            "Invalid request: Your request exceeded model token limit: 262144 (requested: 274613)",
        ),
        ContextTooLongError,
        ("262144", "274613", "shorten"),
        {"limit_tokens": 262144, "requested_tokens": 274613},
    ),
    "too long, vllm": Case(
        vllm(
            400,
            "BadRequestError",
            "This model's maximum context length is 4096 tokens. However, you requested 512 output tokens and "
            "your prompt contains at least 3585 input tokens, for a total of at least 4097 tokens. Please "
            "reduce the length of the input prompt or the number of requested output tokens. "
            "(parameter=input_tokens, value=3585)",
        ),
        ContextTooLongError,
        fields={"limit_tokens": 4096, "requested_tokens": 4097},
    ),
    "too long, another vllm": Case(
        vllm(
            400,
            "BadRequestError",
            "You passed 4097 input tokens and requested 0 output tokens. However, the model's context length "
            "is only 4096 tokens, resulting in a maximum input length of 4096 tokens.",
        ),
        ContextTooLongError,
        fields={"limit_tokens": 4096, "requested_tokens": 4097},
    ),
    "too long, sglang": Case(
        vllm(
            400,
            "BadRequestError",
            "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            flat=True,
        ),
        ContextTooLongError,
        fields={"limit_tokens": 4096, "requested_tokens": 5000},
    ),
    "too long, llama.cpp": Case(
        json_reply(
            {
                "error": {
                    "code": 400,
                    "message": "the request exceeds the available context size, try increasing it",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 900,
                    "n_ctx": 512,
                }
            },
            status=400,
            headers={"x-request-id": "req-42"},
        ),
        ContextTooLongError,
        fields={"limit_tokens": 512, "requested_tokens": 900},
    ),
    "no parser": Case(
        vllm(
            400,
            "BadRequestError",
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        ),
        ToolsUnsupportedError,
        ("--tool-call-parser kimi_k2",),
    ),
    "too many bytes": Case(
        moonshot(400, "invalid_request_error", "total message size 12000000 exceeds limit 10485760"),
        RequestTooLargeError,
        ("shorten",),
        {"limit_bytes": 10485760},
    ),
    "413 page": Case(
        Reply(status=413, headers={"x-request-id": "req-42"}, body="<html>413</html>"),
        RequestTooLargeError,
        fields={"limit_bytes": None},
    ),
    "bad request": Case(
        moonshot(400, "invalid_request_error", "invalid temperature: only 1 is allowed for this model"),
        InvalidRequestError,
        ("invalid temperature: only 1 is allowed",),
    ),
    "422 of a gateway": Case(
        json_reply(
            {"detail": [{"loc": ["body", "messages"], "msg": "field required"}]},
            status=422,
            headers={"x-request-id": "req-42"},
        ),
        InvalidRequestError,
        ("field required",),
    ),
    "nested by a gateway": Case(
        json_reply(
            {
                "error": {
                    "message": '{"error":{"message":"Invalid Authentication","type":"x"}}',
                    "type": "upstream",
                }
            },
            status=401,
            headers={"x-request-id": "req-42"},
        ),
        AuthenticationError,
        ("Invalid Authentication",),
    ),
    "broken": Case(
        vllm(500, "InternalServerError", "list index out of range"),
        TransportStatusError,
        ("list index out of range",),
        retryable=True,
    ),
    "loading": Case(
        vllm(503, "unavailable_error", "Loading model"),
        TransportStatusError,
        ("loading",),
        retryable=True,
    ),
    "odd status": Case(
        Reply(status=418, headers={"x-request-id": "req-42"}, body="teapot"),
        TransportStatusError,
        ("teapot",),
    ),
    "empty body": Case(
        Reply(status=500, headers={"x-request-id": "req-42"}), TransportStatusError, retryable=True
    ),
}


@STREAMED
@pytest.mark.parametrize("name", CASES)
async def test_a_refusal_is_told_by_its_class_its_fields_and_its_words(name: str, streamed: bool) -> None:
    case = CASES[name]
    async with served({CHAT: [case.reply]}, limits=NO_RETRY) as (server, agent):
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


async def raised_errors() -> list[KimiAgentError]:
    """One error of each kind a run can raise, as a run raises it."""
    scripts: list[tuple[list[ScriptedReply], RunLimits]] = [
        *(([case.reply], NO_RETRY) for case in CASES.values()),
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
        with pytest.raises(InvalidRequestError) as caught:
            async with agent.stream("Hello") as run:
                async for _ in run:
                    pass
        assert len(chat_requests(server)) == 1

    assert isinstance(caught.value.__cause__, openai.APIStatusError)
    assert run.result.finish_reason == "error"
