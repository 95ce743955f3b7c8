"""Writes the `*.expected.json` files beside the recordings: `python -m tests.recordings.derive_expected`.

Deliberately apart from the library: it imports none of it, works on the whole text of a reply
with plain string search, and knows nothing of streams beyond joining them. The rules are the documented
policies, as a reader would apply them by hand; what is odd about an exchange is said in `NOTES`.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any, cast

from tests.recordings import HERE, Recording, load

SECTION_BEGIN, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL_BEGIN, CALL_ARGUMENT, CALL_END = (
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
)
MARKERS = re.compile(
    "|".join(map(re.escape, (SECTION_BEGIN, SECTION_END, CALL_BEGIN, CALL_ARGUMENT, CALL_END)))
)
CALL_STOPS = re.compile("|".join(map(re.escape, (SECTION_END, CALL_END, CALL_BEGIN))))
# A call starts at its marker; where that is missing, at whatever follows the section marker.
CALL_START = re.compile(f"{re.escape(CALL_BEGIN)}|{re.escape(SECTION_BEGIN)}(?=\\s*[^\\s<])")
BARE_CALL = re.compile(r"functions\.(?P<name>[\w.\-/:]+):\d+\s*(?P<arguments>\{.*\})\s*$", re.DOTALL)
HEADER = re.compile(r"(?:functions[.:])?(?P<name>.*?)(?::\d+)?", re.DOTALL)

Json = dict[str, Any]

LOST = "the engine lost the call"
GRAMMAR = "the engine's grammar put a declared tool in place of the unknown one"
CUT_CALL = "the engine leaves a cut call out of whole replies"
CUT_HEADER = "the engine leaves out a call that was cut in its header"
NOT_A_THOUGHT = "the reasoning parser took the text of a model that does not think"

# (pattern, value of `next` it is about or None for any, what a reader should know)
NOTES: list[tuple[str, str | None, str]] = [
    ("*/two_choices*", "run_tools", "two choices came; a run goes on with the first"),
    ("*/echo_no_call_begin*", "retry_once", LOST),
    ("*/echo_no_index*", "retry_once", LOST),
    ("*/echo_no_section_begin*", "retry_once", f"{LOST}; only end markers are left"),
    ("*/echo_*_args*", "retry_once", "the engine dropped a call whose arguments were no JSON object"),
    ("vllm*/echo_text_then_empty_section*", "retry_once", "the engine took the text for reasoning"),
    ("*/echo_*_empty_section*", "retry_once", "the model said nothing"),
    ("*/echo_empty_section*", "retry_once", "the model said nothing"),
    ("llamacpp*/echo_mcp_name*", "run_tools", GRAMMAR),
    ("llamacpp*/echo_unknown_tool*", "run_tools", GRAMMAR),
    ("sglang*/none/tool_choice_named*", "final", "the engine forced a JSON list of calls that never came"),
    ("sglang*/none/tool_choice_required*", "final", "the engine forced a JSON list of calls that never came"),
    ("sglang*/many_calls_truncated", None, CUT_CALL),
    ("sglang*/tool_choice_named", "model_error", CUT_CALL),
    ("sglang*/no_preamble_escaped_args", "model_error", CUT_CALL),
    ("sglang*/parser/truncated_args", "final", CUT_CALL),
    ("sglang*/parser/cut_2[04]", "final", CUT_CALL),
    ("*/parser/truncated_name*", "final", CUT_HEADER),
    ("*/parser/cut_1[26]*", "final", CUT_HEADER),
    ("*/string_schema_for_number*", "tool_error", "a number where the schema asks for a string"),
    ("vllm*/parser-reasoning/*", "retry_once", NOT_A_THOUGHT),
    ("vllm*/parser-reasoning/*", "model_error", NOT_A_THOUGHT),
]


def main() -> None:
    """Write one file per engine and configuration."""
    for (engine, config), group in groupby(
        load(), key=lambda recording: (recording.engine, recording.config)
    ):
        entries = {recording.case: expectation(recording) for recording in group}
        lines = ",\n".join(
            f"{json.dumps(case)}: {json.dumps(entry, ensure_ascii=False)}" for case, entry in entries.items()
        )
        (HERE / engine / f"{config}.expected.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def expectation(recording: Recording) -> Json:
    """What a user must get for this exchange."""
    if recording.method == "GET":
        return {"kind": "other", "status": recording.status}
    failure = error_in(recording)
    if failure is not None:
        return {"kind": "error", **failure}
    entry = judge(recording, joined(recording))
    for pattern, following, note in NOTES:
        if fnmatchcase(recording.id, pattern) and following in {None, entry["next"]}:
            entry["note"] = note
            break
    return entry


# --- errors ----------------------------------------------------------------------------------------


def error_in(recording: Recording) -> Json | None:
    """The error to raise, by class name, or `None` for a reply."""
    if recording.status == 200:
        broken = [chunk["error"] for chunk in chunks(recording) if "error" in chunk]
        # An error that arrives inside a stream carries its own status.
        return (
            {"error": "TransportStatusError", "status": broken[0]["code"], "in_stream": True}
            if broken
            else None
        )
    answer = json.loads(recording.body)
    error = answer.get("error", answer)
    message = error if isinstance(error, str) else error["message"]
    found: Json = {"error": error_class(recording.status, message), "status": recording.status}
    if found["error"] == "ContextTooLongError":
        found |= context_numbers(message)
    return found


def error_class(status: int, message: str) -> str:
    """The class that tells the user who has to act."""
    by_status = {401: "AuthenticationError", 404: "ModelNotFoundError", 500: "TransportStatusError"}
    if status in by_status:
        return by_status[status]
    if "--tool-call-parser" in message:
        return "ToolsUnsupportedError"
    if "context" in message and "token" in message:
        return "ContextTooLongError"
    return "InvalidRequestError"


def context_numbers(message: str) -> Json:
    """What the model can take and what it was given, in tokens."""
    limit = re.search(r"context (?:length is |length \(|size \()(\d+)", message)
    given = re.search(r"at least (\d+) input|input \((\d+) tokens|request \((\d+) tokens", message)
    assert limit, message
    assert given, message
    return {"limit_tokens": int(limit[1]), "requested_tokens": int(next(filter(None, given.groups())))}


# --- joining what was received --------------------------------------------------------------------------


def chunks(recording: Recording) -> list[Json]:
    """The JSON objects of the answer: the events of a stream, or the one reply."""
    if not recording.is_stream:
        return [json.loads(recording.body)]
    data = (
        line.removeprefix("data:").strip() for line in recording.body.splitlines() if line.startswith("data:")
    )
    return [json.loads(text) for text in data if text != "[DONE]"]


def joined(recording: Recording) -> Json:
    """Content, reasoning, calls, finish reason and usage of the first choice."""
    reply: Json = {"content": "", "reasoning": "", "calls": {}, "finish_reason": None, "usage": None}
    for chunk in chunks(recording):
        reply["usage"] = chunk.get("usage") or reply["usage"]
        for choice in chunk["choices"]:
            if choice["index"] == 0:
                add(reply, choice)
    return reply


def add(reply: Json, choice: Json) -> None:
    """Append one choice of one chunk."""
    said = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
    reply["content"] += said.get("content") or ""
    reply["reasoning"] += said.get("reasoning") or said.get("reasoning_content") or ""
    for position, piece in enumerate(said.get("tool_calls") or []):
        call = reply["calls"].setdefault(piece.get("index", position), {"name": "", "arguments": ""})
        for key in call:
            call[key] += piece["function"].get(key) or ""
    reply["finish_reason"] = choice.get("finish_reason") or reply["finish_reason"]


# --- reading raw text -----------------------------------------------------------------------------------


def read_thoughts(content: str) -> tuple[str, str, bool]:
    """Split content into reasoning and the rest; the last value says whether the thought was closed."""
    before, opened, rest = content.partition("<think>")
    if opened:
        thought, closed, answer = rest.partition("</think>")
        if closed:
            return thought, before + answer, True
        start = MARKERS.search(rest)
        cut = start.start() if start else len(rest)
        return rest[:cut], before + rest[cut:], False
    thought, closed, answer = content.partition("</think>")
    # The model thought, and the engine knew of no opening marker.
    return (thought, answer, True) if closed else ("", content, True)


def read_calls(text: str) -> tuple[str, list[Json]]:
    """Split text into what is left for the user and the raw calls in it."""
    kept, calls, position = "", list[Json](), 0
    while start := CALL_START.search(text, position):
        kept += text[position : start.start()]
        call, position = read_call(text, start.end())
        calls.append(call)
    kept = MARKERS.sub("", kept + text[position:])
    if not calls and (bare := BARE_CALL.search(kept)):
        calls.append(
            {"header": f"functions.{bare['name']}:0", "arguments": bare["arguments"], "closed": True}
        )
        kept = kept[: bare.start()]
    return kept, calls


def read_call(text: str, begin: int) -> tuple[Json, int]:
    """One call whose header starts at `begin`, and where the text goes on."""
    stop = CALL_STOPS.search(text, begin)
    end = stop.start() if stop else len(text)
    argument = text.find(CALL_ARGUMENT, begin, end)
    brace = text.find("{", begin, end)
    if argument >= 0:
        header, first = text[begin:argument], argument + len(CALL_ARGUMENT)
    elif brace >= 0:
        header, first = text[begin:brace], brace
    else:
        return {"header": text[begin:end], "arguments": "", "closed": bool(stop)}, end
    first += len(text[first:]) - len(text[first:].lstrip())
    try:
        _, after = json.JSONDecoder(strict=False).raw_decode(text, first)
    except ValueError:
        return {"header": header, "arguments": text[first:end], "closed": bool(stop)}, end
    return {"header": header, "arguments": text[first:after], "closed": True}, after


# --- judging ------------------------------------------------------------------------------------------


def judge(recording: Recording, reply: Json) -> Json:
    """Apply the policies to a joined reply."""
    tools = declared_tools(recording)
    thought, answer, thought_closed = read_thoughts(reply["content"])
    text, raw = read_calls(answer)
    field, raw_in_reasoning = read_calls(reply["reasoning"])
    reasoning = "\n".join(part for part in (field.strip(), thought.strip()) if part)
    cut = was_cut(recording, reply)
    found = [judged(call["name"], call["arguments"], tools) for call in reply["calls"].values()]
    found += [judged_raw(call, tools) for call in raw_in_reasoning + raw]
    if found and cut:
        found[-1] = truncated_if_partial(found[-1], tools)
    dropped = 0
    if not tools or recording.request.get("tool_choice") == "none":
        dropped, found = len(found), []
    calls = [{key: call[key] for key in ("name", "arguments", "outcome")} for call in found]
    entry: Json = {
        "kind": "reply",
        "text": text.strip(),
        "reasoning": reasoning or None,
        "calls": calls,
        "finish_reason": reply["finish_reason"],
        "usage": usage_of(reply["usage"]),
        "next": what_follows({call["outcome"] for call in calls}, bool(text.strip() or dropped), cut=cut),
    }
    marked = MARKERS.search(reply["content"] + reply["reasoning"])
    if marked or raw or dropped or any(call["outcome"] == "truncated" for call in calls):
        entry["repaired"] = True
    elif thought:
        entry["repaired"] = None
    if dropped:
        entry["dropped_calls"] = dropped
    if not thought_closed:
        entry["reason"] = "unclosed <think> in content"
    return entry


def declared_tools(recording: Recording) -> dict[str, Json]:
    """JSON Schema by tool name, from the request or from the declaration in a raw prompt."""
    request: Json = recording.request or {}
    declared: list[Json] = request.get("tools") or []
    prompt = request.get("prompt", "")
    marker = "<|im_system|>tool_declare<|im_middle|>"
    if prompt.startswith(marker):
        declared = json.loads(prompt.removeprefix(marker).partition("<|im_end|>")[0])
    return {tool["function"]["name"]: tool["function"]["parameters"] for tool in declared}


def was_cut(recording: Recording, reply: Json) -> bool:
    """Whether the reply ended at the token limit, whatever word the server used."""
    limit = recording.request.get("max_tokens") or recording.request.get("max_completion_tokens")
    usage: Json = reply["usage"] or {}
    used = usage.get("completion_tokens")
    return reply["finish_reason"] == "length" or bool(limit and used and used >= limit)


def judged(name: str, arguments: str, tools: dict[str, Json]) -> Json:
    """A call with a name of its own."""
    value, whole = decoded(arguments)
    if name not in tools:
        return {"name": name, "arguments": value, "outcome": "unknown_tool", "whole": bool(value)}
    outcome = "run" if whole and fits(value, tools[name]) else "invalid_arguments"
    return {"name": name, "arguments": value if whole else arguments, "outcome": outcome, "whole": whole}


def judged_raw(call: Json, tools: dict[str, Json]) -> Json:
    """A call whose name has to be found in its header."""
    header = call["header"].strip()
    match = HEADER.fullmatch(header)
    assert match
    name = header if header in tools else match["name"]
    value, whole = decoded(call["arguments"])
    named = name in tools or header.startswith("functions.")
    if not named and whole:
        fitting = [
            tool
            for tool, schema in tools.items()
            if fits(value, schema) and value.keys() <= schema["properties"].keys()
        ]
        name = fitting[0] if len(fitting) == 1 else name
    found = judged(name, call["arguments"], tools)
    found["whole"] = call["closed"] and found["whole"]
    return found


def truncated_if_partial(call: Json, tools: dict[str, Json]) -> Json:
    """The last call of a reply that was cut: never run unless it is whole."""
    missing = call["arguments"] == {} and tools.get(call["name"], {}).get("required")
    if call["whole"] and not missing:
        return call
    name = call["name"] if call["name"] in tools else None
    return {"name": name, "arguments": None, "outcome": "truncated", "whole": False}


def decoded(arguments: str) -> tuple[Json, bool]:
    """The JSON object that an arguments text holds, and whether it holds one."""
    if not arguments.strip():
        return {}, True
    try:
        value = json.loads(arguments, strict=False)
    except ValueError:
        return {}, False
    if value is None:
        return {}, True
    return (cast("Json", value), True) if isinstance(value, dict) else ({}, False)


TYPES: dict[str, type | tuple[type, ...]] = {"string": str, "number": (int, float)}


def fits(value: Json, schema: Json) -> bool:
    """Whether the arguments are valid (the recorded tools need no more of JSON Schema)."""
    properties = schema.get("properties", {})
    typed = all(
        isinstance(value[name], TYPES[properties[name]["type"]]) for name in value.keys() & properties.keys()
    )
    return typed and set(schema.get("required", [])) <= value.keys()


def usage_of(usage: Json | None) -> Json | None:
    """Token counts under their names in the API; `None` for a count the server did not give."""
    if usage is None:
        return None
    details: Json = usage.get("completion_tokens_details") or {}
    prompt_details: Json = usage.get("prompt_tokens_details") or {}
    return {
        "input_tokens": usage["prompt_tokens"],
        "output_tokens": usage["completion_tokens"],
        "cached_tokens": prompt_details.get("cached_tokens"),
        "reasoning_tokens": details.get("reasoning_tokens", usage.get("reasoning_tokens")),
    }


def what_follows(outcomes: set[str], has_text: bool, *, cut: bool) -> str:
    """What the loop does next."""
    if "run" in outcomes:
        return "run_tools"
    if outcomes - {"truncated"}:
        return "tool_error"
    if outcomes:
        return "truncated"
    if has_text:
        return "final"
    return "model_error" if cut else "retry_once"


if __name__ == "__main__":
    main()
