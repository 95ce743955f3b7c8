"""Variants of the field cases: the kinds behind the rows, with other names, cuts, spellings and channels.

Expectations come from the policies, not from a look at what the library does.
"""

from __future__ import annotations

import itertools
import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import openai
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from kimi_agent import KimiAgent, RunLimits
from kimi_agent.testing import Close, KimiServer, Reply, Reset, error_reply, sse_reply
from kimi_agent.testing.replies import chunk, event
from tests.e2e.field_cases import PROMPT, RETRIES, Case, Stage, carry_out, differences, stream_of, ways_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

S, SE = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
SINGULAR, SINGULAR_END = "<|tool_call_section_begin|>", "<|tool_call_section_end|>"
C, A, E = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"

Call = tuple[str, Any]
Row = dict[str, Any]


def tool(name: str, required: Sequence[str] = (), **properties: Any) -> Row:
    """A declared tool; a property is given by its type or its schema."""
    schemas = {key: {"type": value} if isinstance(value, str) else value for key, value in properties.items()}
    parameters: Row = {"type": "object", "properties": schemas}
    return {"name": name, "parameters": {**parameters, "required": [*required]} if required else parameters}


WEATHER = tool("get_weather", ["city"], city="string", unit="string")
READ = tool("read_file", ["path"], path="string")
NOTE = tool("note", ["text"], text="string")
NOW = tool("now")
BOTH = (WEATHER, READ)

OSLO: Call = ("get_weather", {"city": "Oslo"})
LIMA: Call = ("get_weather", {"city": "Lima"})
FILE: Call = ("read_file", {"path": "a.txt"})
NOTHING: Call = ("now", {})
OSLO_JSON, LIMA_JSON, FILE_JSON = '{"city":"Oslo"}', '{"city":"Lima"}', '{"path":"a.txt"}'


def text_call(header: str, arguments: str) -> str:
    """A call as the model writes it."""
    return f"{C}{header}{A}{arguments}{E}"


OSLO_RAW = text_call("functions.get_weather:0", OSLO_JSON)
LIMA_RAW = text_call("functions.get_weather:1", LIMA_JSON)
FILE_RAW = text_call("functions.read_file:1", FILE_JSON)
SECTION = f"{S}{OSLO_RAW}{SE}"

THOUGHT: Row = {"field": "reasoning_content"}
CUT: Row = {"finish_reason": "length"}
LIMIT: Row = {
    "options": {"max_output_tokens": 16},
    "usage": {"prompt_tokens": 9, "completion_tokens": 16, "total_tokens": 25},
}
"""A limit that the usage says is reached, as vLLM leaves it, with an ordinary finish reason."""
RAW_OFF: Row = {"options": {"raw_tool_calls": False}}
NO_CALLS: Row = {"request": {"tool_choice": "none"}}
GIVEN = frozenset({"tools", "field", "beside", "finish_reason", "usage", "options", "request", "done"})
"""Words that say something of the reply or the request; all others are about what is expected."""


def case(kind: str, title: str, given: Row, calls: Sequence[Call], expected: Row) -> Case:
    """A row; what follows is the tool round if there are calls, else the answer."""
    following = {"next": "run_tools" if calls else "final", **expected}
    following["calls"] = [{"name": name, "arguments": arguments} for name, arguments in calls]
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    channel = "stream" if {"chunks", "attempts", "sse_lines"} & given.keys() else "response"
    return Case(id=f"{kind}-{slug}", kind=kind, channel=channel, title=title, input=given, expected=following)


def split(more: Row) -> tuple[Row, Row]:
    """What is given and what is expected."""
    given = {name: value for name, value in more.items() if name in GIVEN}
    if "beside" in given:
        given["content"] = given.pop("beside")
    return given, {name: value for name, value in more.items() if name not in GIVEN}


def raw(kind: str, title: str, text: str, *calls: Call, **more: Any) -> Case:
    """A reply that is text alone, in `field`, `beside` a content if that is another field."""
    given, expected = split(more)
    return case(kind, title, {"tools": BOTH, "text": text, **given}, calls, {"content": "", **expected})


def reply(
    kind: str, title: str, entries: Sequence[Row], *calls: Call, message: Any = (), **more: Any
) -> Case:
    """A reply with structured calls, and what else is in its `message`."""
    given, expected = split(more)
    whole: Row = {"role": "assistant", "content": None, "tool_calls": [*entries], **dict(message)}
    given = {"tools": BOTH, "message": whole, "finish_reason": "tool_calls", **given}
    return case(kind, title, given, calls, expected)


def told(title: str, arguments: Any, *calls: Call, tools: Sequence[Row] = (WEATHER,), **more: Any) -> Case:
    """A reply with one structured call with these arguments, which runs or is answered with an error."""
    name = tools[0]["name"]
    if not calls:
        more = {"next": "tool_error", "failed": [name], "explained": [name], **more}
    return reply("arguments", title, [structured(name, arguments)], *calls, tools=tools, **more)


def structured(name: str | None, arguments: Any, call_id: str | None = "functions.get_weather:0") -> Row:
    """A call as a server reports it; `arguments` as they are on the wire."""
    entry: Row = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return entry if call_id is None else {"id": call_id, **entry}


def deltas(kind: str, title: str, sent: Sequence[Any], *calls: Call, ending: Any = None, **more: Any) -> Case:
    """A stream of deltas, or of whole chunks where an entry is none; closed as servers close it."""
    given, expected = split(more)
    chunks = [each if is_chunk(each) else chunk(each) for each in sent]
    if ending is None:
        chunks.append(chunk({}, finish_reason="tool_calls" if calls else "stop"))
    return case(kind, title, {"tools": BOTH, **given, "chunks": chunks}, calls, expected)


def is_chunk(each: Any) -> bool:
    """Whether `each` is no delta: a chunk, bytes, or something that happens to the connection."""
    return (
        not isinstance(each, dict) or not each or bool({"choices", "usage", "error", "object"} & each.keys())
    )


def entry(index: Any = None, **fields: Any) -> Row:
    """One `tool_calls` entry that holds what is given of id, name and arguments."""
    function = {name: fields[name] for name in ("name", "arguments") if name in fields}
    given = {"index": index, "id": fields.get("id"), "function": function}
    return {name: value for name, value in given.items() if value not in (None, {})}


def piece(index: Any = None, **fields: Any) -> Row:
    """A delta with one entry."""
    return {"tool_calls": [entry(index, **fields)]}


# --- names ---------------------------------------------------------------------------------------------

NAMES = (
    "calendar.respondToEvent",
    "fs-read",
    "fs/read",
    "ns:read",
    "ns:2",
    "mcp__server__tool",
    "tool2",
    "2fast",
    "wetter_für_köln",
    "天气查询",
    "functions",
    "get_weather_0",
)
HEADERS = {
    "whole": "functions.{}:0",
    "later index": "functions.{}:137",
    "no prefix": "{}:0",
    "no index": "functions.{}",
    "empty index": "functions.{}:",
    "bare": "{}",
    "spaces": "  functions.{}:0 ",
    "newlines": "\nfunctions.{}:0\n",
}
FOREIGN = {
    "call": "call_9f",
    "toolu": "toolu_01Ab",
    "uuid": "9f0c6a1e-1111-4222-8333-444455556666",
    "counter": "7",
    "nothing": "",
    "chatcmpl": "chatcmpl-tool-1a2b3c",
}
NAMELESS: dict[str, tuple[str | None, str]] = {
    "name empty, told by the id": ("", "functions.get_weather:0"),
    "name null, told by the id": (None, "functions.get_weather:0"),
    "name empty, foreign id": ("", "call_9f"),
    "name null, foreign id": (None, "call_9f"),
    "name a foreign id": ("call_9f", "call_9f"),
}


def name_cases() -> Iterator[Case]:
    text, whole = partial(raw, "name"), partial(reply, "name")
    for place, name in enumerate(NAMES):
        offered: Row = {"tools": (name, "other")}
        for form, header in HEADERS.items():
            sent = f"Ok.{S}{text_call(header.format(name), '{}')}{SE}"
            yield text(f"{place} {form} {name}", sent, (name, {}), content="Ok.", **offered)
        yield whole(f"{place} structured {name}", [structured(name, "{}", "call_1")], (name, {}), **offered)
    for wrong in ("functions.get_weather", "functions.get_weather:0", "  get_weather ", "get_weather:3"):
        yield whole(f"parser leaves {len(wrong)} {wrong}", [structured(wrong, OSLO_JSON)], OSLO)
    again = text_call("functions.get_weather:0", LIMA_JSON)
    yield text("repeated index", f"{S}{OSLO_RAW}{again}{SE}", OSLO, LIMA)
    yield text(
        "last part of a dotted name", f"{S}{text_call('functions.fs.read_file:0', FILE_JSON)}{SE}", FILE
    )
    both = text_call("functions.web.search:0", "{}") + text_call("functions.search:1", "{}")
    dotted: tuple[Call, Call] = (("web.search", {}), ("search", {}))
    yield text("dotted name beside its last part", f"{S}{both}{SE}", *dotted, tools=("search", "web.search"))
    replaced = f"{S}{text_call('functions.fs_read:0', '{}')}{SE}"
    yield text("characters that a server replaced", replaced, ("fs/read", {}), tools=("fs/read",))
    unclear: Row = {"next": "tool_error", "explained": ["read_file", "delete_file"]}
    twins = (READ, tool("delete_file", ["path"], path="string"))
    for title, header in FOREIGN.items():
        sent = f"{S}{text_call(header, FILE_JSON)}{SE}"
        yield text(f"foreign id {title} where one tool fits", sent, FILE)
        yield text(f"foreign id {title} where two tools fit", sent, tools=twins, **unclear)
        inside = json.dumps({"name": "get_weather", "arguments": OSLO[1]})
        yield text(f"foreign id {title} and the name inside", f"{S}{text_call(header, inside)}{SE}", OSLO)
    for title, (name, call_id) in NAMELESS.items():
        yield whole(f"structured, {title}", [structured(name, OSLO_JSON, call_id)], OSLO)
    unknown = f"{S}{text_call('functions.img_gen:0', '{}')}{FILE_RAW}{SE}"
    yield text("unknown tool beside a known one", unknown, FILE, failed=["img_gen"])
    listed: Row = {"next": "tool_error", "failed": ["Get_Weather"], "explained": ["get_weather", "read_file"]}
    yield whole("other case is another name", [structured("Get_Weather", OSLO_JSON)], **listed)


# --- structure -----------------------------------------------------------------------------------------


def combination_cases() -> Iterator[Case]:
    """One call and two, with every choice of markers missing."""
    names = ("section", "call", "argument", "end", "closing")
    choices = ((S, SINGULAR, ""), (C, ""), (A, ""), (E, ""), (SE, SINGULAR_END, ""))
    for used in itertools.product(*choices):
        begin, call, argument, end, close = used
        missing = [name for name, marker in zip(names, used, strict=True) if not marker] or ["nothing"]
        spelled = [name for name in ("begin", "end") if {"begin": begin, "end": close}[name] in SINGULARS]
        title = " ".join(["without", *missing, *(["singular", *spelled] if spelled else [])])
        one = f"{call}functions.get_weather:0{argument}{OSLO_JSON}{end}"
        two = f"{call}functions.get_weather:1{argument}{LIMA_JSON}{end}"
        yield raw("structure", f"one call {title}", f"Ok.{begin}{one}{close}", OSLO, content="Ok.")
        yield raw(
            "structure", f"two calls {title}", f"Ok.{begin}{one}{two}{close}", OSLO, LIMA, content="Ok."
        )


SINGULARS = frozenset({SINGULAR, SINGULAR_END})
STRAYS = (E, SE, SINGULAR_END, A, "<|im_end|>", "<|im_middle|>")
NO_MARKERS = (
    "a < b",
    "a <| b",
    "<|tool",
    "x <|tool_call_begin",
    "<",
    "<<",
    "1 << 2 <|",
    "<|unknown|>",
    "<thinking>",
)


def structure_cases() -> Iterator[Case]:
    text = partial(raw, "structure")
    between = f"One. {SECTION}Two. {S}{LIMA_RAW}{SE}Three."
    yield text("two sections with text between", between, OSLO, LIMA, content="One. Two. Three.")
    yield text("section twice opened", f"{S}{S}{OSLO_RAW}{SE}", OSLO)
    yield text("call twice opened", f"{S}{C}{OSLO_RAW}{SE}", OSLO)
    yield text("call twice closed", f"{S}{OSLO_RAW}{E}{SE}{SE}", OSLO)
    yield text("call closed by the end of the message", f"{S}{OSLO_RAW[: -len(E)]}<|im_end|>", OSLO)
    yield text("end of message behind the section", f"{SECTION}<|im_end|>", OSLO)
    yield text("empty section beside text", f"Hi{S}{SE}", content="Hi")
    yield text("empty section inside text", f"Hi {S}{SE}there", content="Hi there")
    yield text("empty section alone", f"{S}{SE}", next="retry_once")
    yield text("empty section as tool calls", f"{S}{SE}", finish_reason="tool_calls", next="retry_once")
    yield text("empty call alone", f"{S}{C}{E}{SE}", next="retry_once")
    yield text("empty arguments", f"{S}{text_call('functions.now:0', '')}{SE}", NOTHING, tools=(NOW,))
    yield text("no arguments at all", f"{S}{C}functions.now:0{E}{SE}", NOTHING, tools=(NOW,))
    spaced = f"Ok.\n{S}\n{C} functions.get_weather:0 {A}\n{OSLO_JSON}\n{E}\n{LIMA_RAW}\n{SE}\n"
    yield text("white space around everything", spaced, OSLO, LIMA, content="Ok.")
    yield text("text inside the section", f"{S}Let me see.{OSLO_RAW}{SE}", OSLO, content="Let me see.")
    yield text(
        "text between two calls", f"{S}{OSLO_RAW}Then Lima.{LIMA_RAW}{SE}", OSLO, LIMA, content="Then Lima."
    )
    yield text(
        "marker quoted in an answer", f"A call opens with {C} here.", content="A call opens with  here."
    )
    yield text("section quoted in an answer", f"A section is {S} and {SE}.", content="A section is  and .")
    yield text("header and arguments on two lines", f"{S}{C}get_weather\n{OSLO_JSON}{E}{SE}", OSLO)
    inside = json.dumps({"name": "get_weather", "arguments": OSLO[1]})
    yield text("name and arguments in one object", f"{S}{C}{inside}{E}{SE}", OSLO)
    cities = [{"city": f"Town {place}"} for place in range(50)]
    many = "".join(
        text_call(f"functions.get_weather:{place}", json.dumps(one)) for place, one in enumerate(cities)
    )
    yield text("fifty calls", f"{S}{many}{SE}", *(("get_weather", one) for one in cities))
    bare = f"{SECTION}Then functions.get_weather:1{LIMA_JSON}"
    yield text("a section, then a call without markers", bare, OSLO, LIMA, content="Then")
    yield text("blank text around a section", f" \n{SECTION}\n ", OSLO)
    for place, stray in enumerate(STRAYS):
        yield text(f"stray {place} inside an answer", f"All {stray}good", content="All good")
        yield text(f"stray {place} before an answer", f"{stray}All good", content="All good")
        yield text(f"stray {place} behind an answer", f"All good{stray}", content="All good")
    yield text("stray end of thought before an answer", "</think>All good", content="All good")
    for place, plain in enumerate(NO_MARKERS):
        yield text(f"no marker {place} {plain}", plain, content=plain)


# --- markers in strings --------------------------------------------------------------------------------

IN_STRINGS = (
    E,
    SE,
    S,
    f"{C}functions.note:1{A}{{}}{E}",
    f"{E}{SE}",
    "<think>",
    "</think>",
    "<|im_end|>",
    f'"{E}" done',
    f'\\"{E}',
    f"back\\\\{E}\\",
    f"{{{E}}}",
    f"line\n{SE}\ttab",
)


def string_cases() -> Iterator[Case]:
    text = partial(raw, "string")
    for place, written in enumerate(IN_STRINGS):
        arguments = json.dumps({"text": written}, ensure_ascii=False)
        call: Call = ("note", {"text": written})
        section = f"Ok.{S}{text_call('functions.note:0', arguments)}{SE}"
        yield text(f"raw {place}", section, call, tools=(NOTE,), content="Ok.")
        yield reply("string", f"structured {place}", [structured("note", arguments)], call, tools=(NOTE,))
    endless = f'{C}functions.get_weather:0{A}{{"city":"Oslo'
    failed: Row = {"next": "tool_error", "failed": ["get_weather"]}
    yield text("never closed", f"{S}{endless}{E}{SE}", **failed)
    yield text("never closed, text behind", f"Ok. {S}{endless}{E}{SE}Bye.", content="Ok. Bye.", **failed)
    yield text("never closed, a call behind", f"{S}{endless}{E}{FILE_RAW}{SE}", FILE, failed=["get_weather"])
    yield text("never closed at the limit", f"{S}{endless}", next="truncated", **CUT)


# --- glued calls, and the same call twice --------------------------------------------------------------


def repeated_cases() -> Iterator[Case]:
    whole = partial(reply, "twice")
    glued = f"{OSLO_JSON}{E}{LIMA_RAW[: -len(E)]}"
    yield whole("glued in structured arguments", [structured("get_weather", glued)], OSLO, LIMA)
    yield whole("end markers in arguments", [structured("get_weather", f"{OSLO_JSON}{E}{SE}")], OSLO)
    yield raw("twice", "glued without an end", f"{S}{OSLO_RAW[: -len(E)]}{LIMA_RAW}{SE}", OSLO, LIMA)
    one = [structured("get_weather", OSLO_JSON)]
    spaced = text_call("functions.get_weather:0", '{ "city" : "Oslo" }')
    for title, text in (
        ("as a section", SECTION),
        ("with other white space", f"{S}{spaced}{SE}"),
        ("with another index", f"{S}{text_call('functions.get_weather:4', OSLO_JSON)}{SE}"),
        ("without prefix", f"{S}{text_call('get_weather:0', OSLO_JSON)}{SE}"),
        ("without markers", f"functions.get_weather:0{OSLO_JSON}"),
        ("under a foreign id", f"{S}{text_call('call_0a1b2c', OSLO_JSON)}{SE}"),
    ):
        yield whole(f"raw {title}", one, OSLO, message={"content": f"Ok.{text}"}, content="Ok.")
    for field in ("reasoning_content", "reasoning"):
        yield whole(f"raw in {field}", one, OSLO, message={field: f"Hm.{SECTION}"}, reasoning="Hm.")
    both: Call = ("get_weather", {"city": "Oslo", "unit": "C"})
    turned = text_call("functions.get_weather:0", '{"unit":"C","city":"Oslo"}')
    entries = [structured("get_weather", '{"city":"Oslo","unit":"C"}')]
    yield whole("raw with keys in another order", entries, both, message={"content": f"{S}{turned}{SE}"})
    yield whole("another raw", one, OSLO, LIMA, message={"content": f"{S}{LIMA_RAW}{SE}"})
    yield whole(
        "the same raw and another", one, OSLO, FILE, message={"content": f"{S}{OSLO_RAW}{FILE_RAW}{SE}"}
    )
    again = structured("get_weather", OSLO_JSON, "functions.get_weather:1")
    yield whole("on purpose", [*one, again], OSLO, OSLO)
    yield whole("the id", [*one, structured("get_weather", LIMA_JSON)], OSLO, LIMA)
    yield whole("no id", [structured("get_weather", OSLO_JSON, None)], OSLO, repairs=["call_id"])
    yield whole("an empty id", [structured("get_weather", OSLO_JSON, "")], OSLO, repairs=["call_id"])


# --- thoughts ------------------------------------------------------------------------------------------


def thought_field_cases() -> Iterator[Case]:
    text = partial(raw, "thought")
    hm: Row = {"reasoning": "Hm."}
    for name in ("reasoning_content", "reasoning"):
        field: Row = {"field": name}
        cold: Row = {"beside": "Cold.", "content": "Cold."}
        yield text(f"call in {name}", f"Hm. {SECTION}", OSLO, **field, **hm)
        yield text(f"call in {name}, text behind", f"Hm. {SECTION} So.", OSLO, content="So.", **field, **hm)
        yield text(f"call in {name} closed inside", f"Hm. {SECTION} no.</think>", next="retry_once", **field)
        considered = f"Hm. {SECTION} no."
        yield text(f"call in {name} closed by text", considered, repairs=["thought_call"], **field, **cold)
        yield text(f"bare call in {name}", f"Hm. functions.get_weather:0{OSLO_JSON}", OSLO, **field, **hm)
        yield text(f"{name} alone", "Hm.", next="retry_once", **field)
        yield text(f"{name} and an answer", "Hm.", **field, **cold, **hm)
        yield text(f"think tags in {name}", "<think>Hm.</think>", **field, **cold, **hm)
        singular = f"Hm.{SINGULAR}{OSLO_RAW}{SINGULAR_END}"
        yield text(f"singular section in {name}", singular, OSLO, **field, **hm)
        yield text(f"section in {name} never closed", f"Hm.{S}{OSLO_RAW}", OSLO, **field, **hm)
        yield text(f"call in content behind {name}", "Hm.", OSLO, beside=SECTION, **field, **hm)
    beside: Row = {"field": "reasoning_content", "beside": f"{S}{LIMA_RAW}{SE}"}
    yield text("calls in reasoning and in content", f"Hm.{SECTION}", LIMA, next="run_tools", **beside)
    both = {"role": "assistant", "reasoning": "Hm.", "reasoning_content": "Hm.", "content": "Cold."}
    yield case("thought", "under both names", {"message": both}, (), {"content": "Cold.", **hm})


def thought_tag_cases() -> Iterator[Case]:
    text = partial(raw, "thought")
    hm: Row = {"reasoning": "Hm."}
    cold: Row = {"content": "Cold."}
    yield text("tags", "<think>Hm.</think>Cold.", **cold, **hm)
    yield text("tags around nothing", "<think></think>Cold.", reasoning="", **cold)
    yield text("white space behind", "<think>Hm.\n</think>\n\nCold.", **cold, **hm)
    yield text("begin kept by the server", "Hm.</think>Cold.", **cold, **hm)
    yield text("begin kept by the server, call", f"Hm.</think>{SECTION}", OSLO, **hm)
    considered: Row = {"repairs": ["thought_call"], **cold}
    yield text("begin kept by the server, call inside", f"Hm. {SECTION} no.</think>Cold.", **considered)
    yield text("end twice", "Hm.</think>Cold</think>.", **cold, **hm)
    yield text("never closed", "<think>Hm.", next="retry_once")
    yield text("never closed, call", f"<think>Hm.{SECTION}", OSLO, **hm)
    yield text("never closed, call without section", f"<think>Hm.{OSLO_RAW}", OSLO, **hm)
    yield text("never closed, call and text", f"<think>Hm.{SECTION}So.", OSLO, content="So.", **hm)
    yield text("call inside, then an answer", f"<think>Hm. {SECTION} no.</think>Cold.", **considered)
    yield text("the same call inside and behind", f"<think>{SECTION}</think>{SECTION}", OSLO)
    yield text("between two calls", f"{SECTION}<think>Hm.</think>{S}{LIMA_RAW}{SE}", OSLO, LIMA, **hm)
    yield text("the word in an answer", "Use the <think> tag here.", content="Use the  tag here.")
    yield text("in the middle of an answer", "A<think>Hm.</think> c", content="A c", **hm)


# --- calls whose markers are gone ----------------------------------------------------------------------

BARE, BARE_TOO = f"functions.get_weather:0{OSLO_JSON}", f"functions.get_weather:1{LIMA_JSON}"
BARE_TEXTS = {
    "in the middle": f"Write {BARE} to see it.",
    "before a full stop": f"Write {BARE}.",
    "in a code fence": f"```\n{BARE}\n```",
    "of an unknown tool": "functions.img_gen:0{}",
    "without prefix": f"get_weather:0{OSLO_JSON}",
    "without index": f"functions.get_weather{OSLO_JSON}",
    "without arguments": "functions.get_weather:0",
    "with a list": "functions.get_weather:0[1]",
    "cut": 'functions.get_weather:0{"city":"Os',
    "before an unknown one": f"{BARE}functions.img_gen:1{{}}",
}


def bare_cases() -> Iterator[Case]:
    text = partial(raw, "bare")
    ok: Row = {"content": "Ok."}
    yield text("alone", BARE, OSLO)
    yield text("behind text", f"Ok. {BARE}", OSLO, **ok)
    yield text("two", f"Ok.{BARE}{BARE_TOO}", OSLO, LIMA, **ok)
    yield text("two on lines of their own", f"Ok.\n{BARE}\n{BARE_TOO}\n", OSLO, LIMA, **ok)
    yield text("space before the arguments", f"functions.get_weather:0 {OSLO_JSON}", OSLO)
    yield text("line before the arguments", f"functions.get_weather:0\n{OSLO_JSON}", OSLO)
    yield text(
        "braces in a string", 'functions.get_weather:0{"city":"{Oslo}"}', ("get_weather", {"city": "{Oslo}"})
    )
    nested: Call = ("now", {"a": {"b": [1]}})
    yield text("nested arguments", 'functions.now:3{"a":{"b":[1]}}', nested, tools=("now",))
    yield text("dotted name", "functions.a.b-c/d:0{}", ("a.b-c/d", {}), tools=("a.b-c/d",))
    yield text("with the word tool_calls", BARE, OSLO, finish_reason="tool_calls")
    for title, said in BARE_TEXTS.items():
        yield text(f"text {title}", said, content=said)
    cut = 'Ok. functions.get_weather:0{"city":"Os'
    yield text("text cut at the limit", cut, content=cut, run_finish="length", **CUT)
    yield text("text where no tools are offered", BARE, tools=(), content=BARE)
    yield text("text where raw calls are off", BARE, content=BARE, **RAW_OFF)
    yield text("dropped where no call is wanted", f"Ok. {BARE}", dropped=["get_weather"], **ok, **NO_CALLS)


# --- calls that nobody asked for -----------------------------------------------------------------------


def refused_cases() -> Iterator[Case]:
    text, whole = partial(raw, "refused"), partial(reply, "refused")
    one = [structured("get_weather", OSLO_JSON)]
    dropped: Row = {"dropped": ["get_weather"]}
    for title, given in (("no tools", {"tools": ()}), ("no call wanted", NO_CALLS)):
        yield text(f"raw, {title}", f"Ok. {SECTION}", content="Ok.", **dropped, **given)
        yield text(f"raw alone, {title}", SECTION, **dropped, **given)
        yield whole(f"structured, {title}", one, content="", **dropped, **given)
        beside: Row = {"message": {"content": "Cold."}, "content": "Cold."}
        yield whole(f"structured beside text, {title}", one, **beside, **dropped, **given)
    off: Row = {"repairs": ["raw_tool_calls"], **RAW_OFF}
    yield text("raw calls off", f"Ok. {SECTION}Bye.", content="Ok. Bye.", **off)
    yield text("raw calls off, call alone", SECTION, next="retry_once", **RAW_OFF)
    yield text("raw calls off, in a thought", f"Hm.{SECTION}", next="retry_once", **RAW_OFF, **THOUGHT)
    yield whole("raw calls off, structured", one, OSLO, **RAW_OFF)


# --- cut at the limit ----------------------------------------------------------------------------------

CUTS = {
    "in the name": "functions.get_wea",
    "behind the name": "functions.get_weather:0",
    "before the arguments": f"functions.get_weather:0{A}",
    "in a key": f'functions.get_weather:0{A}{{"ci',
    "in a value": f'functions.get_weather:0{A}{{"city":"Os',
    "behind a value": f'functions.get_weather:0{A}{{"city":"Oslo"',
    "behind the arguments": f"functions.get_weather:0{A}{OSLO_JSON}",
}
STRUCTURED_CUTS = {
    "in the id": ("functions.get_", "{}"),
    "in the name": ("get_wea", "{}"),
    "behind the name": ("get_weather", "{}"),
    "before the arguments": ("get_weather", ""),
    "in a value": ("get_weather", '{"city":"Os'),
    "behind a value": ("get_weather", '{"city":"Oslo"'),
}


def cut_text_cases() -> Iterator[Case]:
    text = partial(raw, "cut")
    alone: Row = {"next": "truncated"}
    for title, said in CUTS.items():
        call = f"{S}{C}{said}"
        yield text(title, f"Ok.{call}", content="Ok.", **alone, **CUT)
        yield text(f"{title}, other word", call, finish_reason="max_tokens", **alone)
        yield text(f"{title}, no section", f"Ok.{C}{said}", content="Ok.", **alone, **CUT)
        yield text(f"{title}, in reasoning", f"Hm.{call}", reasoning="Hm.", **alone, **CUT, **THOUGHT)
        yield text(f"{title}, in a thought", f"<think>Hm.{call}", reasoning="Hm.", **alone, **CUT)
        yield text(f"{title}, told by the usage", call, **alone, **LIMIT)
        behind: Row = {"truncated": True, "repairs": ["truncated_call"], **CUT}
        yield text(f"{title}, behind a whole call", f"{S}{FILE_RAW}{C}{said}", FILE, **behind)
    yield text("behind the call", f"{S}{OSLO_RAW}", OSLO, truncated=True, **CUT)
    yield text("behind the section", SECTION, OSLO, truncated=True, **CUT)
    yield text("before any name", f"Ok.{S}{C}", content="Ok.", **alone, **CUT)
    for title, said in (("any call", f"Ok.{S}"), ("its end", "Ok.")):
        yield text(f"before {title}", said, content="Ok.", run_finish="length", **CUT)


def cut_reply_cases() -> Iterator[Case]:
    whole = partial(reply, "cut")
    for title, (name, arguments) in STRUCTURED_CUTS.items():
        entries = [structured(name, arguments, "chatcmpl-tool-1")]
        both = [structured("read_file", FILE_JSON, "functions.read_file:0"), *entries]
        for habit, given in (("as vllm tells it", LIMIT), ("as others tell it", CUT)):
            yield whole(f"structured {title} {habit}", entries, next="truncated", **given)
            dropped: Row = {"repairs": ["truncated_call"], **given}
            yield whole(f"structured {title} behind a whole call {habit}", both, FILE, **dropped)
    one, empty = [structured("get_weather", OSLO_JSON)], [structured("get_weather", "{}")]
    yield whole("structured and whole", one, OSLO, finish="length", **CUT)
    yield whole("structured and whole, told by the usage", one, OSLO, **LIMIT)
    yield whole("no required fields", [structured("now", "{}")], NOTHING, tools=(NOW,), **LIMIT)
    invalid: Row = {"next": "tool_error", "explained": ["city"], "options": LIMIT["options"]}
    below = {"prompt_tokens": 9, "completion_tokens": 15}
    yield whole("not below the limit", empty, usage=below, **invalid)
    yield whole("not where no usage is told", empty, **invalid)
    unusable: Row = {"error": {"class": "UnusableReply", "requests": 1}}
    yield raw("cut", "reasoning only", "Hm.", **unusable, **CUT, **THOUGHT)
    yield raw("cut", "thought only", "<think>Hm.", **unusable, **CUT)
    yield raw("cut", "nothing", "", **unusable, **CUT)


# --- arguments -----------------------------------------------------------------------------------------

LIST = tool("set_todos", ["todos"], todos={"type": "array", "items": {"type": "object"}}, note="string")
COUNT = tool("count", ["n"], n="integer", exact="boolean", text="string", ratio="number")
ANY = tool("note")
WRAPPED = tool("wrapped", ["input"], input="object")
CLOSED = {"name": "closed", "parameters": {**WEATHER["parameters"], "additionalProperties": False}}
ENUM = tool("pick", ["unit"], unit={"type": "string", "enum": ["C", "F"]})

FORGIVEN = {
    "trailing comma": '{"city":"Oslo",}',
    "code fence": f"```json\n{OSLO_JSON}\n```",
    "code fence without language": f"```\n{OSLO_JSON}\n```\n",
    "one brace too many": f"{OSLO_JSON}}}",
    "python quotes": "{'city': 'Oslo'}",
    "white space around": f" \n{OSLO_JSON}\n ",
    "encoded twice": json.dumps(OSLO_JSON),
}
BROKEN = {
    "list": "[]",
    "list of arguments": f"[{OSLO_JSON}]",
    "string": '"Oslo"',
    "number": "7",
    "true": "true",
    "no json": "Oslo",
    "text before": f"Sure: {OSLO_JSON}",
    "text behind": f"{OSLO_JSON} there",
    "two objects": f"{OSLO_JSON}{LIMA_JSON}",
    "cut": '{"city":"Os',
    "unescaped quote": '{"city":"O"slo"}',
    "comment": '{"city":"Oslo" /* where */}',
    "no quotes": "{city: Oslo}",
    "deep": '{"city":' * 20_000 + "1" + "}" * 20_000,
    "deep list": '{"city":' + "[" * 20_000 + "]" * 20_000 + "}",
    "python call": "{'city': open('x')}",
    "wrong type": '{"city":5}',
    "null for a string": '{"city":null}',
    "required missing": '{"unit":"C"}',
    "wrapped in an unknown word": f'{{"payload":{OSLO_JSON}}}',
}
EMPTY = {"nothing": "", "blank": " ", "null": "null", "object": "{}"}


def argument_form_cases() -> Iterator[Case]:
    for title, text in FORGIVEN.items():
        yield told(title, text, OSLO)
        section = f"{S}{text_call('functions.get_weather:0', text)}{SE}"
        yield raw("arguments", f"raw and {title}", section, OSLO)
    for title, text in BROKEN.items():
        yield told(f"broken {title}", text)
        section = f"{S}{text_call('functions.get_weather:0', text)}{SE}"
        yield raw("arguments", f"raw and broken {title}", section, next="tool_error", failed=["get_weather"])
    for title, text in EMPTY.items():
        yield told(f"empty {title}", text, NOTHING, tools=(NOW,))
        yield told(f"empty {title} where something is required", text, explained=["city"])
        section = f"{S}{text_call('functions.now:0', text)}{SE}"
        yield raw("arguments", f"raw and empty {title}", section, NOTHING, tools=(NOW,))
    for title, function in (("absent", {"name": "now"}), ("null", {"name": "now", "arguments": None})):
        call = {"id": "c", "type": "function", "function": function}
        yield reply("arguments", f"{title} on the wire", [call], NOTHING, tools=(NOW,))
    yield told("an object instead of its text", {"city": "Oslo"}, OSLO)
    beside = [
        structured("get_weather", '{"city":'),
        structured("read_file", FILE_JSON, "functions.read_file:1"),
    ]
    yield reply("arguments", "broken beside whole", beside, FILE, failed=["get_weather"])


def argument_wrapping_cases() -> Iterator[Case]:
    todos: Call = ("set_todos", {"todos": [{"a": 1}]})
    yield told("list encoded twice", '{"todos":"[{\\"a\\":1}]"}', todos, tools=(LIST,))
    yield told("trailing commas inside", '{"todos":[{"a":1,},],}', todos, tools=(LIST,))
    yield told("number encoded twice", '{"n":"3"}', ("count", {"n": 3}), tools=(COUNT,))
    yield told(
        "boolean encoded twice", '{"n":1,"exact":"true"}', ("count", {"n": 1, "exact": True}), tools=(COUNT,)
    )
    yield told("json text for a string", '{"text":"[1, 2]"}', ("note", {"text": "[1, 2]"}), tools=(NOTE,))
    yield told("number text for a string", '{"text":"3"}', ("note", {"text": "3"}), tools=(NOTE,))
    for wrapper in ("arguments", "parameters", "input"):
        yield told(f"wrapped in {wrapper}", f'{{"{wrapper}":{OSLO_JSON}}}', OSLO)
        yield told(f"wrapped in {wrapper} as text", f'{{"{wrapper}":{json.dumps(OSLO_JSON)}}}', OSLO)
        yield told(
            f"wrapped in {wrapper} with the name", f'{{"name":"get_weather","{wrapper}":{OSLO_JSON}}}', OSLO
        )
        inner = {wrapper: {"city": "Oslo"}}
        yield told(f"{wrapper} where anything goes", json.dumps(inner), ("note", inner), tools=(ANY,))
    wanted = {"input": {"a": 1}}
    yield told("input where the schema wants it", json.dumps(wanted), ("wrapped", wanted), tools=(WRAPPED,))


def argument_value_cases() -> Iterator[Case]:
    def city(title: str, text: str, value: str) -> Case:
        return told(title, f'{{"city":"{text}"}}', ("get_weather", {"city": value}))

    yield city("control characters", "Os\nlo\t\x01", "Os\nlo\t\x01")
    yield city("carriage return", "Os\r\nlo", "Os\r\nlo")
    yield city("lone surrogate", "\\ud800", "\ud800")
    yield city("escaped pair", "\\ud83c\\udf0d", "🌍")
    yield city("line separator", "東京\u2028", "東京\u2028")
    yield city("null character", "a\\u0000b", "a\0b")
    yield city("comma and bracket", "a,}", "a,}")
    kept: Call = ("get_weather", {"city": "a,}", "unit": "b,]"})
    yield told("trailing comma behind commas in strings", '{"city":"a,}","unit":"b,]",}', kept)
    python: Call = ("count", {"n": 3, "exact": False, "text": "it's"})
    yield told("python literals", "{'n': 3, 'exact': False, 'text': 'it\\'s'}", python, tools=(COUNT,))
    yield told("python literals that do not fit", "{'n': 3, 'text': None}", tools=(COUNT,))
    numbers = {"nan": "NaN", "infinity": "Infinity", "minus infinity": "-Infinity", "5000 digits": "1" * 5000}
    for title, number in numbers.items():
        yield told(f"no number {title}", f'{{"n":{number}}}', tools=(COUNT,))
    yield told("huge number", f'{{"n":{10**300}}}', ("count", {"n": 10**300}), tools=(COUNT,))
    yield told("float for an integer", '{"n":1.5}', tools=(COUNT,))
    yield told("whole float for an integer", '{"n":2.0}', ("count", {"n": 2.0}), tools=(COUNT,))
    yield told("unknown choice", '{"unit":"K"}', tools=(ENUM,), explained=["C", "F"])
    extra = '{"city":"Oslo","when":"now"}'
    yield told("unknown field where none is allowed", extra, tools=(CLOSED,), explained=["when"])
    yield told("unknown field", extra, ("get_weather", {"city": "Oslo", "when": "now"}))
    yield told("a key twice", '{"city":"Oslo","city":"Lima"}', LIMA)


# --- deltas --------------------------------------------------------------------------------------------

HEAD = piece(0, id="c1", name="get_weather", arguments="")
ONE, TWO = '{"city":', '"Oslo"}'
INDICES: dict[str, tuple[Any, Any]] = {
    "missing": (None, None),
    "from one": (1, 2),
    "sparse": (0, 5),
    "backwards": (3, 1),
    "repeated": (0, 0),
    "text": ("0", "1"),
    "negative": (-1, -2),
    "negative and repeated": (-1, -1),
}


def index_cases() -> Iterator[Case]:
    send = partial(deltas, "deltas")
    first: Row = {"id": "c1", "name": "get_weather", "arguments": OSLO_JSON}
    second: Row = {"id": "c2", "name": "get_weather", "arguments": LIMA_JSON}
    for title, (one, two) in INDICES.items():
        yield send(f"index {title}, whole calls", [piece(one, **first), piece(two, **second)], OSLO, LIMA)
        heads = [piece(index, id=f"c{number}", name="get_weather") for number, index in ((1, one), (2, two))]
        pieces = [heads[0], *(piece(one, arguments=text) for text in (ONE, TWO))]
        pieces += [heads[1], *(piece(two, arguments=text) for text in ('{"city":"Li', 'ma"}'))]
        yield send(f"index {title}, in pieces", pieces, OSLO, LIMA)
        together = {"tool_calls": [entry(one, **first), entry(two, **second)]}
        yield send(f"index {title}, one delta", [together], OSLO, LIMA)
        if one in (None, two):
            continue
        interleaved = [
            piece(one, id="c1", name="get_weather", arguments=""),
            piece(two, id="c2", name="read_file", arguments='{"pa'),
            piece(one, arguments=ONE),
            piece(two, arguments='th":"a.'),
            {"tool_calls": [entry(two, arguments='txt"}'), entry(one, arguments=TWO)]},
        ]
        yield send(f"index {title}, interleaved", interleaved, OSLO, FILE)
    by_id = [piece(id="c1", name="get_weather"), piece(id="c2", name="read_file")]
    by_id += [piece(id="c1", arguments=OSLO_JSON), piece(id="c2", arguments=FILE_JSON)]
    yield send("interleaved by id alone", by_id, OSLO, FILE)
    null = [{"tool_calls": [{**entry(**fields), "index": None}]} for fields in (first, second)]
    yield send("index null", null, OSLO, LIMA)


def identity_cases() -> Iterator[Case]:
    send = partial(deltas, "deltas")
    parts = (ONE, TWO)
    rest = piece(0, arguments=OSLO_JSON)
    late = [piece(0, name="get_weather"), piece(0, arguments=ONE), piece(0, id="c9", arguments=TWO)]
    yield send("id late", late, OSLO)
    yield send("id only at first", [HEAD, *(piece(0, arguments=part) for part in parts)], OSLO)
    null = {"tool_calls": [{**entry(0, arguments=TWO), "id": None}]}
    yield send("id empty and null later", [HEAD, piece(0, id="", arguments=ONE), null], OSLO)
    yield send("id absent", [piece(0, name="get_weather", arguments=OSLO_JSON)], OSLO, repairs=["call_id"])
    changing = [piece(0, id=f"x{place}", arguments=part) for place, part in enumerate(parts)]
    yield send("id changing", [HEAD, *changing], OSLO)
    named = [piece(0, id=f"x{place}", name="get_weather", arguments=part) for place, part in enumerate(parts)]
    yield send("id changing beside the name", named, OSLO)
    yield send("id a number", [piece(0, id=7, name="get_weather", arguments=OSLO_JSON)], OSLO)
    same = [piece(0, id="c1", name="get_weather", arguments=OSLO_JSON)]
    yield send(
        "id of another call", [*same, piece(1, id="c1", name="read_file", arguments=FILE_JSON)], OSLO, FILE
    )
    pieces = [piece(0, id="c1", name="get_"), piece(0, name="wea"), piece(0, name="ther"), rest]
    yield send("name in pieces", pieces, OSLO)
    repeated = [piece(0, id="c1", name="get_weather", arguments=part) for part in parts]
    yield send("name repeated", [HEAD, *repeated], OSLO)
    yield send("name and id repeated before arguments", [HEAD, HEAD, rest], OSLO)
    yield send(
        "name late", [piece(0, id="c1", arguments=ONE), piece(0, name="get_weather", arguments=TWO)], OSLO
    )
    yield send("name last", [piece(0, id="c1", arguments=OSLO_JSON), piece(0, name="get_weather")], OSLO)
    yield send("name empty later", [HEAD, piece(0, name="", arguments=OSLO_JSON)], OSLO)
    yield send("name with prefix and index", [piece(0, id="c1", name="functions.get_weather:0"), rest], OSLO)
    tools: Row = {"tools": ("get", "get_weather")}
    grown = [piece(0, id="c1", name="get"), piece(0, name="_weather"), piece(0, arguments="{}")]
    yield send("name that begins with another", grown, ("get_weather", {}), **tools)
    short = [piece(0, id="c1", name="get"), piece(0, name="get", arguments="{}")]
    yield send("name repeated that begins another", short, ("get", {}), **tools)


NULLS: Row = {
    "content": None,
    "reasoning_content": None,
    "refusal": None,
    "function_call": None,
    "audio": None,
}
ODD_CHOICES: dict[str, Row] = {
    "empty": {"choices": []},
    "null": {"choices": None},
    "absent": {},
    "of nulls": {"choices": [None]},
    "without delta": {"choices": [{"index": 0, "finish_reason": None}]},
    "with delta null": {"choices": [{"index": 0, "delta": None, "finish_reason": None}]},
    "an object": {"choices": {}},
}


def choice(delta: Any, finish_reason: str | None = None, **more: Any) -> Row:
    """A chunk with one choice and nothing else."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason, **more}]}


def call_shape_cases() -> Iterator[Case]:
    send = partial(deltas, "deltas")
    nameless = {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": ONE}}
    nulls: list[Row] = [
        {"role": "assistant", **NULLS, "tool_calls": None},
        {**NULLS, **HEAD},
        {**NULLS, "tool_calls": [nameless]},
        {**NULLS, **piece(0, arguments=TWO)},
        {**NULLS, "tool_calls": []},
    ]
    rest = piece(0, arguments=OSLO_JSON)
    yield send("nulls everywhere", nulls, OSLO)
    yield send("arguments null at first", [HEAD, piece(0, arguments=None), rest], OSLO)
    yield send(
        "arguments an object", [piece(0, id="c", name="get_weather", arguments={"city": "Oslo"})], OSLO
    )
    empty = {"tool_calls": [{"index": 0, "function": None}, {"index": 0}]}
    yield send("function null and absent", [HEAD, empty, rest], OSLO)
    yield send("entry null", [{"tool_calls": [None, *HEAD["tool_calls"]]}, rest], OSLO)
    yield send("no arguments ever", [piece(0, id="c", name="now")], NOTHING, tools=(NOW,))
    whole = piece(0, id="c", name="get_weather", arguments=OSLO_JSON)
    yield send("call beside the finish reason", [choice(whole, "tool_calls")], OSLO, ending=())


def text_shape_cases() -> Iterator[Case]:
    send = partial(deltas, "deltas", content="Hi")
    yield send("role in every delta", [{"role": "assistant", "content": each} for each in "Hi"])
    yield send("role alone", [{"role": "assistant"}, {"role": "assistant", "content": ""}, {"content": "Hi"}])
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    parts = [{"type": "text", "text": "H"}, image, {"type": "text", "text": "i"}]
    yield send("content a list of parts", [{"content": parts}])
    yield send("empty and null contents", [{"content": each} for each in ("", None, "Hi", "")])
    for title, odd in ODD_CHOICES.items():
        yield send(f"choices {title}", [odd, {"content": "H"}, odd, {"content": "i"}, odd])
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}
    mixed = {"choices": [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "i"}}]}
    yield send("other choices", [other, {"content": "H"}, mixed, other])
    bare = {"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    yield send("choice without index", [bare], ending=())
    yield send(
        "last text beside the finish reason", [{"content": "H"}, choice({"content": "i"}, "stop")], ending=()
    )
    yield send("finish reason empty at first", [choice({"content": "Hi"}, "")], finish="stop")
    yield send("finish reason twice", [{"content": "Hi"}, choice({}, "stop")])
    yield send("error null", [{**choice({"content": "Hi"}), "error": None}])
    message = {"role": "assistant", "content": "Hi"}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    yield send("a message instead of deltas", [whole], ending=())


def usage_cases() -> Iterator[Case]:
    counts = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    less = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    last: Row = {"choices": [], "usage": counts}
    hi, finish = choice({"content": "Hi"}), choice({}, "stop")

    def usage(title: str, *sent: Row, **wanted: int) -> Case:
        expected = wanted or {"prompt_tokens": 3, "completion_tokens": 4}
        return deltas("usage", title, sent, ending=(), content="Hi", counted=expected)

    nothing = {"prompt_tokens": 0, "completion_tokens": 0}
    yield usage("in the last chunk", hi, finish, last)
    yield usage("without choices", hi, finish, {"usage": counts})
    yield usage("in the finish chunk", hi, {**finish, "usage": counts})
    yield usage("in the choice", hi, choice({}, "stop", usage=counts))
    yield usage("in the choice and at the end", hi, choice({}, "stop", usage=counts), last)
    yield usage("in the first chunk", {**hi, "usage": counts}, finish)
    yield usage("in every chunk", {**hi, "usage": less}, {**finish, "usage": counts})
    yield usage("null at first", {**hi, "usage": None}, finish, last)
    yield usage("null at the end", {**hi, "usage": counts}, {**finish, "usage": None})
    yield usage(
        "beside another choice", hi, finish, {"choices": [{"index": 1, "delta": {}}], "usage": counts}
    )
    yield usage("absent", hi, finish, **nothing)
    yield usage("of a wrong type", hi, {**finish, "usage": [1]}, **nothing)
    yield usage("in text", hi, {**finish, "usage": {"prompt_tokens": "3"}}, **nothing)
    cached = {**counts, "prompt_tokens_details": {"cached_tokens": 2}}
    yield usage("with details", hi, {**finish, "usage": cached}, cached_tokens=2)
    reasoned = {**counts, "completion_tokens_details": {"reasoning_tokens": 1}}
    yield usage("with reasoning", hi, {**finish, "usage": reasoned}, reasoning_tokens=1)
    yield usage(
        "with cached tokens on top", hi, {**finish, "usage": {**counts, "cached_tokens": 2}}, cached_tokens=2
    )
    nulls = {**counts, "prompt_tokens_details": None, "cached_tokens": None}
    yield usage("with nulls inside", hi, {**finish, "usage": nulls}, prompt_tokens=3, cached_tokens=0)


# --- finish reasons ------------------------------------------------------------------------------------

WORDS = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "stop",
    "content_filter": "content_filter",
    "function_call": "stop",
    "tool_use": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "eos_token": "stop",
    "abort": "abort",
    "unexpected_state": "unexpected_state",
    "sensitive": "sensitive",
    "network_error": "network_error",
    "недостаточно": "недостаточно",
}
"""By word, the finish reason of a run whose last reply was text."""


def word_cases() -> Iterator[Case]:
    text, whole = partial(raw, "finish"), partial(reply, "finish")
    calls = [structured("get_weather", OSLO_JSON)]
    for place, (word, understood) in enumerate(WORDS.items()):
        title = f"{place} {word}"
        said: Row = {"finish_reason": word}
        step = understood if understood in ("stop", "length", "content_filter") else "other"
        seen: Row = {"finish": step, "run_finish": understood, "raw_finish": word}
        yield text(f"text {title}", "Cold.", content="Cold.", **said, **seen)
        kept = step if step in ("length", "content_filter") else "tool_calls"
        ran: Row = {"finish": kept, "run_finish": "stop", "raw_finish": word}
        yield whole(f"call {title}", calls, OSLO, **said, **ran)
        yield text(f"raw call {title}", f"Ok.{SECTION}", OSLO, content="Ok.", **said, **ran)
        if kept == "tool_calls":
            yield text(f"nothing {title}", "", next="retry_once", **said)
            yield text(f"blank {title}", " \n", next="retry_once", **said)


def finish_cases() -> Iterator[Case]:
    send = partial(deltas, "finish")
    calls = [structured("get_weather", OSLO_JSON)]
    yield raw("finish", "filter alone", "", finish_reason="content_filter", run_finish="content_filter")
    yield raw("finish", "none told, text", "Cold.", finish_reason=None, content="Cold.", finish="stop")
    yield reply("finish", "none told, call", calls, OSLO, finish_reason=None, finish="tool_calls")
    hi = {"content": "Hi"}
    call = [HEAD, piece(0, arguments=OSLO_JSON)]
    yield send("done alone, text", [hi], ending=(), content="Hi", run_finish="stop")
    yield send("done alone, call", call, OSLO, ending=())
    empty: Row = {"role": "assistant", "content": None}
    messages: dict[str, Row] = {"null": empty, "null, no calls": {**empty, "tool_calls": []}, "absent": {}}
    for title, message in messages.items():
        given: Row = {"message": message, "tools": BOTH}
        yield case("finish", f"content {title}", given, (), {"next": "retry_once"})
    yield send("no choice at all, but done", [{"choices": []}], ending=(), next="retry_once")
    yield send("not done, text", [hi], done=False, content="Hi")
    yield send("not done, call", call, OSLO, done=False)
    neither: Row = {"ending": (), "done": False}
    error = {"class": "IncompleteStream", "retryable": True}
    yield send("neither, text", [hi], error={**error, "partial_text": "Hi"}, **neither)
    yield send("neither, whole call", call, error=error, **neither)
    yield send("neither, raw call", [{"content": f"Ok.{SECTION}"}], error=error, **neither)
    yield send("neither, nothing", [{"role": "assistant"}], error=error, **neither)
    unusable: Row = {"error": {"class": "UnusableReply", "requests": 2}}
    for word in ("stop", "tool_calls"):
        yield raw("finish", f"nothing twice {word}", "", finish_reason=word, **unusable)
    yield raw("finish", "reasoning only twice", "Hm.", **unusable, **THOUGHT)


# --- broken streams ------------------------------------------------------------------------------------

WOR = {"content": "Wor"}
ERROR_OBJECT = {"error": {"code": 502, "message": "provider_unavailable"}}
LLAMA_ERROR = 'event: error\ndata: {"error":{"code":500,"message":"broken","type":"server_error"}}\n\n'


def error_object_cases() -> Iterator[Case]:
    def broken(title: str, word: str, sent: Sequence[Any], *, retryable: bool = True, **more: Any) -> Case:
        shown = {"partial_text": "Wor"} if WOR in sent else {}
        error = {"class": word, "retryable": retryable, **shown, **more}
        return deltas("broken", title, sent, ending=(), error=error)

    def told_error(**fields: Any) -> list[Any]:
        return [WOR, {"error": fields}]

    provider = "ProviderError"
    with_choice = {**choice({"content": ""}, "error"), **ERROR_OBJECT}
    flat = {"object": "error", "message": "boom", "code": 500}
    yield broken("error object", provider, [WOR, ERROR_OBJECT], status=502)
    yield broken("error object with a choice", provider, [WOR, with_choice], status=502)
    yield broken("error as text", provider, [WOR, {"error": "boom"}], status=500)
    yield broken("flat error", provider, [WOR, flat], status=500)
    yield broken("error at once", provider, [ERROR_OBJECT], status=502)
    yield broken("error event", provider, [WOR, LLAMA_ERROR], status=500)
    whole = [HEAD, piece(0, arguments=OSLO_JSON)]
    yield broken("error behind a whole call", provider, [*whole, ERROR_OBJECT], status=502)
    yield broken("code as text", provider, told_error(code="503", message="not ready"), status=503)
    yield broken("code as a word", provider, told_error(code="server_error", message="x"), status=500)
    yield broken("too many requests", "RateLimited", told_error(code=429, message="slow down"))
    overloaded = told_error(code=429, type="engine_overloaded_error", message="overloaded")
    yield broken("overloaded", "EngineOverloaded", overloaded)
    no_money = told_error(code=429, type="exceeded_current_quota_error", message="recharge")
    yield broken("no money", "QuotaExhausted", no_money, retryable=False)
    yield broken("malformed request", "InvalidRequest", told_error(code=400, message="no"), retryable=False)
    yield broken("no json", "Protocol", [WOR, "data: {broken\n\n"])
    yield broken("json that is no object", "Protocol", [WOR, "data: [1]\n\n"])
    yield broken("reset", "ConnectionLost", [WOR, Reset()])
    yield broken("closed", "ConnectionLost", [WOR, Close()])
    yield broken("closed in a call", "ConnectionLost", [HEAD, piece(0, arguments=ONE), Close()])
    yield broken("closed behind a whole call", "ConnectionLost", [*whole, Close()])
    yield broken("closed behind a raw call", "ConnectionLost", [{"content": SECTION}, Close()])


GOOD = [choice({"content": "Cold."}), choice({}, "stop")]
GOOD_CALL = [choice(HEAD), choice(piece(0, arguments=OSLO_JSON)), choice({}, "tool_calls")]


def recovery_cases() -> Iterator[Case]:
    text, part = choice(WOR), [choice(HEAD), choice(piece(0, arguments=ONE))]
    closed = Close()
    raw_part = choice({"content": f"Wor{S}{C}functions.get_wea"})
    shown, unseen = ["text", "text_reset", "text", "done"], ["text", "done"]
    for title, first, events in (
        ("closed behind text", [text, closed], shown),
        ("closed before text", [closed], unseen),
        ("reset before text", [Reset()], unseen),
        ("error object behind text", [text, ERROR_OBJECT], shown),
        ("closed behind reasoning", [choice({"reasoning_content": "Hm."}), closed], unseen),
        ("closed in a call", [*part, closed], unseen),
        ("closed in a raw call", [raw_part, closed], shown),
        ("neither end nor done", [text, ": \n\n", closed], shown),
    ):
        given = {"attempts": [first, GOOD], "tools": BOTH}
        yield case("recovery", title, given, (), {"content": "Cold.", "requests": 2, "events": events})
    twice = ["text", "text_reset", "text", "text_reset", "text", "done"]
    given = {"attempts": [[text, closed], [text, ERROR_OBJECT], GOOD]}
    yield case("recovery", "two failures", given, (), {"content": "Cold.", "requests": 3, "events": twice})
    given = {"attempts": [[*part, closed], GOOD_CALL], "tools": BOTH}
    yield case("recovery", "a cut call runs once, when it is whole", given, (OSLO,), {"requests": 3})


# --- the form of the stream ----------------------------------------------------------------------------

FIRST = json.dumps(chunk({"content": "Grüße 🌍 "}), ensure_ascii=False)
LATER = json.dumps(chunk({"content": "あ"}), ensure_ascii=False)
LAST = json.dumps(chunk({}, finish_reason="stop"))
MIDDLE = FIRST.index('"choices"')
PLAIN = [f"data: {FIRST}", "", f"data: {LATER}", "", f"data: {LAST}", "", "data: [DONE]", ""]
FORMS = {
    "plain": PLAIN,
    "comments": [
        ":",
        ": keep-alive",
        "",
        PLAIN[0],
        ": inside",
        "",
        ": OPENROUTER PROCESSING",
        "",
        *PLAIN[2:],
    ],
    "crlf": [line + "\r" for line in PLAIN],
    "no space behind the colon": [line.replace("data: ", "data:") for line in PLAIN],
    "event, id and retry": ["retry: 100", "", "event: message", "id: 1", *PLAIN[:2], "event: x", *PLAIN[2:]],
    "data in several lines": [f"data: {FIRST[:MIDDLE]}", f"data: {FIRST[MIDDLE:]}", "", *PLAIN[2:]],
    "many blank lines": ["", "", *PLAIN[:2], "", "", *PLAIN[2:], "", ""],
    "byte order mark": ["\N{ZERO WIDTH NO-BREAK SPACE}" + PLAIN[0], *PLAIN[1:]],
    "no blank line at the end": PLAIN[:-1],
    "no done": PLAIN[:6],
    "neither blank line nor done": PLAIN[:5],
    "words behind done": [*PLAIN, "data: not json", ""],
    "data without a colon": [*PLAIN[:2], "data", "", *PLAIN[2:]],
    "empty data": [*PLAIN[:2], "data:", "", *PLAIN[2:]],
    "an unknown field": ["foo: bar", "x", *PLAIN],
}


def form_cases() -> Iterator[Case]:
    for title, lines in FORMS.items():
        yield case("form", title, {"sse_lines": lines}, (), {"content": "Grüße 🌍 あ"})
    raw_call = json.dumps(chunk({"content": f"Ok.{SECTION}"}))
    lines = [f"data: {raw_call}", "", f"data: {LAST}", "", "data: [DONE]", ""]
    yield case("form", "a raw call", {"sse_lines": lines, "tools": BOTH}, (OSLO,), {"content": "Ok."})


# --- the tests -----------------------------------------------------------------------------------------

CASES = [
    *name_cases(),
    *combination_cases(),
    *structure_cases(),
    *string_cases(),
    *repeated_cases(),
    *thought_field_cases(),
    *thought_tag_cases(),
    *bare_cases(),
    *refused_cases(),
    *cut_text_cases(),
    *cut_reply_cases(),
    *argument_form_cases(),
    *argument_wrapping_cases(),
    *argument_value_cases(),
    *index_cases(),
    *identity_cases(),
    *call_shape_cases(),
    *text_shape_cases(),
    *usage_cases(),
    *word_cases(),
    *finish_cases(),
    *error_object_cases(),
    *recovery_cases(),
    *form_cases(),
]
WAYS = {
    "asyncio": frozenset({"whole", "cut-1", "run", "as-sent", "bytes-3", "bytes-1"}),
    "trio": frozenset({"cut-7", "joined", "bytes-7", "bytes-all"}),
}
"""Every variant goes these ways, on one loop or the other: the field cases go all ways on both."""


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def portal(backend: str) -> Iterator[BlockingPortal]:
    with start_blocking_portal(backend) as portal:
        yield portal


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage()


@pytest.fixture(scope="module")
def server(stage: Stage) -> Iterator[KimiServer]:
    with KimiServer(replies=stage) as server:
        yield server


@pytest.fixture(scope="module")
def client(portal: BlockingPortal, server: KimiServer) -> Iterator[openai.AsyncOpenAI]:
    client = openai.AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0)
    yield client
    portal.call(client.close)


@pytest.mark.parametrize("variant", CASES, ids=lambda variant: variant.id)
def test_a_variant_gives_what_the_policies_say_however_it_is_sent(
    variant: Case, backend: str, portal: BlockingPortal, client: openai.AsyncOpenAI, stage: Stage
) -> None:
    async def all_ways() -> list[str]:
        return [
            f"{way.name}: {difference}"
            for way in ways_of(variant)
            if way.name in WAYS[backend]
            for difference in differences(variant, way, await carry_out(variant, way, client, stage))
        ]

    found = portal.call(all_ways)

    assert not found, "\n".join(["", *found])


def test_the_variants_have_distinct_ids() -> None:
    seen = [variant.id for variant in CASES]

    assert sorted({one for one in seen if seen.count(one) > 1}) == []


FAILURES: dict[str, Reply] = {
    "500": error_reply(500, "a hiccup", type="server_error"),
    "503": error_reply(503, "loading", type="unavailable_error"),
    "429": error_reply(429, "slow down", type="rate_limit_reached_error"),
    "html 502": Reply(status=502, headers={"content-type": "text/html"}, body="<html>bad gateway</html>"),
    "html 200": Reply(headers={"content-type": "text/html"}, body="<html>welcome</html>"),
    "reset before the answer": Reply(before=(Reset(),)),
    "closed behind the headers": sse_reply([Close()]),
    "empty stream": sse_reply([]),
    "empty body": Reply(headers={"content-type": "application/json"}, body=b""),
}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_that_may_pass_is_tried_again_and_then_forgotten(
    failure: str, streamed: bool, portal: BlockingPortal, client: openai.AsyncOpenAI, stage: Stage
) -> None:
    agent = KimiAgent("kimi-k2", client=client, limits=RunLimits(max_retries=RETRIES, max_retry_delay_s=0))
    stage.play([FAILURES[failure], stream_of(GOOD)])

    async def ask() -> tuple[str, list[str]]:
        with anyio.fail_after(20):
            if not streamed:
                return (await agent.run(PROMPT)).text, []
            async with agent.stream(PROMPT) as run:
                seen = [str(each.type) async for each in run]
            return run.result.text, seen

    text, seen = portal.call(ask)

    assert text == "Cold."
    assert len(stage.requests) == 2
    assert not streamed or seen == ["step_started", "retry_scheduled", "text_delta", "step_finished"]


@pytest.mark.parametrize(
    "first", [{"content": "It is"}, HEAD, {"reasoning_content": "Hm."}], ids=["text", "call", "thought"]
)
def test_leaving_a_stream_in_the_middle_ends_the_request_and_leaves_nothing_behind(
    first: Row, portal: BlockingPortal, client: openai.AsyncOpenAI
) -> None:
    pieces = [event(chunk(first)), *[event(chunk({"content": " cold"}))] * 2000]

    async def leave() -> None:
        with anyio.fail_after(20), KimiServer(replies=sse_reply(pieces), chunk_delay_s=0.001) as server:
            agent = KimiAgent("kimi-k2", client=client.with_options(base_url=server.base_url))
            async with agent.stream(PROMPT) as run:
                async for each in run:
                    if each.type != "step_started":
                        break
            await server.wait_for_async(lambda: server.requests_open == 0)
            assert server.disconnects == 1

    portal.call(leave)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_character_sent_in_two_halves_leaves_text_that_can_be_written_to_a_file(
    streamed: bool, portal: BlockingPortal, client: openai.AsyncOpenAI, stage: Stage
) -> None:
    halves = [
        f"data: {json.dumps(chunk({'content': text}))}\n\n" for text in ("It is ", "\ud83c", "\udf0d", ".")
    ]
    stage.play([stream_of([*halves, chunk({}, finish_reason="stop")])])
    agent = KimiAgent("kimi-k2", client=client)

    async def ask() -> list[str]:
        with anyio.fail_after(20):
            if not streamed:
                return [(await agent.run(PROMPT)).text]
            async with agent.stream(PROMPT) as run:
                return [*[text async for text in run.text_deltas()], run.result.text]

    texts = portal.call(ask)

    assert [text.encode().decode() for text in texts] == texts
    assert texts[-1].startswith("It is ")
    assert texts[-1].endswith(".")
