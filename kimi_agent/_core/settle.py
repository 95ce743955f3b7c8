"""A reply as it was read → what it means: answer, reasoning, and calls that may or may not run.

The policies are those of docs/reference/behaviour.md; each is one function here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kimi_agent._core.arguments import MalformedArgumentsError, decode_arguments
from kimi_agent._core.call_name import call_id, name_of_arguments, resolve_name, spoken_name
from kimi_agent._core.candidates import CallFinder, Candidate, label
from kimi_agent._core.finish_word import known_word
from kimi_agent._core.lenient_json import UnreadableError, is_json_object, read_value
from kimi_agent._core.settled import SettledCall, SettledReply
from kimi_agent.dialects.k2_format import CALL_ID_PREFIX
from kimi_agent.results import Repair, Usage, usage_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kimi_agent._core.reply_reader import Reply
    from kimi_agent._core.settled import Asked
    from kimi_agent.json_types import JsonObject
    from kimi_agent.messages import ToolSpec


def settle(reply: Reply, asked: Asked) -> SettledReply:
    """What `reply` means to someone who asked for `asked`."""
    return _Settlement(reply, asked).settled()


class _Settlement:
    def __init__(self, reply: Reply, asked: Asked) -> None:
        self._reply = reply
        self._asked = asked
        self._repairs: list[Repair] = []
        self._usage = usage_from(reply.usage) if reply.usage else Usage(requests=1)
        self._finish = known_word(reply.finish_reason)
        limit_reached = self._finish == "length" or (
            asked.max_output_tokens is not None and self._usage.output_tokens >= asked.max_output_tokens
        )
        self._finder = CallFinder(reply, asked, limit_reached=limit_reached, repair=self._repair)

    def settled(self) -> SettledReply:
        candidates = self._finder.find()
        refused = bool(candidates) and not self._asked.calls_allowed
        if refused:
            self._repair(
                "call_dropped",
                "reply",
                "no call was asked for; dropped " + ", ".join(label(one) for one in candidates),
            )
            candidates = []
        calls = self._without_cut(self._settled_call(place, one) for place, one in enumerate(candidates))
        return SettledReply(
            content=self._finder.content,
            reasoning=self._finder.reasoning,
            calls=calls,
            finish_reason=self._finish_reason(calls),
            raw_finish_reason=self._reply.finish_reason,
            usage=self._usage,
            repairs=tuple(self._repairs),
            calls_refused=refused,
        )

    def _finish_reason(self, calls: Sequence[SettledCall]) -> str:
        """What the reply holds decides; only the cut and the filter are told by the word alone."""
        if self._finish in ("length", "content_filter"):
            return self._finish
        if calls:
            return "tool_calls"
        return "stop" if self._finish == "tool_calls" else self._finish

    def _repair(self, kind: str, where: str, detail: str) -> None:
        self._repairs.append(Repair(kind=kind, where=f"step {self._asked.step}, {where}", detail=detail))

    # --- what each call is -------------------------------------------------------------------------

    def _settled_call(self, place: int, one: Candidate) -> SettledCall:
        where = f"call {place}"
        tools = self._asked.tools
        name = resolve_name(one.header, tools)
        text = one.arguments
        if name is None and not spoken_name(one.header) and not one.cut:
            found = name_of_arguments(text, tools)
            if found is not None:
                name, text = found.name, found.arguments
                self._repair("call_name", where, found.how)
        shown_name = name or self._unresolved_name(one)
        call = SettledCall(
            index=place,
            id=self._id_of(one, shown_name, place),
            name=shown_name,
            arguments=text,
            arguments_text="{}",
            recovered=one.raw,
        )
        if one.cut:
            return replace(call, problem="truncated", explanation=_truncation(shown_name))
        if name is None:
            return _unknown(call, tools)
        return self._decoded(call, text, where)

    def _unresolved_name(self, one: Candidate) -> str:
        """What to call a call of no offered tool; a cut one by the tool it must have been, if one."""
        spoken = spoken_name(one.header)
        if one.cut:
            begun = [name for name in self._asked.tools if name.startswith(spoken)]
            if len(begun) == 1:
                return begun[0]
        return spoken or "unknown"

    def _decoded(self, call: SettledCall, text: str, where: str) -> SettledCall:
        try:
            arguments = decode_arguments(text, self._asked.tools[call.name])
        except MalformedArgumentsError as error:
            return replace(call, problem="invalid_arguments", explanation=str(error))
        if arguments.leniency is not None:
            self._repair("arguments", where, f"forgiven: {arguments.leniency}")
            text = _json(arguments.value)
        return replace(
            call,
            arguments=arguments.value,
            arguments_text=text if is_json_object(text) else _json(arguments.value),
        )

    def _id_of(self, one: Candidate, name: str, place: int) -> str:
        ours = call_id(name, self._asked.calls_before + place)
        if one.id:
            return one.id
        if one.raw and one.header.startswith(f"{CALL_ID_PREFIX}{name}:") and one.header[-1:].isdigit():
            return one.header
        if not one.raw:
            self._repair("call_id", f"call {place}", f"the server gave no id; called {ours}")
        return ours

    def _without_cut(self, calls: Iterable[SettledCall]) -> tuple[SettledCall, ...]:
        """A cut call beside others is dropped; alone it stays, so that the model can be told."""
        settled = list(calls)
        whole = [call for call in settled if call.problem != "truncated"]
        for call in settled:
            if call.problem == "truncated":
                fate = "dropped" if whole else "answered with an error"
                self._repair("truncated_call", f"call {call.index}", f"{call.id} was cut off; {fate}")
        return self._with_distinct_ids(whole or settled[-1:])

    def _with_distinct_ids(self, calls: Sequence[SettledCall]) -> tuple[SettledCall, ...]:
        taken = {call.id for call in calls}
        seen: set[str] = set()
        position = self._asked.calls_before
        distinct: list[SettledCall] = []
        for call in calls:
            identity = call.id
            while identity in seen or (identity != call.id and identity in taken):
                identity = call_id(call.name, position)
                position += 1
            if identity != call.id:
                self._repair("call_id", f"call {call.index}", f"{call.id} came twice; called {identity}")
            seen.add(identity)
            distinct.append(replace(call, id=identity))
        return tuple(distinct)


def _json(value: JsonObject) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _truncation(name: str) -> str:
    return (
        f"The call of {name!r} was cut off at the output limit before its arguments were whole, so it was "
        "not run. Call it again with shorter arguments, or split the work into several calls."
    )


def _unknown(call: SettledCall, tools: Mapping[str, ToolSpec]) -> SettledCall:
    known = ", ".join(spec.wire_name for spec in tools.values())
    return replace(
        call,
        problem="unknown_tool",
        explanation=f"There is no tool {call.name!r}. The tools are: {known}.",
        arguments_text=call.arguments if is_json_object(call.arguments) else "{}",
        arguments=_decoded_or_text(call.arguments),
    )


def _decoded_or_text(text: str) -> Any:
    try:
        return read_value(text).value
    except UnreadableError:
        return text
