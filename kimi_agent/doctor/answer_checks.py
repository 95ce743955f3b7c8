"""Checks of plain answers: text, stream, output limit, usage, cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kimi_agent.doctor.finding import fail, ok, skip, warn
from kimi_agent.doctor.remedies import CACHE_FLAGS, advice_on, quoted, told, unwanted_flags
from kimi_agent.errors import KimiAgentError, TransportStatusError
from kimi_agent.json_types import is_object
from kimi_agent.results import usage_from

if TYPE_CHECKING:
    from kimi_agent.doctor.case import Case
    from kimi_agent.doctor.finding import Finding
    from kimi_agent.doctor.observed_reply import ObservedReply
    from kimi_agent.json_types import JsonObject

_FEW_TOKENS: Final = 5
# Long enough for Moonshot, whose cache begins at 256 tokens.
_LONG_SYSTEM: Final = "You are a helpful assistant who answers in one short sentence. " * 30
_CHARACTERS_PER_TOKEN: Final = 3


async def plain_answer(case: Case) -> Finding:
    """The "Who are you?" check."""
    if isinstance(case.first, KimiAgentError):
        case.unanswered = "plain answers do not work yet"
        hint = (
            "api='completions' may work, see below; " if isinstance(case.first, TransportStatusError) else ""
        )
        return fail(told(case.first), f"{hint}{advice_on(case.first)}")
    if case.first is None:
        return skip("no model to ask")
    reply = case.first
    if not reply.content.strip():
        return _no_text(case, reply)
    seen = f"{quoted(reply.content)} in {reply.duration_s:.1f} s"
    if not any(name in reply.content.lower() for name in ("kimi", "moonshot")):
        return warn(f"{seen}, which does not say Kimi", "see whether it is the model you mean")
    return ok(seen)


def _no_text(case: Case, reply: ObservedReply) -> Finding:
    if reply.finish_reason == "length":
        return warn(
            f"no text: all of {case.deployment.output_tokens} output tokens went into the reasoning",
            "allow more output tokens, or less effort",
        )
    if reply.reasoning_text:
        flags = unwanted_flags(case.deployment.dialect, case.text_format)
        return fail(
            f"no text: the answer is in {reply.reasoning_field}: {quoted(reply.reasoning_text)}",
            f"a model that does not think is served without {flags}",
        )
    return fail(
        f"an empty reply, finish reason {reply.finish_reason!r}",
        "see the server's log, and whether a proxy on the way swallows replies",
    )


async def streamed_answer(case: Case) -> Finding:
    """The same as a stream."""
    fields, path = case.plain(stream=True)
    reply = await case.probe("streamed answer", fields, path=path)
    if not reply.content.strip():
        return _no_text(case, reply)
    if not reply.is_ended:
        return warn(
            f"{quoted(reply.content)}, but no [DONE] at the end",
            "see whether a proxy on the way cuts streams: a cut reply cannot be told from a whole one",
        )
    return ok(f"{quoted(reply.content)} in {reply.duration_s:.1f} s")


async def output_limit(case: Case) -> Finding:
    """Whether a reply ends at the limit that was asked for."""
    fields, path = case.plain(max_tokens=_FEW_TOKENS)
    reply = await case.probe("output limit", fields, path=path, may_leak=True)
    used = usage_from(reply.usage or {}).output_tokens
    name = case.deployment.learned.renamed.get(case.deployment.dialect.output_limit_field)
    field = name or case.deployment.dialect.output_limit_field
    # Some servers count the token that ends the reply.
    if used > _FEW_TOKENS + 1 or (not used and reply.finish_reason != "length"):
        return warn(
            f"{used or 'many'} output tokens although {field} was {_FEW_TOKENS}",
            "the server ignores the limit: replies may become long and dear",
        )
    if reply.finish_reason != "length":
        return warn(f"cut at {used} tokens, but the finish reason is {reply.finish_reason!r}, not 'length'")
    return ok(f"{field} {_FEW_TOKENS} cut the reply, finish reason 'length'")


async def usage(case: Case) -> Finding:
    """Whether tokens are counted, in streams too."""
    whole = case.replies.get("plain answer")
    stream = case.replies.get("streamed answer")
    missing = [
        name
        for name, reply in (("whole replies", whole), ("streams", stream))
        if reply is not None and not usage_from(reply.usage or {}).output_tokens
    ]
    if whole is None:
        return skip("no reply to look at")
    if missing:
        return warn(
            f"no usage in {' and '.join(missing)}",
            "RunLimits.max_total_tokens cannot work without it; let the server or proxy pass it on",
        )
    counted = usage_from(whole.usage or {})
    return ok(
        f"{counted.input_tokens} in, {counted.output_tokens} out" + (", streamed too" if stream else "")
    )


async def cached_tokens(case: Case) -> Finding:
    """Whether a repeated prompt comes from the cache, and is told so."""
    limit = case.deployment.context_tokens
    longest = len(_LONG_SYSTEM) if limit is None else limit * _CHARACTERS_PER_TOKEN // 4
    fields, path = case.plain(system=_LONG_SYSTEM[:longest], max_tokens=_FEW_TOKENS)
    await case.probe("long prompt", fields, path=path, may_leak=True)
    raw = (await case.probe("long prompt again", fields, path=path, may_leak=True)).usage or {}
    counted = usage_from(raw)
    if counted.cached_tokens:
        return ok(f"{counted.cached_tokens} of {counted.input_tokens} on a repeated prompt")
    engine = case.deployment.dialect.name
    if not _tells_cached(raw):
        flag = CACHE_FLAGS.get(engine)
        return warn("not told", f"start {engine} with {flag}") if flag else ok("not told by this server")
    return warn(
        f"0 of {counted.input_tokens} on a repeated prompt",
        "see whether prefix caching is on: long conversations cost much more without it",
    )


def _tells_cached(usage: JsonObject) -> bool:
    details: Any = usage.get("prompt_tokens_details")
    return any(is_object(holder) and "cached_tokens" in holder for holder in (usage, details))


async def request_fields(case: Case) -> Finding:
    """Whether the server takes every field that is sent."""
    if not case.replies:
        return skip("no reply to look at")
    if not case.deployment.lessons:
        return ok("none refused")
    details = "; ".join(dict.fromkeys(lesson.detail for lesson in case.deployment.lessons))
    return warn(details, "nothing to do: the agent learns it by itself, at the cost of one request")
