"""What a server's refusal teaches: one change to the requests of one agent."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kimi_agent.errors import InvalidRequestError, ToolsUnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kimi_agent.errors import KimiAgentError


@dataclass(slots=True)
class Learned:
    """The changes that one agent's requests need for its server; grows, and never shrinks."""

    dropped: set[str] = field(default_factory=set[str])
    """Fields of the body that are not sent."""
    renamed: dict[str, str] = field(default_factory=dict[str, str])
    """Fields of the body under other names."""
    tool_choice: str | None = None
    """Sent instead of the caller's."""
    thinking_without_keep: bool = False
    developer_as_system: bool = False
    reasoning_required: bool = False
    """Assistant messages with calls carry a reasoning field, empty if there was no reasoning."""
    text_only_results: bool = False
    """Images in tool results move to a user message."""
    plain_text_content: bool = False
    """Content parts of type text are sent as one string."""
    answered_calls_only: bool = False
    """Results whose call the history does not hold are left out."""
    static_tools: bool = False
    """Tools of system messages move to the request's list."""
    version: int = 0
    """How many lessons there were."""
    warned: set[str] = field(default_factory=set[str])
    """What a person has been told already."""

    def restore(self, earlier: Learned) -> None:
        """Forget what was learned since `earlier` was copied from this."""
        for name in self.__slots__:
            setattr(self, name, getattr(earlier, name))

    def warn_once(self, subject: str) -> bool:
        """Whether nobody has been warned of `subject` yet."""
        if subject in self.warned:
            return False
        self.warned.add(subject)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One change, as it is reported."""

    kind: str
    detail: str
    is_new: bool = True
    """False if another run of the agent has learned it before."""


# The field at fault, in each server's way of naming it.
_NAMED: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"invalid ([a-z_]+): only",  # Moonshot: fixed sampling, logprobs
        (
            r"[Uu]n(?:supported|known|recognized|expected) (?:request )?"
            r"(?:parameter|value|field|argument|property)(?: supplied)?:? [`'\"]?([a-zA-Z_]+)"
        ),
        r"property ['\"`]([a-zA-Z_.]+)['\"`] is unsupported",  # Groq
        r"[`'\"]([a-zA-Z_]+)[`'\"] (?:is|are) not (?:supported|allowed|permitted)",
        r"\b([a-z]+_[a-z_]+) (?:is|are) not (?:supported|allowed|permitted)",
        r"[Ee]xtra inputs are not permitted.*?'([a-zA-Z_]+)'",  # pydantic
        r"'loc': \('body', '([a-zA-Z_]+)'\)[^}]*[Ee]xtra",
        r"extra_forbidden.{0,40}\"body\", \"([a-zA-Z_]+)\"",  # FastAPI
        r"'loc': 'body\.([a-zA-Z_]+)'",  # vLLM
        r"unexpected keyword argument '([a-zA-Z_]+)'",
        r"does not support parameters: \['([a-zA-Z_]+)'",  # LiteLLM
        r"invalid ([a-z_]+)\b",
    )
)
# What a request is for; without them it would be another one.
_KEPT: Final = frozenset({"model", "messages", "tools", "stream", "prompt"})


def learn(error: KimiAgentError, learned: Learned, *, sent: Collection[str]) -> Lesson | None:
    """The one change that `error` asks for, made in `learned`; `None` if it asks for none or not again.

    `sent` are the fields of the refused body.
    """
    if not isinstance(error, InvalidRequestError):
        return None
    text = error.server_message[:2000]
    for kind, pattern, teach in _LESSONS:
        if pattern.search(text) and (detail := teach(learned)):
            learned.version += 1
            return Lesson(kind=kind, detail=detail)
    if isinstance(error, ToolsUnsupportedError):
        return None
    return _named_field(text, learned, sent)


def _named_field(text: str, learned: Learned, sent: Collection[str]) -> Lesson | None:
    for pattern in _NAMED:
        match = pattern.search(text)
        name = match[1].partition(".")[0] if match else ""
        if name in sent and name not in _KEPT and name not in learned.dropped:
            learned.dropped.add(name)
            learned.version += 1
            return Lesson(kind="field_dropped", detail=f"the server refused {name!r}; no longer sent")
    return None


def _once(name: str, *, value: object, detail: str) -> Callable[[Learned], str | None]:
    def teach(learned: Learned) -> str | None:
        if getattr(learned, name) == value:
            return None
        setattr(learned, name, value)
        return detail

    return teach


def _switch(name: str, detail: str) -> Callable[[Learned], str | None]:
    return _once(name, value=True, detail=detail)


def _drop(name: str) -> Callable[[Learned], str | None]:
    def teach(learned: Learned) -> str | None:
        if name in learned.dropped:
            return None
        learned.dropped.add(name)
        return f"the server refused {name!r}; no longer sent"

    return teach


def _rename(old: str, new: str) -> Callable[[Learned], str | None]:
    def teach(learned: Learned) -> str | None:
        if old in learned.renamed:
            return None
        learned.renamed.pop(new, None)
        learned.renamed[old] = new
        return f"the server wants {new!r} instead of {old!r}"

    return teach


# Each with the wording it answers to. Sources: kimi-protocol facts of October 2026 and recorded exchanges.
_LESSONS: Final[tuple[tuple[str, re.Pattern[str], Callable[[Learned], str | None]], ...]] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE), teach)
    for kind, pattern, teach in (
        (
            "raw_tool_mode",
            r"requires --(?:enable-auto-tool-choice|tool-call-parser)",
            _once(
                "tool_choice",
                value="none",
                detail="the server has no tool parser: sent with tool_choice none, calls read from raw text",
            ),
        ),
        (
            "field_renamed",
            r"max_tokens.{0,80}use ['\"`]?max_completion_tokens",
            _rename("max_tokens", "max_completion_tokens"),
        ),
        (
            "field_renamed",
            r"(?:unknown|unsupported|unrecognized|not supported|not permitted).{0,60}max_completion_tokens",
            _rename("max_completion_tokens", "max_tokens"),
        ),
        (
            "field_renamed",
            r"max_completion_tokens.{0,60}(?:not supported|not permitted|unknown|unsupported)",
            _rename("max_completion_tokens", "max_tokens"),
        ),
        (
            "field_dropped",
            r"thinking\.keep is not supported",
            _switch("thinking_without_keep", "the server refused thinking.keep; no longer sent"),
        ),
        ("field_dropped", r"invalid thinking", _drop("thinking")),
        ("field_dropped", r"tool_choice .{0,40}incompatible with thinking", _drop("tool_choice")),
        (
            "reasoning_required",
            r"reasoning_content.{0,3} is missing|missing .{0,3}reasoning_content",
            _switch("reasoning_required", "the server wants reasoning_content with every call; sent empty"),
        ),
        (
            "developer_role",
            r"(?:role|developer).{0,80}developer|developer.{0,80}role|'developer'.{0,40}supported values",
            _switch("developer_as_system", "the server knows no developer role; sent as system"),
        ),
        (
            "image_in_result",
            r"(?:image|multimodal|content part).{0,80}\btool\b|\btool\b.{0,80}(?:image|multimodal)",
            _switch(
                "text_only_results",
                "the server takes no image in a tool result; sent as a user message",
            ),
        ),
        (
            "orphan_result",
            r"tool_call_id.{0,80}not found",
            _switch("answered_calls_only", "the server knows no call of the first results; left out"),
        ),
        (
            "dynamic_tools",
            r"tokenization failed",
            _switch("static_tools", "the server takes no tools in messages; moved to the request's list"),
        ),
        (
            "plain_content",
            r"content.{0,60}(?:must be|should be|expected).{0,20}string",
            _switch("plain_text_content", "the server wants content as one string; text parts are joined"),
        ),
        ("field_dropped", r"stream_options", _drop("stream_options")),
        ("field_dropped", r"parallel_tool_calls", _drop("parallel_tool_calls")),
    )
)
