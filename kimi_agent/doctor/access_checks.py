"""Checks of what is there: server, key, model, engine, generation, context."""

from __future__ import annotations

import shlex
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from kimi_agent._core.engine_signs import engine_of_models, engine_of_reply
from kimi_agent._core.model_choice import meant_model
from kimi_agent.dialects.generation import UNKNOWN
from kimi_agent.doctor.finding import fail, ok, skip, warn
from kimi_agent.doctor.observed_reply import ObservedReply
from kimi_agent.doctor.remedies import CONTEXT_FLAGS, advice_on, cut, told
from kimi_agent.errors import (
    AccessDeniedError,
    AuthenticationError,
    KimiAgentError,
    ModelNotFoundError,
    ProtocolError,
    QuotaExhaustedError,
    TransportConnectionError,
    TransportStatusError,
)

if TYPE_CHECKING:
    from kimi_agent.dialects import Engine
    from kimi_agent.doctor.case import Case
    from kimi_agent.doctor.finding import Finding

# Below this an agent has no room for tools and their results.
_SMALL_CONTEXT: Final = 16_384
_NO_LIST: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}
)
_ROOT_ADVICE: Final = "base_url should be the root of an OpenAI-compatible API, usually ending with /v1"
_NO_ACCESS: Final = (AuthenticationError, AccessDeniedError, QuotaExhaustedError)
_SAME_SOFTWARE: Final = {"ktransformers": "sglang"}


async def reachable(case: Case) -> Finding:
    """Whether anything answers where it should, as an OpenAI-compatible API."""
    url = case.deployment.base_url
    try:
        case.entries = await case.patience.wait_out(case.deployment.models)
    except KimiAgentError as error:
        case.list_error = error
    waited = f" after {case.patience.waited_s:.0f} s of waiting" if case.patience.waited_s else ""
    error = case.list_error
    if error is None:
        return ok(f"{url} answered{waited}")
    if isinstance(error, _NO_ACCESS):
        return ok(f"{url} answered {error.status_code}{waited}")
    lists_none = isinstance(error, TransportStatusError) and error.status_code in _NO_LIST
    if lists_none and (case.asked.model is not None):
        return ok(f"{url} answered{waited}; it does not list its models")
    if (lists_none or isinstance(error, ProtocolError)) and await _found_below(case):
        return fail(
            f"{url} is not the root of the API, {case.deployment.base_url} is; going on with that",
            f"--base-url {case.deployment.base_url}, KIMI_BASE_URL or base_url=",
        )
    case.stopped = "the server was not reached"
    if isinstance(error, TransportConnectionError):
        return fail(
            f"nothing answers at {url} ({told(error)})",
            "start the server, or name one that runs with --base-url or KIMI_BASE_URL; "
            "--wait 600 waits for one that is starting",
        )
    where = f"{url}/models: " if isinstance(error, TransportStatusError) else ""
    return fail(where + told(error), _ROOT_ADVICE if lists_none else advice_on(error))


async def _found_below(case: Case) -> bool:
    """Whether the API is at `/v1` below the given base URL; if so, `case` goes on with it."""
    url = f"{case.deployment.base_url}/v1"
    if case.deployment.base_url.endswith("/v1"):
        return False
    transport, before = case.connect(url), case.deployment.transport
    case.deployment.transport = transport
    try:
        case.entries = await case.deployment.models()
    except KimiAgentError:
        case.deployment.transport = before
        await transport.aclose()
        return False
    await before.aclose()
    case.deployment.base_url = url
    case.list_error = None
    return True


async def api_key(case: Case) -> Finding:
    """Whether the server lets us in."""
    if not isinstance(case.list_error, _NO_ACCESS):
        await case.meet()
    error = case.list_error if isinstance(case.list_error, _NO_ACCESS) else case.first
    if isinstance(error, _NO_ACCESS):
        case.stopped = "the server lets nobody in with that key"
        if isinstance(error, AuthenticationError) and not case.asked.has_key:
            case.stopped = "the server wants a key"
            return fail(
                f"the server wants a key, and none was given ({told(error)})",
                "pass --api-key or set KIMI_API_KEY",
            )
        return fail(f"refused: {told(error)}", advice_on(error))
    if not isinstance(case.first, ObservedReply):
        return skip("no answer to tell by")
    return ok("accepted" if case.asked.has_key else "none given, none needed")


async def model(case: Case) -> Finding:
    """Whether the server has the model, by the name that was given."""
    wanted, ids = case.asked.model, case.ids
    listed = cut(", ".join(ids), 150) or "none"
    going_on = case.deployment.model
    if going_on is None:
        case.stopped = "no model to ask"
        return fail(
            f"no model was named, and the server lists {listed}", "pick one with --model or KIMI_MODEL"
        )
    if case.refused_name is not None:
        return fail(
            f"{wanted!r} is not served; going on with {going_on!r}",
            f"use that name: --model {shlex.quote(going_on)}, KIMI_MODEL or model=",
        )
    if isinstance(case.first, ModelNotFoundError):
        case.stopped = "no model to ask"
        return fail(f"{told(case.first)}; the server lists {listed}", "pick one of these with --model")
    if wanted is None or wanted in ids or not ids:
        return ok(going_on if wanted else f"{going_on}, the only one")
    if isinstance(case.first, KimiAgentError):
        return warn(f"{wanted!r} is not in the server's list: {listed}")
    meant = meant_model(wanted, ids) or ids[0]
    return warn(
        f"{wanted!r} is not in the list ({listed}), but this server takes any name",
        f"use the listed one, so that it goes on working elsewhere: --model {shlex.quote(meant)}",
    )


async def engine(case: Case) -> Finding:
    """Whether it is known what software serves the model."""
    known = case.deployment.engine
    if known is None:
        return warn(
            "not recognised by host, list of models or reply; it is sent what most servers read",
            "name it with --engine, and engine= in your program",
        )
    seen = _engine_shown(case)
    if case.asked.engine and seen and seen.name not in (known.name, _SAME_SOFTWARE.get(known.name)):
        return warn(f"you said {known.name}, but it looks like {seen.name}", "leave out --engine and engine=")
    version = case.first.fingerprint if isinstance(case.first, ObservedReply) else None
    return ok(f"{known.name}, {case.engine_how}" + (f" ({cut(version, 40)})" if version else ""))


def _engine_shown(case: Case) -> Engine | None:
    by_reply = engine_of_reply(case.first.first_chunk) if isinstance(case.first, ObservedReply) else None
    return engine_of_models(case.entries) or by_reply


async def generation(case: Case) -> Finding:
    """Whether it is known which generation of Kimi the model is."""
    known = case.deployment.generation
    if known is UNKNOWN:
        return warn(
            f"the name {case.deployment.model!r} does not tell; nothing special is sent",
            "name it with --generation and generation=, or serve the model under its own name",
        )
    return ok(f"{known.name}, {case.generation_how}")


async def context_limit(case: Case) -> Finding:
    """Whether the server tells how much fits, and whether that is enough for an agent."""
    limit, most = case.deployment.context_tokens, case.deployment.generation.context_tokens
    if limit is None:
        return skip("the list of models does not tell")
    if limit < _SMALL_CONTEXT:
        flag = CONTEXT_FLAGS.get(case.deployment.dialect.name)
        how = f" with {flag}" if flag else ""
        return warn(
            f"{limit:,} tokens: little room for tools and their results",
            f"the model takes {most:,}; give it more{how}",
        )
    return ok(f"{limit:,} tokens")
