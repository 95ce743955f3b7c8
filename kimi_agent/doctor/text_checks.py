"""Checks of what a server makes of the model's text: reasoning, and markers that come through."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from kimi_agent._core.call_name import call_id
from kimi_agent._core.encode import ChatEncoder
from kimi_agent.dialects.generation import UNKNOWN
from kimi_agent.doctor.call_checks import TOOL_PROBES
from kimi_agent.doctor.case import ONE_CITY, WEATHER
from kimi_agent.doctor.finding import fail, needing_flags, ok, skip, warn
from kimi_agent.doctor.remedies import quoted, reasoning_remedy, told, tool_remedy, unwanted_flags
from kimi_agent.errors import InvalidRequestError, TransportStatusError
from kimi_agent.results import usage_from

if TYPE_CHECKING:
    from kimi_agent.doctor.case import Case
    from kimi_agent.doctor.finding import Finding
    from kimi_agent.doctor.leaks import Sighting
    from kimi_agent.doctor.observed_reply import ObservedReply
    from kimi_agent.json_types import JsonObject

_THOUGHT: Final = "The user wants to know the weather in Paris, so I call get_weather for Paris."
_PROBES_NAMED: Final = 3
_STREAMED_REPLAY: Final = "history streamed"


async def reasoning_field(case: Case) -> Finding:
    """Whether reasoning comes in a field of its own, from a model that reasons."""
    generation = case.deployment.generation
    fields = {reply.reasoning_field for reply in case.replies.values()} - {None}
    in_content = any(each.leak.kind == "thought" and each.field == "content" for each in case.sightings)
    if not case.replies:
        return skip("no reply to look at")
    if fields and generation.thinking == "never":
        flags = unwanted_flags(case.deployment.dialect, case.text_format)
        return warn(
            f"{_names(fields)} holds text, although {generation.name} does not reason",
            "if it is a thinking model, say so: --generation k2-thinking, and generation= in your program; "
            f"if not, serve it without {flags}",
        )
    if fields:
        first = next(reply.reasoning_text for reply in case.replies.values() if reply.reasoning_text)
        return ok(f"{_names(fields)}: {quoted(first, 50)}")
    if in_content:
        return _thoughts_in_content(case, "no reasoning field; the reasoning is in content")
    if generation.thinking == "always":
        return warn(
            f"none, although {generation.name} always reasons",
            "see whether the server or a proxy drops it: the agent cannot send it back then",
        )
    return ok("none" if generation.thinking == "never" else "none seen")


def _thoughts_in_content(case: Case, seen: str) -> Finding:
    remedy = reasoning_remedy(case.deployment.dialect, case.text_format, case.deployment.generation)
    return needing_flags(fail(seen, remedy))


async def reasoning_replay(case: Case) -> Finding:
    """Whether the server takes earlier reasoning back, and shows it to the model."""
    generation = case.deployment.generation
    if not case.reasons and generation.thinking in ("never", "optional"):
        return skip("the model does not reason" if generation.thinking == "never" else "no reasoning seen")
    reply = case.replies.get("tool call")
    thought = (reply.reasoning_text if reply else "") or _THOUGHT
    raw = case.tools_refused
    try:
        with_it = await case.probe("history", _history(case, thought), may_leak=raw)
    except TransportStatusError as error:
        return fail(f"refused: {told(error)}", "use a newer release of the server")
    await case.probe(_STREAMED_REPLAY, _history(case, thought) | {"stream": True}, may_leak=raw)
    names = ", ".join(case.deployment.dialect.reasoning_fields)
    try:
        without = await case.probe(
            "history without reasoning", _history(case, None), learns=False, may_leak=True
        )
    except InvalidRequestError:
        return ok(f"taken as {names}, and required")
    return _replayed(case, names, with_it, without)


def _replayed(case: Case, names: str, with_it: ObservedReply, without: ObservedReply) -> Finding:
    """What the token counts of a prompt with and without the thought tell."""
    count, less = (usage_from(reply.usage or {}).input_tokens for reply in (with_it, without))
    if not (count and less):
        return ok(f"taken as {names}")
    if count > less:
        return ok(f"taken as {names}; the model sees it ({count - less} more prompt tokens)")
    seen = f"taken as {names}, but the prompt is no longer for it: the model does not see it"
    generation = case.deployment.generation
    if generation is UNKNOWN or generation.keep_reasoning == "no":
        return ok(seen)
    return warn(seen, "serve it with the model's own chat template, by a recent release")


def _history(case: Case, thought: str | None) -> JsonObject:
    """A request whose history holds a call, its result, and perhaps the thought before it."""
    call = {
        "id": call_id(WEATHER.name, 0),
        "type": "function",
        "function": {"name": WEATHER.name, "arguments": '{"city": "Paris"}'},
    }
    reasoning = {} if thought is None else {"reasoning_content": thought}
    messages = [
        {"role": "user", "content": ONE_CITY},
        {"role": "assistant", **reasoning, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": '{"temp_c": 18, "sky": "cloudy"}'},
    ]
    deployment = case.deployment
    encoder = ChatEncoder(
        model=deployment.model or "",
        tools={WEATHER.name: WEATHER},
        options=deployment.options,
        engine=deployment.dialect,
        generation=deployment.generation,
    )
    fields: JsonObject = json.loads(encoder.body(messages, stream=False))
    return fields | ({"tool_choice": "none"} if case.tools_refused else {})


async def raw_markers(case: Case) -> Finding:
    """Whether markers of tool calls, or of messages, come through to the client."""
    if not any(title in case.replies for title in TOOL_PROBES):
        return skip("no reply with tools to look at")
    calls = [each for each in case.sightings if each.leak.kind == "call"]
    if calls:
        seen = calls[0]
        remedy = tool_remedy(case.deployment.dialect, seen.leak.text_format)
        return needing_flags(fail(f"{seen.leak.marker} in {seen.field} ({_probes(calls)})", remedy))
    frames = [each for each in case.sightings if each.leak.kind == "framing"]
    if frames:
        seen = frames[0]
        return warn(
            f"{seen.leak.marker} in {seen.field} ({_probes(frames)})",
            "the server does not stop at the model's end token, or shows special tokens: see its tokenizer "
            "and generation_config.json; the agent hides them",
        )
    return ok(f"none in {len(case.replies)} replies")


async def think_tags(case: Case) -> Finding:
    """Whether the marks around reasoning come through to the client."""
    if not case.replies:
        return skip("no reply to look at")
    found = [each for each in case.sightings if each.leak.kind == "thought"]
    if not found:
        return ok(f"none in {len(case.replies)} replies")
    seen = f"{found[0].leak.marker} in {found[0].field} ({_probes(found)})"
    has_field = any(reply.reasoning_field for reply in case.replies.values())
    if has_field and all(each.probe == _STREAMED_REPLAY for each in found):
        # vLLM 0.32 with a history that holds an assistant message; whole replies are right.
        return warn(
            f"{seen}, but not in whole replies",
            "nothing to do: the agent puts it right; other clients should not stream",
        )
    if any(each.field != "content" for each in found) and has_field:
        return warn(seen, "nothing to do: the agent takes them out")
    return _thoughts_in_content(case, seen)


def _names(fields: set[str | None]) -> str:
    return ", ".join(sorted(name for name in fields if name))


def _probes(found: list[Sighting]) -> str:
    """What had been asked when these were seen."""
    probes = list(dict.fromkeys(each.probe for each in found))
    more = f" and {len(probes) - _PROBES_NAMED} more" if len(probes) > _PROBES_NAMED else ""
    return ", ".join(probes[:_PROBES_NAMED]) + more
