"""What all engines have in common, and where they differ: `Dialect`."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from kimi_agent.testing.generation import CallText, Generation, Kind, Token
from kimi_agent.testing.json_values import JsonObject, decoded, encoded
from kimi_agent.testing.k2_prompt import name_in_id
from kimi_agent.testing.replies import Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How the simulated engine was started."""

    model: str
    parser: bool = True
    thinking: bool = False
    api_key: str | None = None
    context_length: int = 131_072


class Dialect(ABC):
    """How one engine spells replies, errors and models; what it lets the model see."""

    name: ClassVar[str]
    reasoning_field: ClassVar[str] = "reasoning_content"
    json_headers: ClassVar[dict[str, str]] = {"server": "uvicorn", "content-type": "application/json"}
    stream_headers: ClassVar[dict[str, str]] = {
        "server": "uvicorn",
        "content-type": "text/event-stream; charset=utf-8",
    }
    has_parser_flag: ClassVar[bool] = True
    """Whether the engine has to be told to parse; else it always does."""
    choice_none_hides_tools: ClassVar[bool] = False
    """Whether `tool_choice: "none"` keeps the tools out of the prompt, so that none can be called."""
    choice_none_parses: ClassVar[bool] = True
    """Whether the parser runs nevertheless and drops the calls; else they are raw text in the content."""
    forced_call_has_text: ClassVar[bool] = False
    """Whether a forced call may come with text before it."""
    obeys_parallel: ClassVar[bool] = False
    """Whether `parallel_tool_calls: false` is obeyed."""
    open_paths: ClassVar[frozenset[str]] = frozenset({"/health"})
    """Answered without a key."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings

    @property
    def default_model(self) -> str:
        """The model a reply names if the request names none."""
        return self.settings.model

    # What is answered ------------------------------------------------------------------------

    def json(self, value: object, status: int = 200) -> Reply:
        """A whole JSON reply with this engine's headers."""
        return Reply(status=status, headers=self.json_headers, body=encoded(value))

    def health(self) -> Reply:
        """`GET /health`."""
        return Reply(headers={"server": "uvicorn"})

    def version(self) -> Reply:
        """`GET /version`."""
        return self.not_found()

    @abstractmethod
    def models(self, created: int) -> Reply:
        """`GET /v1/models`."""

    @abstractmethod
    def error(
        self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None
    ) -> Reply:
        """An error in the engine's shape."""

    def unauthorized(self) -> Reply:
        """The key is missing or wrong."""
        return self.json({"error": "Unauthorized"}, 401)

    def not_found(self) -> Reply:
        """No such path."""
        return self.json({"detail": "Not Found"}, 404)

    def wrong_method(self, allowed: str) -> Reply:
        """The path is there, for another method."""
        headers = {**self.json_headers, "allow": allowed}
        return Reply(status=405, headers=headers, body=encoded({"detail": "Method Not Allowed"}))

    @abstractmethod
    def refusal(self, request: JsonObject, *, chat: bool) -> Reply | None:
        """The error this request gets before a token is made, `None` for a good one."""

    @abstractmethod
    def too_long(self, prompt_tokens: int) -> Reply:
        """The prompt does not fit into the context."""

    # What is shown of the reply --------------------------------------------------------------

    @abstractmethod
    def chat(self, generation: Generation) -> JsonObject:
        """The whole `chat.completion`."""

    @abstractmethod
    def text(self, generation: Generation) -> JsonObject:
        """The whole `text_completion`."""

    @abstractmethod
    def chat_chunks(self, generation: Generation) -> Iterator[JsonObject]:
        """The `chat.completion.chunk`s in order."""

    @abstractmethod
    def text_chunks(self, generation: Generation) -> Iterator[JsonObject]:
        """The streamed `text_completion`s in order."""

    # Parts the engines share -----------------------------------------------------------------

    def usage(self, generation: Generation, completion_tokens: int | None = None) -> JsonObject:
        """The three counts every engine gives."""
        emitted = generation.completion_tokens if completion_tokens is None else completion_tokens
        return {
            "prompt_tokens": generation.prompt_tokens,
            "total_tokens": generation.prompt_tokens + emitted,
            "completion_tokens": emitted,
        }

    def finish_reason(self, generation: Generation) -> str:
        """The word for why the reply ended."""
        if generation.finish == "length":
            return "length"
        return "tool_calls" if generation.calls() else "stop"

    def deltas(self, generation: Generation) -> Iterator[tuple[JsonObject, int]]:
        """One delta for each token that shows, with the number of tokens so far."""
        calls = generation.calls()
        begun: set[int] = set()
        for count, token in enumerate(generation.tokens, start=1):
            if token.kind is Kind.CONTENT:
                yield {"content": token.text}, count
            elif token.kind is Kind.REASONING:
                yield self.reasoning_delta(token.text), count
            elif token.call >= 0:
                for delta in self.call_deltas(token, calls[token.call], begun):
                    yield delta, count

    def call_deltas(self, token: Token, call: CallText, begun: set[int]) -> Iterator[JsonObject]:
        """The deltas of one token of a call: its head with the first arguments, then the rest."""
        if token.kind is Kind.ARGUMENTS:
            first = token.call not in begun
            begun.add(token.call)
            head = self.call_head(token.call, call.header, token.text)
            yield self.call_delta(
                head if first else {"index": token.call, "function": {"arguments": token.text}}
            )

    def reasoning_delta(self, text: str) -> JsonObject:
        """A delta of reasoning."""
        return {self.reasoning_field: text}

    def call_delta(self, call: JsonObject) -> JsonObject:
        """A delta of one call."""
        return {"tool_calls": [call]}

    def call_head(self, index: int, call_id: str, arguments: str) -> JsonObject:
        """The first fragment of a call."""
        return {
            "index": index,
            "id": call_id,
            "type": "function",
            "function": {"name": name_in_id(call_id), "arguments": arguments},
        }

    def unreadable(self, arguments: object) -> bool:
        """Whether a call's arguments in the history are no JSON."""
        return isinstance(arguments, str) and isinstance(decoded(arguments), str)

    def forced_json(self, generation: Generation) -> str:
        """A forced call as bare JSON, which is what a server without a tool parser leaves of it."""
        calls = [
            {"name": name_in_id(call.header), "parameters": decoded(call.arguments)}
            for call in generation.calls()
        ]
        return json.dumps(calls, ensure_ascii=False)
