"""What the simulated model is asked: `Conversation`, read from the messages of a chat request."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kimi_agent.testing.json_values import JsonObject, as_list, as_object, as_text, decoded

Choice: TypeAlias = Literal["auto", "none", "required", "named"]


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool the request declares."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A call the history holds, with its result once there is one."""

    name: str
    arguments: JsonObject
    id: str = ""
    result: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """The part of a request that decides what the simulated model says."""

    tools: tuple[OfferedTool, ...] = ()
    prompt: str = ""
    """The last user message."""
    calls: tuple[MadeCall, ...] = ()
    """Calls made since that message, in order."""
    earlier_calls: tuple[MadeCall, ...] = ()
    """Calls of the turns before it."""
    choice: Choice = "auto"
    named_tool: str | None = None
    """The tool a named `tool_choice` asks for."""
    parallel: bool = True
    """Whether more than one call may be made at once."""
    answer_schema: JsonObject | None = None
    """Schema the answer has to fit, from `response_format`."""

    @property
    def results(self) -> tuple[MadeCall, ...]:
        """Calls since the last user message that were answered."""
        return tuple(call for call in self.calls if call.result is not None)

    @property
    def call_count(self) -> int:
        """Calls in the whole history: where K2 goes on counting."""
        return len(self.calls) + len(self.earlier_calls)


@dataclass(slots=True)
class Turns:
    """Adds messages in order and keeps the calls of the last turn apart from the earlier ones."""

    prompt: str = ""
    calls: tuple[MadeCall, ...] = ()
    earlier_calls: tuple[MadeCall, ...] = ()

    def add_user(self, text: str) -> None:
        """A new turn begins."""
        self.prompt = text
        self.earlier_calls += self.calls
        self.calls = ()

    def add_calls(self, calls: Iterable[MadeCall]) -> None:
        """The model called tools."""
        self.calls += tuple(calls)

    def add_result(self, call_id: str, text: str) -> None:
        """A result belongs to the latest open call with its id, else to the first open one."""
        open_places = [place for place, call in enumerate(self.calls) if call.result is None]
        named = [place for place in open_places if self.calls[place].id == call_id]
        if place := (named[-1:] or open_places[:1]):
            at = place[0]
            call = self.calls[at]
            answered = MadeCall(call.name, call.arguments, call.id, text)
            self.calls = (*self.calls[:at], answered, *self.calls[at + 1 :])
        else:
            self.calls += (MadeCall("", {}, call_id, text),)


def conversation_of(request: JsonObject) -> Conversation:
    """The conversation a Chat Completions request holds; what is malformed is passed over."""
    turns = Turns()
    tools = list(offered_tools(request.get("tools")))
    for message in map(as_object, as_list(request.get("messages"))):
        text = as_text(message.get("content"))
        match message.get("role"):
            case "user":
                turns.add_user(text)
            case "assistant":
                turns.add_calls(made_calls(message.get("tool_calls")))
            case "tool":
                turns.add_result(str(message.get("tool_call_id")), text)
            case "system":
                tools += offered_tools(message.get("tools"))
            case _:
                pass
    choice, named_tool = choice_of(request.get("tool_choice"))
    return Conversation(
        tools=tuple(tools),
        prompt=turns.prompt,
        calls=turns.calls,
        earlier_calls=turns.earlier_calls,
        choice=choice,
        named_tool=named_tool,
        parallel=request.get("parallel_tool_calls") is not False,
        answer_schema=answer_schema_of(request.get("response_format")),
    )


def offered_tools(tools: object) -> Iterator[OfferedTool]:
    """The function tools of a request's `tools`."""
    for tool in map(as_object, as_list(tools)):
        function = as_object(tool.get("function"))
        if name := as_text(function.get("name")):
            yield OfferedTool(
                name, as_text(function.get("description")), as_object(function.get("parameters"))
            )


def made_calls(calls: object) -> Iterator[MadeCall]:
    """The calls of an assistant message."""
    for call in map(as_object, as_list(calls)):
        function = as_object(call.get("function"))
        arguments = function.get("arguments")
        value = decoded(arguments) if isinstance(arguments, str) else arguments
        yield MadeCall(as_text(function.get("name")), as_object(value), str(call.get("id")))


def choice_of(choice: object) -> tuple[Choice, str | None]:
    """A request's `tool_choice`, and the tool a named one asks for."""
    match choice:
        case "none":
            return "none", None
        case "required":
            return "required", None
        case {"function": {"name": str(name)}}:
            return "named", name
        case _:
            return "auto", None


def answer_schema_of(response_format: object) -> JsonObject | None:
    """The schema the answer has to fit, `None` for plain text."""
    wanted = as_object(response_format)
    match wanted.get("type"):
        case "json_schema":
            return as_object(as_object(wanted.get("json_schema")).get("schema"))
        case "json_object":
            return {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
        case _:
            return None
