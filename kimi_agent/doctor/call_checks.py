"""Checks of tool calls: whole, streamed, side by side, their ids, finish reasons and choices."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from kimi_agent.doctor.case import ONE_CITY, TWO_CITIES, WEATHER
from kimi_agent.doctor.finding import fail, needing_flags, ok, skip, warn
from kimi_agent.doctor.leaks import sightings
from kimi_agent.doctor.remedies import advice_on, cut, is_hosted, quoted, told, tool_remedy
from kimi_agent.errors import (
    ContextTooLongError,
    InvalidRequestError,
    ToolsUnsupportedError,
    TransportStatusError,
)

if TYPE_CHECKING:
    from kimi_agent.doctor.case import Case
    from kimi_agent.doctor.finding import Finding
    from kimi_agent.doctor.observed_reply import ObservedCall, ObservedReply

_TRIES: Final = 2
TOOL_PROBES: Final = ("tool call", "streamed call", "parallel calls")
_CITIES: Final = 2
# Ids by engine: vLLM, SGLang and llama.cpp pass `functions.NAME:N` on or number so themselves; Moonshot says
# `NAME:N`, and for K3 `NAME_N` (kimi-cli and vendor verifier, October 2026).
_K2_ID: Final = re.compile(r"functions\.[\w.-]+:\d+")
_OWN_ID: Final = re.compile(r"[\w.-]+[:_]\d+|chatcmpl-tool-[0-9a-f]+")


async def tool_call(case: Case) -> Finding:
    """A call as a structure, in a whole reply."""
    finding = await _called(case, "tool call", ONE_CITY)
    case.tools_work = finding.verdict == "ok"
    return finding


async def streamed_call(case: Case) -> Finding:
    """The same as a stream."""
    return await _called(case, "streamed call", ONE_CITY, stream=True)


async def parallel_calls(case: Case) -> Finding:
    """Two calls in one reply."""
    return await _called(case, "parallel calls", TWO_CITIES, expected=_CITIES)


async def call_ids(case: Case) -> Finding:
    """Whether the calls of a reply can be told apart, and are labelled as the model knows it."""
    replies = [case.replies[title] for title in TOOL_PROBES if title in case.replies]
    ids = [[call.id for call in reply.calls] for reply in replies if reply.calls]
    if not ids:
        return skip("no calls to look at")
    shown = ", ".join(dict.fromkeys(cut(each, 40) or "(empty)" for reply_ids in ids for each in reply_ids))
    harmless = "nothing to do: the agent tells calls apart by their place"
    if any("" in reply_ids for reply_ids in ids):
        return warn(f"a call without id: {shown}", harmless)
    if any(len(set(reply_ids)) < len(reply_ids) for reply_ids in ids):
        return warn(f"the same id twice in one reply: {shown}", harmless)
    flat = [each for reply_ids in ids for each in reply_ids]
    if all(_K2_ID.fullmatch(each) for each in flat):
        return ok(shown)
    takes_k2 = case.deployment.dialect.call_ids == "k2" and case.text_format == "k2"
    if takes_k2 and not all(_OWN_ID.fullmatch(each) for each in flat):
        return warn(
            f"{shown}: not functions.NAME:N, which K2 was trained on",
            "nothing to do: the agent sends histories with the ids K2 knows; other clients have to",
        )
    return ok(f"{shown}, the server's own form")


async def finish_reasons(case: Case) -> Finding:
    """Whether the word for the end of a reply fits what is in it."""
    replies = {title: case.replies[title] for title in TOOL_PROBES if title in case.replies}
    if not replies:
        return skip("no calls to look at")
    wrong = [
        f"{reply.finish_reason!r} with {'calls' if reply.calls else 'no calls'} ({title})"
        for title, reply in replies.items()
        if (reply.finish_reason == "tool_calls") != bool(reply.calls) and reply.finish_reason != "length"
    ]
    plain = case.replies.get("plain answer")
    if plain is not None and plain.finish_reason not in ("stop", "length"):
        wrong.append(f"{plain.finish_reason!r} for a plain answer")
    if wrong:
        return warn("; ".join(wrong), "nothing to do: the agent goes by what the reply holds")
    seen = dict.fromkeys(repr(reply.finish_reason) for reply in replies.values())
    return ok(f"{', '.join(seen)} with calls, 'stop' without" if "'tool_calls'" in seen else ", ".join(seen))


async def tool_choice(case: Case) -> Finding:
    """Whether each way to say which tool may be called is taken."""
    named = {"type": "function", "function": {"name": WEATHER.name}}
    outcomes = {
        "auto": "ok" if case.tools_work else "does not work",
        "none": await _chosen(case, "none", calls=False),
        "required": await _chosen(case, "required"),
        "named": await _chosen(case, named),
    }
    seen = ", ".join(f"{name} {outcome}" for name, outcome in outcomes.items())
    accepted = {"ok", "refused while thinking"}
    if set(outcomes.values()) <= accepted:
        return ok(seen)
    if not case.tools_work and not is_hosted(case.deployment.dialect):
        return warn(seen, tool_remedy(case.deployment.dialect, case.text_format))
    if outcomes["none"] == "leaves raw text":
        return warn(
            seen, "nothing to do: the agent hides the markers; other clients should leave tools out instead"
        )
    return warn(seen, "use the forms that work in ModelOptions.tool_choice")


async def _chosen(case: Case, choice: Any, *, calls: bool = True) -> str:
    """What comes of one form of `tool_choice`, in a few words."""
    try:
        fields = case.question(ONE_CITY, tool_choice=choice)
        reply = await case.probe(f"tool_choice {choice}", fields, learns=False, may_leak=True)
    except InvalidRequestError as error:
        return "refused while thinking" if "thinking" in error.server_message else "refused"
    except TransportStatusError as error:
        return f"fails with {error.status_code}"
    if any(each.leak.kind == "call" for each in sightings(reply, "")):
        return "leaves raw text"
    if bool(reply.calls) == calls:
        return "ok"
    return "ignored" if reply.calls else "brings no call"


async def _called(
    case: Case, title: str, question: str, *, stream: bool = False, expected: int = 1
) -> Finding:
    """The finding about one probe with tools; a model that answers in words is asked once more."""
    ending = {"stream": True} if stream else {}
    finding = skip("not asked")
    for _ in range(_TRIES):
        try:
            reply = await case.probe(title, case.question(question, **ending))
        except TransportStatusError as error:
            return _refused(case, error)
        finding = _judged(case, reply, expected)
        if reply.calls or not reply.content.strip() or finding.wants_flags:
            break
    return finding


def _refused(case: Case, error: TransportStatusError) -> Finding:
    is_about_tools = isinstance(error, InvalidRequestError) and not isinstance(error, ContextTooLongError)
    if is_about_tools or error.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
        case.tools_refused = isinstance(error, ToolsUnsupportedError)
        remedy = tool_remedy(case.deployment.dialect, case.text_format)
        return needing_flags(fail(told(error), remedy))
    return fail(told(error), advice_on(error))


def _judged(case: Case, reply: ObservedReply, expected: int) -> Finding:
    if reply.calls:
        return _calls_judged(reply.calls, expected)
    leak = next((each for each in sightings(reply, "") if each.leak.kind == "call"), None)
    if leak is not None:
        remedy = tool_remedy(case.deployment.dialect, leak.leak.text_format)
        return needing_flags(fail(f"no tool_calls; the call is raw text in {leak.field}", remedy))
    if reply.finish_reason == "length":
        return warn(f"no call within {case.deployment.output_tokens} output tokens", "try it once more")
    if not reply.content.strip():
        return fail(
            f"no call and no text, finish reason {reply.finish_reason!r}: the server's parser lost it",
            "use a newer release of the server; the agent asks again when that happens",
        )
    return fail(
        f"no call; the model answered {quoted(reply.content)}",
        "see whether the server's chat template shows the tools to the model",
    )


def _calls_judged(calls: list[ObservedCall], expected: int) -> Finding:
    shown = ", ".join(f"{call.name}({cut(call.arguments, 40)})" for call in calls[: expected + 1])
    if any(call.name != WEATHER.name for call in calls):
        return fail(f"a call of another name: {shown}", "use a newer release of the server")
    if any(call.decoded is None for call in calls):
        return fail(f"arguments that are not a JSON object: {shown}", "use a newer release of the server")
    if any(not isinstance((call.decoded or {}).get("city"), str) for call in calls):
        return warn(
            f"arguments that do not fit the schema: {shown}", "nothing to do: the agent tells the model"
        )
    if len({json.dumps(call.decoded, sort_keys=True) for call in calls}) < expected:
        return warn(f"one call at a time: {shown}", "nothing to do: it takes more steps, and works")
    return ok(shown)
