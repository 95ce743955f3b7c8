"""Chunks → model events, and the reply as it was read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kimi_agent._core.call_assembler import CallAssembler, StructuredCall
from kimi_agent._core.finish_word import is_cut
from kimi_agent._core.half_characters import HalfJoiner
from kimi_agent._core.text_parser import text_parser
from kimi_agent._core.transcript import NO_TEXT, ParsedText
from kimi_agent.errors import IncompleteStreamError, ProtocolError
from kimi_agent.events import ModelEvent, ReasoningDelta, TextDelta, TextReset
from kimi_agent.json_types import is_array, is_object
from kimi_agent.messages import text_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kimi_agent._core.transcript import Output
    from kimi_agent.json_types import JsonObject

# Moonshot, SGLang and llama.cpp use the first name, vLLM since January 2026 and OpenRouter the second.
REASONING_FIELDS = ("reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply as it was read, before anything is decided about it."""

    content: ParsedText = NO_TEXT
    thought: ParsedText = NO_TEXT
    """What came in the server's reasoning field."""
    has_reasoning_field: bool = False
    """True also if the field was sent and empty."""
    calls: tuple[StructuredCall, ...] = ()
    finish_reason: str | None = None
    """The server's own word."""
    usage: JsonObject | None = None
    shown: str = ""
    """The answer text that events have shown and not withdrawn."""


class ReplyReader:
    """Feed it the chunks of one reply, whole or streamed, then `close` it.

    Only choice 0 is read. Fields that are absent, null or of a wrong type count as absent: a server's
    odd field must not cost the user the reply.
    """

    def __init__(
        self,
        tool_names: Collection[str] = (),
        *,
        text_format: str | None = "k2",
        starts_in_thought: bool = False,
    ) -> None:
        self._content = text_parser(text_format, start="reasoning" if starts_in_thought else "answer")
        self._thought = text_parser(text_format, start="reasoning")
        self._content_halves = HalfJoiner()
        self._thought_halves = HalfJoiner()
        self._calls = CallAssembler(tool_names)
        self._has_reasoning_field = False
        self._finish_reason: str | None = None
        self._usage: JsonObject | None = None
        self._shown: list[str] = []
        self._showing: Literal["content", "thought"] | None = None
        """The channel whose answer text is shown."""
        self._ended = False

    @property
    def is_finished(self) -> bool:
        """Whether a finish reason has come: what is still missing then is not part of the reply."""
        return self._finish_reason is not None

    @property
    def shown(self) -> str:
        """The answer text shown so far and not withdrawn."""
        return "".join(self._shown)

    def feed(self, chunk: JsonObject) -> Sequence[ModelEvent]:
        """What `chunk` makes happen."""
        events: list[ModelEvent] = []
        usage: Any = chunk.get("usage")
        if is_object(usage):
            self._usage = usage
        choices: Any = chunk.get("choices")
        if is_array(choices):
            for choice in choices:
                if is_object(choice) and not choice.get("index"):
                    self._add_choice(choice, events)
        return events

    def end(self) -> None:
        """Note that the server said the reply is complete (`[DONE]`, or a whole reply)."""
        self._ended = True

    def close(self) -> tuple[Sequence[ModelEvent], Reply]:
        """What is left to show, and the reply.

        Raises:
            IncompleteStreamError: neither a finish reason nor `[DONE]` came.
        """
        if self._finish_reason is None and not self._ended:
            error = IncompleteStreamError(
                "the stream ended without finish reason and without [DONE]: the server or something between "
                "cut the reply",
                raw=self.shown[-500:],
            )
            error.partial_text = self.shown
            raise error
        events: list[ModelEvent] = []
        self._show(self._content.feed(self._content_halves.close()), events, "content")
        self._show(self._thought.feed(self._thought_halves.close()), events, "thought")
        cut = is_cut(self._finish_reason)
        outputs, content = self._content.close(cut=cut)
        self._show(outputs, events, "content")
        calls = self._calls.calls
        # Only a parser that saw the thought end goes on to content or calls.
        thought_closed = bool(content.content.strip() or content.calls or calls)
        outputs, thought = self._thought.close(thought_closed=thought_closed, cut=cut)
        self._show(outputs, events, "thought")
        events += self._calls.close()
        return events, Reply(
            content=content,
            thought=thought,
            has_reasoning_field=self._has_reasoning_field,
            calls=calls,
            finish_reason=self._finish_reason,
            usage=self._usage,
            shown=self.shown,
        )

    def _add_choice(self, choice: JsonObject, events: list[ModelEvent]) -> None:
        delta: Any = choice.get("delta")
        message: Any = choice.get("message")
        if is_object(delta):
            self._add_delta(delta, events)
            if is_array(calls := delta.get("tool_calls")):
                self._calls.add(calls, events)
        elif is_object(message):
            self._add_delta(message, events)
            if is_array(calls := message.get("tool_calls")):
                self._calls.add_whole(calls, events)
        elif isinstance(text := choice.get("text"), str) and text:
            self._show(self._content.feed(self._content_halves.feed(text)), events, "content")
        finish_reason: Any = choice.get("finish_reason")
        if isinstance(finish_reason, str) and finish_reason:
            self._finish_reason = finish_reason
        usage: Any = choice.get("usage")
        if is_object(usage) and self._usage is None:
            # Moonshot puts it here, and with include_usage at the top of a last chunk again.
            self._usage = usage

    def _add_delta(self, delta: JsonObject, events: list[ModelEvent]) -> None:
        for field in REASONING_FIELDS:
            reasoning = delta.get(field)
            if isinstance(reasoning, str):
                self._add_reasoning(reasoning, events)
                if reasoning:
                    break  # releases that know both names send the same text under both
        content = delta.get("content")
        if content:
            text = content if isinstance(content, str) else text_of(content)
            self._show(self._content.feed(self._content_halves.feed(text)), events, "content")

    def _add_reasoning(self, text: str, events: list[ModelEvent]) -> None:
        if not text:
            if not self._has_reasoning_field:
                events.append(ReasoningDelta(text=""))
            self._has_reasoning_field = True
            return
        self._has_reasoning_field = True
        self._show(self._thought.feed(self._thought_halves.feed(text)), events, "thought")

    def _show(
        self, outputs: Sequence[Output], events: list[ModelEvent], channel: Literal["content", "thought"]
    ) -> None:
        for kind, text in outputs:
            if kind == "reasoning":
                events.append(ReasoningDelta(text=text))
            elif self._showing not in (None, channel):
                # Answer text of the other channel is out of turn, and its pieces could make a marker with
                # those shown: `settle` puts it in its place, and the difference is told at the end.
                continue
            elif kind == "withdraw":
                events.append(TextReset(text=self.shown, reason="reasoning"))
                self._shown.clear()
                self._showing = None
            else:
                self._showing = channel
                self._shown.append(text)
                events.append(TextDelta(text=text))


def check_chunk(value: object, raw: bytes, url: str) -> JsonObject:
    """`value`, the JSON of one `data:` line or of a whole reply, if it is an object.

    Raises:
        ProtocolError: it is not.
    """
    if is_object(value):
        return value
    shown = raw[:500].decode("utf-8", "replace")
    raise ProtocolError(
        f"{url} sent JSON of type {type(value).__name__}, not an object; base_url should be the root "
        "of an OpenAI-compatible API, e.g. http://127.0.0.1:8000/v1",
        raw=shown,
    )
