"""Where the calls of a reply are: reported by the server, left in text, or bare at its end."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimi_agent._core.bare_call import find_bare_calls
from kimi_agent._core.call_name import call_id, name_of_arguments, resolve_name, spoken_name
from kimi_agent._core.k2_text import K2TextParser
from kimi_agent._core.lenient_json import UnreadableError, is_json_object, read_value
from kimi_agent.dialects.k2_format import K2Marker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kimi_agent._core.call_assembler import StructuredCall
    from kimi_agent._core.reply_reader import Reply
    from kimi_agent._core.settled import Asked
    from kimi_agent._core.transcript import RawCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A call on its way through the policies."""

    id: str
    header: str
    """The name or id that names the tool."""
    arguments: str
    raw: bool
    cut: bool = False
    """The reply ended inside it."""


class CallFinder:
    """Finds the calls of one reply; `content` and `reasoning` are what remains as text."""

    def __init__(
        self, reply: Reply, asked: Asked, *, limit_reached: bool, repair: Callable[[str, str, str], None]
    ) -> None:
        self._reply = reply
        self._asked = asked
        self._limit_reached = limit_reached
        self._repair = repair
        self.content = joined(reply.thought.content, reply.content.content)
        self.reasoning = _reasoning_of(reply)
        self._glued: list[RawCall] = []
        """Calls found behind the arguments of structured ones."""
        self._glued_text: list[str] = []

    def find(self) -> list[Candidate]:
        """The calls of the reply, structured ones first; each once."""
        structured = self._structured()
        raw = [one for one in self._raw() if self._is_call(one)]
        for call in self._reply.content.thought_calls + self._reply.thought.thought_calls:
            self._repair(
                "thought_call", "reasoning", f"a call inside a closed thought is none: {call.header}"
            )
        extra = self._without_repeats(raw, structured)
        if len(extra) < len(raw):
            self._repair("repeated_call", "reply", "a call came structured and as text; it counts once")
        if extra and self._asked.calls_allowed and not self._asked.raw_text:
            names = ", ".join(label(one) for one in extra)
            self._repair("raw_tool_calls", "reply", f"calls recovered from raw text: {names}")
        return structured + extra

    def _structured(self) -> list[Candidate]:
        calls = self._reply.calls
        return [
            self._structured_candidate(call, is_last=place == len(calls) - 1)
            for place, call in enumerate(calls)
        ]

    def _structured_candidate(self, call: StructuredCall, *, is_last: bool) -> Candidate:
        header = call.name.strip() or call.id
        arguments = call.arguments
        if "<|tool_call" in arguments and not is_json_object(arguments):
            arguments = self._unglued(header, arguments)
        cut = is_last and self._limit_reached and self._is_cut(header, arguments)
        return Candidate(id=call.id, header=header, arguments=arguments, raw=False, cut=cut)

    def _unglued(self, header: str, arguments: str) -> str:
        """The arguments of a call in which a server's parser left markers, and other calls behind them."""
        parser = K2TextParser()
        parser.feed(f"{K2Marker.CALL_BEGIN}{header}{K2Marker.ARGUMENTS_BEGIN}{arguments}")
        _, parsed = parser.close(cut=self._limit_reached)
        if not parsed.calls:
            return arguments
        self._repair("raw_tool_calls", "reply", f"markers inside the arguments of {header}")
        self._glued += parsed.calls[1:]
        self._glued_text.append(parsed.content)
        return parsed.calls[0].arguments

    def _is_cut(self, header: str, arguments: str) -> bool:
        """Whether a call at the token limit is unfinished, even if the server reports it whole."""
        name = resolve_name(header, self._asked.tools)
        if name is None:
            return any(
                tool.startswith(spoken_name(header)) or call_id(tool, 0).startswith(header)
                for tool in self._asked.tools
            )
        if is_json_object(arguments):
            # vLLM reports a call cut before its arguments as whole, with `{}`.
            return read_value(arguments).value == {} and bool(
                self._asked.tools[name].parameters.get("required")
            )
        return True

    def _raw(self) -> list[Candidate]:
        self.content = joined(self.content, "".join(self._glued_text))
        found = [*self._glued, *self._reply.thought.calls, *self._reply.content.calls]
        if not self._asked.raw_calls_allowed:
            if found:
                self._repair("raw_tool_calls", "reply", "raw calls are switched off; left out of the text")
            return []
        return [self._raw_candidate(call) for call in found + self._bare(found)]

    def _raw_candidate(self, call: RawCall) -> Candidate:
        ended_well = call.closed or (not self._limit_reached and is_json_object(call.arguments))
        cut = not ended_well and self._limit_reached
        return Candidate(id="", header=call.header, arguments=call.arguments, raw=True, cut=cut)

    def _bare(self, found: Sequence[RawCall]) -> list[RawCall]:
        tools = self._asked.tools
        self.content, calls = find_bare_calls(self.content, tools)
        if not (calls or found or self._reply.calls or self.content.strip()) and self.reasoning:
            self.reasoning, calls = find_bare_calls(self.reasoning, tools)
        return list(calls)

    def _without_repeats(self, raw: Sequence[Candidate], structured: Sequence[Candidate]) -> list[Candidate]:
        """The raw calls that no structured call says already; each structured call absorbs one."""
        known = Counter(self._meaning(call) for call in structured) if raw else Counter[tuple[str, str]]()
        extra: list[Candidate] = []
        for call in raw:
            meaning = self._meaning(call)
            if known[meaning]:
                known[meaning] -= 1
            else:
                extra.append(call)
        return extra

    def _meaning(self, call: Candidate) -> tuple[str, str]:
        name = resolve_name(call.header, self._asked.tools) or spoken_name(call.header)
        text = call.arguments
        if not name and (found := name_of_arguments(text, self._asked.tools)) is not None:
            name, text = found.name, found.arguments
        try:
            return name, json.dumps(read_value(text).value, sort_keys=True)
        except UnreadableError:
            return name, text

    def _is_call(self, candidate: Candidate) -> bool:
        """Whether something between markers is a call at all: it names something, or holds an object."""
        if candidate.cut or spoken_name(candidate.header) or is_json_object(candidate.arguments):
            return True
        lost = f"{candidate.header} {candidate.arguments}".strip()
        if lost:
            self._repair("raw_text_dropped", "reply", f"neither a call nor text: {lost}")
        return False


def label(call: Candidate) -> str:
    return call.id or call.header or "a call without name"


def joined(one: str, other: str) -> str:
    return f"{one}\n{other}" if one.strip() and other.strip() else one + other


def _reasoning_of(reply: Reply) -> str | None:
    in_field = reply.thought.reasoning if reply.has_reasoning_field else None
    in_content = reply.content.reasoning
    if in_field is None or in_content is None:
        return in_field if in_content is None else in_content
    return joined(in_field, in_content)
