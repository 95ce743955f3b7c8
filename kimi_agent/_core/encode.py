"""Messages, tools and options → the bytes of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from kimi_agent._core.json_bytes import members, to_json
from kimi_agent._core.lessons import Learned, learn
from kimi_agent._core.request_fields import request_fields, with_lessons
from kimi_agent._core.wire_history import WireHistory, tools_of_messages
from kimi_agent._core.wire_names import wire_names
from kimi_agent.results import Repair

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimi_agent._core.lessons import Lesson
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


class ChatEncoder:
    """Builds the chat requests of one conversation.

    A message is encoded once, when it is first sent; later bodies join the same bytes, so that the
    messages of one request are a byte prefix of those of the next.
    """

    path: Literal["/chat/completions", "/completions"] = "/chat/completions"
    starts_in_thought: bool = False

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
        self._names = wire_names(tools)
        self._learned = Learned() if learned is None else learned
        self._fields, self.repairs = request_fields(options, engine, generation)
        self.repairs += self._renamed_tools()
        self._mended = mended
        """What is sent for the first `replaced` messages."""
        self._replaced = replaced
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
        tail = self._tail(messages, first=first, stream=stream)
        return b"".join((self._head, b",".join(self._encoded), b"]", tail, b"}"))

    @property
    def text_format(self) -> str | None:
        """See `Encoder.text_format`."""
        return None if self.generation.name == "unknown" else self.generation.text_format

    def warn_once(self, subject: str) -> bool:
        """See `Encoder.warn_once`."""
        return self._learned.warn_once(subject)

    def learn(self, error: KimiAgentError) -> Lesson | None:
        """The change that a refusal teaches, made; `None` if there is none to make."""
        lesson = learn(error, self._learned, sent=self._sent)
        if lesson is not None:
            self._reset()
        return lesson

    def _reset(self) -> None:
        self._head = b'{"model":' + to_json(self.model) + b',"messages":['
        self._wire = WireHistory(
            engine=self.engine, generation=self.generation, learned=self._learned, names=self._names
        )
        self._encoded: list[bytes] = []
        self._seen = self._replaced
        self._sent: set[str] = set()
        self._tails: dict[tuple[bool, bool], bytes] = {}
        for message in self._mended:
            self._add(self._wire.add(message))

    def _add(self, messages: Sequence[Message]) -> None:
        self._encoded += [
            to_json(message, place=f"a message of role {message.get('role')!r}") for message in messages
        ]

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
        tools = [self._declaration(spec) for spec in self._tools.values()]
        if self._learned.static_tools:
            tools += tools_of_messages(messages)
        if tools:
            fields["tools"] = tools
            if not first and fields.get("tool_choice") not in (None, "auto", "none"):
                # A call that is forced at every step would never let the model answer.
                fields["tool_choice"] = "auto"
        else:
            fields.pop("tool_choice", None)
            fields.pop("parallel_tool_calls", None)
        if self._learned.tool_choice is not None:
            fields.update(self.engine.raw_text_fields)
        if stream:
            fields.update(stream=True, stream_options={"include_usage": True})
        return with_lessons(fields, self._learned)

    def _declaration(self, spec: ToolSpec) -> JsonObject:
        declaration = spec.to_json()
        declaration["function"]["name"] = self._names[spec.name]
        return declaration

    def _renamed_tools(self) -> list[Repair]:
        return [
            Repair(
                kind="tool_name",
                where="request",
                detail=f"servers refuse the name {name!r}; sent as {sent!r}",
            )
            for name, sent in self._names.items()
            if name != sent
        ]
