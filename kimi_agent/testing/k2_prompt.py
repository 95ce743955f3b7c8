"""A raw prompt in K2's framing → `Conversation`; the inverse of what an engine's chat template does."""

import re
from collections.abc import Iterator

from kimi_agent.testing.conversation import Conversation, MadeCall, OfferedTool, Turns, offered_tools
from kimi_agent.testing.json_values import JsonObject, as_object, decoded

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
SECTION_BEGIN, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL_BEGIN, CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
ARGUMENT_BEGIN = "<|tool_call_argument_begin|>"

_MESSAGE = re.compile(r"<\|im_(?:user|assistant|system)\|>")
_MIDDLE, _END = "<|im_middle|>", "<|im_end|>"
_RESULT_HEAD = "## Return of "
_TYPE_LINE = re.compile(r"type ([^\s=]{1,128}) = \(_: \{")
_FIELD_LINE = re.compile(r"  ([^\s:?]{1,128})(\?)?: ([^\n]{1,500}?),?")


def name_in_id(call_id: str) -> str:
    """The tool a K2 call id names: `functions.get_weather:0` → `get_weather`."""
    return call_id.removeprefix("functions.").rsplit(":", 1)[0]


def conversation_of_prompt(prompt: str) -> Conversation:
    """The conversation a raw prompt holds; text without K2's framing is one user message."""
    heads = list(_MESSAGE.finditer(prompt))
    if not heads:
        return Conversation(prompt=prompt)
    turns = Turns()
    tools: list[OfferedTool] = []
    ends = [*(head.start() for head in heads[1:]), len(prompt)]
    for head, end in zip(heads, ends, strict=True):
        name, _, body = prompt[head.end() : end].partition(_MIDDLE)
        body = body.removesuffix(_END)
        if name == "tool_declare":
            tools += declared_tools(body)
        elif head[0] == "<|im_user|>":
            turns.add_user(body)
        elif head[0] == "<|im_assistant|>":
            turns.add_calls(rendered_calls(body))
        elif body.startswith(_RESULT_HEAD):
            call_id, _, text = body.removeprefix(_RESULT_HEAD).partition("\n")
            turns.add_result(call_id, text)
    return Conversation(
        tools=tuple(tools), prompt=turns.prompt, calls=turns.calls, earlier_calls=turns.earlier_calls
    )


def starts_thinking(prompt: str) -> bool | None:
    """Whether the generation prompt opened the think block (`True`), closed it (`False`) or neither."""
    if prompt.endswith(THINK_OPEN):
        return True
    return False if prompt.endswith(THINK_OPEN + THINK_CLOSE) else None


def rendered_calls(body: str) -> Iterator[MadeCall]:
    """The calls in the raw text of an assistant message."""
    for piece in body.split(CALL_BEGIN)[1:]:
        call_id, _, rest = piece.partition(ARGUMENT_BEGIN)
        arguments = as_object(decoded(rest.partition(CALL_END)[0]))
        yield MadeCall(name_in_id(call_id), arguments, call_id)


def declared_tools(body: str) -> Iterator[OfferedTool]:
    """The tools of a `tool_declare` message: a JSON list (K2), or TypeScript (K2.5 and later)."""
    listed = decoded(body.strip().removeprefix("# Tools").strip())
    if not isinstance(listed, str):
        yield from offered_tools(listed)
        return
    comments: list[str] = []
    lines = iter(body.split("\n"))
    for line in lines:
        if line.startswith("// "):
            comments.append(line.removeprefix("// "))
        elif head := _TYPE_LINE.match(line):
            yield OfferedTool(head[1], " ".join(comments), typescript_parameters(lines))
            comments = []


def typescript_parameters(lines: Iterator[str]) -> JsonObject:
    """The schema of the fields up to the closing brace, as far as one line each tells it."""
    properties: JsonObject = {}
    required: list[str] = []
    for line in lines:
        if line.startswith("}"):
            break
        if field := _FIELD_LINE.fullmatch(line):
            properties[field[1]] = typescript_type(field[3])
            if not field[2]:
                required.append(field[1])
    return {"type": "object", "properties": properties, "required": required}


def typescript_type(text: str) -> JsonObject:
    """The schema of a one-line TypeScript type; what is not understood may be anything."""
    if text.startswith('"'):
        return {"enum": [value for part in text.split(" | ") if isinstance(value := decoded(part), str)]}
    if text.startswith("Array<"):
        return {"type": "array", "items": typescript_type(text.removeprefix("Array<").removesuffix(">"))}
    return {"type": text} if text in {"string", "number", "boolean", "null"} else {}
