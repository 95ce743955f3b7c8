"""Messages, tools and options → the bytes of a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal, Protocol

from kimi_agent._core.json_bytes import members, to_json
from kimi_agent._core.lessons import Learned, Lesson, learn
from kimi_agent._core.request_fields import request_fields, with_lessons
from kimi_agent._core.wire_history import WireHistory, tools_of_messages
from kimi_agent.dialects.engine import VLLM
from kimi_agent.errors import InvalidRequestError
from kimi_agent.json_types import is_object
from kimi_agent.results import Repair

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimi_agent.dialects import Engine, Generation
    from kimi_agent.errors import KimiAgentError
    from kimi_agent.json_types import JsonObject
    from kimi_agent.messages import Message, ToolSpec
    from kimi_agent.options import ModelOptions


class Encoder(Protocol):
    """Builds the requests of one conversation."""

    model: str
    engine: Engine
    generation: Generation
    repairs: list[Repair]

    @property
    def path(self) -> Literal["/chat/completions", "/completions"]:
        """Where the requests go."""
        ...

    @property
    def text_format(self) -> str | None:
        """The grammar of raw text in the replies; `None` if that has to be found out."""
        ...

    @property
    def starts_in_thought(self) -> bool:
        """Whether the text of a reply begins inside a thought."""
        ...

    def body(self, messages: Sequence[Message], *, stream: bool, first: bool = True) -> bytes:
        """The request for `messages`, which begin with those of the call before."""
        ...

    def learn(self, error: KimiAgentError) -> Lesson | None:
        """The change that a refusal teaches, made; `None` if there is none to make."""
        ...

    def warn_once(self, subject: str) -> bool:
        """Whether nobody has been warned of `subject` yet, for this agent."""
        ...


_LEARNED_MEANWHILE = Lesson(
    kind="field_dropped", detail="changed as an earlier refusal has taught", is_new=False
)


class LearningEncoder(ABC):
    """What the encoders share: the tools' names on the wire, and learning from refusals."""

    path: Literal["/chat/completions", "/completions"]

    def __init__(
        self,
        *,
        model: str,
        tools: Mapping[str, ToolSpec],
        options: ModelOptions,
        engine: Engine,
        generation: Generation,
        learned: Learned | None = None,
        mended: Sequence[Message] = (),
        replaced: int = 0,
    ) -> None:
        self.model = model
        self.engine = engine
        self.generation = generation
        self._tools = tools
        self._options = options
        self._names = {spec.name: spec.wire_name for spec in tools.values()}
        self._learned = Learned() if learned is None else learned
        self._fields, self.repairs = request_fields(options, engine, generation, self._names)
        self.repairs += _renamed_tools(self._names)
        self._mended = mended
        """What is sent for the first `replaced` messages."""
        self._replaced = replaced
        self._last: tuple[Sequence[Message], bool, bool] = ((), False, True)
        self._reset()

    def body(self, messages: Sequence[Message], *, stream: bool, first: bool = True) -> bytes:
        """The request for `messages`, which begin with those of the call before.

        `first` tells the first step of a turn: a forced tool choice holds for that step only.

        Raises:
            ConfigurationError: a message cannot be written as JSON.
        """
        for position in range(self._seen, len(messages)):
            self._add(self._wire.add(messages[position]))
        self._seen = max(self._seen, len(messages))
        self._add(self._wire.flush())
        self._last = (messages, stream, first)
        return self._joined(messages, stream=stream, first=first)

    def learn(self, error: KimiAgentError) -> Lesson | None:
        """The change that a refusal teaches, made; `None` if there is none to make.

        Only what changes the refused request counts.
        """
        messages, stream, first = self._last
        if not messages or not isinstance(error, InvalidRequestError):
            return None
        refused = self._joined(messages, stream=stream, first=first)
        known = deepcopy(self._learned)
        # Another run of the agent may have been refused meanwhile, and have learned it already.
        lesson = _LEARNED_MEANWHILE
        if self._version == known.version:
            lesson = learn(error, self._learned, sent=self._sent)
        self._reset()
        if lesson is None or self.body(messages, stream=stream, first=first) != refused:
            return lesson
        self._learned.restore(known)
        self._reset()
        return None

    def warn_once(self, subject: str) -> bool:
        """See `Encoder.warn_once`."""
        return self._learned.warn_once(subject)

    @abstractmethod
    def _add(self, messages: Sequence[Message]) -> None:
        """Take messages as they are sent."""

    @abstractmethod
    def _joined(self, messages: Sequence[Message], *, stream: bool, first: bool) -> bytes:
        """The body of all messages taken so far."""

    def _reset(self) -> None:
        self._wire = WireHistory(
            engine=self._reader(),
            generation=self.generation,
            learned=self._learned,
            names=self._names,
            # A prompt shows no result without its call, and knows no developer.
            rendered=self.path == "/completions",
        )
        self._version = self._learned.version
        self._seen = self._replaced
        self._sent: set[str] = set()
        """The fields of the bodies so far."""
        self._forget()
        for message in self._mended:
            self._add(self._wire.add(message))

    def _reader(self) -> Engine:
        """Who reads the messages: the engine's chat API."""
        return self.engine

    @abstractmethod
    def _forget(self) -> None:
        """Drop what was made of messages."""


class ChatEncoder(LearningEncoder):
    """Builds the chat requests of one conversation.

    A message is encoded once, when it is first sent; later bodies join the same bytes, so that the
    messages of one request are a byte prefix of those of the next.
    """

    path: Literal["/chat/completions", "/completions"] = "/chat/completions"
    starts_in_thought: bool = False

    @property
    def text_format(self) -> str | None:
        """See `Encoder.text_format`."""
        return None if self.generation.name == "unknown" else self.generation.text_format

    def _forget(self) -> None:
        self._encoded: list[bytes] = []
        self._tails: dict[tuple[bool, bool], bytes] = {}

    def _add(self, messages: Sequence[Message]) -> None:
        self._encoded += [
            to_json(message, place=f"a message of role {message.get('role')!r}") for message in messages
        ]

    def _joined(self, messages: Sequence[Message], *, stream: bool, first: bool) -> bytes:
        head = b'{"model":' + to_json(self.model) + b',"messages":['
        tail = self._tail(messages, first=first, stream=stream)
        return b"".join((head, b",".join(self._encoded), b"]", tail, b"}"))

    def _tail(self, messages: Sequence[Message], *, first: bool, stream: bool) -> bytes:
        """The members that follow the messages; the same for every later step."""
        tail = self._tails.get((first, stream))
        if tail is None:
            fields = self._body_fields(messages, first=first, stream=stream)
            tail = self._tails[first, stream] = members(fields)
            self._sent.update(fields)
        return tail

    def _body_fields(self, messages: Sequence[Message], *, first: bool, stream: bool) -> JsonObject:
        fields = dict(self._fields)
        tools = self._declarations(messages)
        if tools:
            fields["tools"] = tools
            if not first and fields.get("tool_choice") not in (None, "auto", "none"):
                # A call that is forced at every step would never let the model answer.
                fields["tool_choice"] = "auto"
        else:
            fields.pop("tool_choice", None)
            fields.pop("parallel_tool_calls", None)
        if self._learned.tool_choice is not None:
            # Only vLLM refuses tools like that, so its fields are right even if it is not recognised yet.
            fields.update(self.engine.raw_text_fields or VLLM.raw_text_fields)
        if stream:
            fields.update(stream=True, stream_options={"include_usage": True})
        return with_lessons(fields, self._learned)

    def _declarations(self, messages: Sequence[Message]) -> list[JsonObject]:
        """The request's list of tools; none stands in it and in a message too, which servers refuse."""
        own = {spec.wire_name: spec.to_json() for spec in self._tools.values()}
        brought = {_name_of(tool): tool for tool in tools_of_messages(messages)}
        if self._learned.static_tools:
            return [*own.values(), *(tool for name, tool in brought.items() if name not in own)]
        return [tool for name, tool in own.items() if name not in brought]


def _name_of(tool: JsonObject) -> str:
    function: Any = tool.get("function")
    return str(function.get("name")) if is_object(function) else ""


def _renamed_tools(names: Mapping[str, str]) -> list[Repair]:
    return [
        Repair(
            kind="tool_name",
            where="request",
            detail=f"servers refuse the name {name!r}; sent as {sent!r}",
        )
        for name, sent in names.items()
        if name != sent
    ]
