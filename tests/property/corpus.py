"""Texts a model may send: the field cases, every malformed shape we know of, and texts made at random."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from kimi_agent.dialects.k2_format import K2Marker
from kimi_agent.json_types import is_array, is_object
from kimi_agent.messages import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypothesis.strategies import SearchStrategy

FIELD_CASES = Path(__file__).parent.parent / "data" / "field-cases.jsonl"

TOOLS = {
    spec.name: spec
    for spec in (
        ToolSpec(
            name="get_weather",
            parameters={
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        ),
        ToolSpec(name="mcp__files__read", parameters={"type": "object", "properties": {"path": {}}}),
        ToolSpec(name="f", parameters={"type": "object"}),
    )
}

BEGIN, END = K2Marker.SECTION_BEGIN, K2Marker.SECTION_END
CALL, ARGUMENTS, CLOSE = K2Marker.CALL_BEGIN, K2Marker.ARGUMENTS_BEGIN, K2Marker.CALL_END
THINK, THOUGHT = K2Marker.THINK_BEGIN, K2Marker.THINK_END
STOP = K2Marker.MESSAGE_END


def call(header: str = "functions.get_weather:0", arguments: str = '{"city":"Oslo"}') -> str:
    """A call as the model should write it."""
    return f"{CALL}{header}{ARGUMENTS}{arguments}{CLOSE}"


def section(*calls: str) -> str:
    """A section of calls as the model should write it."""
    return f"{BEGIN}{''.join(calls)}{END}"


WHOLE = section(call())
TWO = section(call(), call("functions.get_weather:1", '{"city":"Rome"}'))

SHAPES: dict[str, str] = {
    "nothing": "",
    "white space": " \n\t ",
    "plain text": "It is sunny in Oslo.",
    "a lone bracket": "1 < 2",
    "a bracket at the end": "a <",
    "the start of a marker at the end": "a <|tool_calls_section",
    "almost a marker": "a <|tool_calls_section_begin |> b",
    "well formed": f"Let me see. {WHOLE}",
    "two calls": TWO,
    "text after": f"{WHOLE}Done.{STOP}",
    "text between sections": f"a{WHOLE}b{TWO}c",
    "no section": f"a{call()}{call()}b",
    "section never opened": f"a{call()}{END}b",
    "section never closed": f"a{BEGIN}{call()}",
    "singular section": f"{K2Marker.SINGULAR_SECTION_BEGIN}{call()}{K2Marker.SINGULAR_SECTION_END}",
    "spaces around markers": f"{BEGIN} {CALL} functions.f:0 {ARGUMENTS} {{}} {CLOSE} {END}",
    "newlines in arguments": section(call(arguments='{\n  "city": "Oslo"\n}')),
    "markers in a string": section(call(arguments=f'{{"city":"{CLOSE}{END}"}}')),
    "escaped quotes": section(call(arguments=f'{{"city":"a\\"{CLOSE}\\\\"}}')),
    "a string never closed": section(call(arguments='{"city":"Oslo'), call()),
    "many strings never closed": "".join(call(arguments='{"city":"') for _ in range(20)) + "end",
    "call never closed": f"{BEGIN}{CALL}functions.f:0{ARGUMENTS}{{}}{CALL}functions.f:1{ARGUMENTS}{{}}{END}",
    "arguments marker missing": f'{BEGIN}{CALL}functions.f:0{{"a":1}}{CLOSE}{END}',
    "call marker missing": f"{BEGIN}functions.f:0{ARGUMENTS}{{}}{CLOSE}{END}",
    "both markers missing": f'{BEGIN}functions.f:0{{"a":1}}{CLOSE}{END}',
    "arguments marker in an answer": f"See functions.f:0{ARGUMENTS}{{}}{CLOSE}",
    "arguments marker after prose": f"See below{ARGUMENTS}{{}}{CLOSE} more",
    "header only": f"{BEGIN}{CALL}functions.f:0{CLOSE}{END}",
    "empty call": f"{BEGIN}{CALL}{ARGUMENTS}{CLOSE}{END}",
    "empty section": f"a{BEGIN}{END}b",
    "prose in a section": f"{BEGIN}I will look it up. {call()} and so on {END}",
    "prose in a header": f"{CALL}this is how calls begin, I believe, in the format{CLOSE} b",
    "prose as a call": f"Write {CALL}the id{ARGUMENTS}the arguments{CLOSE} to call.",
    "a brace in prose": f"{BEGIN}a set {{1, 2}} {END}",
    "a long header": f"{CALL}{'x' * 600}{ARGUMENTS}{{}}{CLOSE}",
    "white space for a header": f"{CALL}{' ' * 600}{ARGUMENTS}{{}}{CLOSE}",
    "a long space before a header": f"{CALL}{' ' * 520}a b{ARGUMENTS}{{}}{CLOSE}",
    "cut in a section": f"a{BEGIN}",
    "cut in a header": f"a{BEGIN}{CALL}functions.get_wea",
    "cut in arguments": f'a{BEGIN}{CALL}functions.get_weather:0{ARGUMENTS}{{"city":"Os',
    "cut in a marker in arguments": f"{CALL}f:0{ARGUMENTS}{{}}<|tool_call_e",
    "answer behind whole arguments": f"{CALL}functions.f:0{ARGUMENTS}{{}} so it is",
    "stopped inside arguments": f"{CALL}functions.f:0{ARGUMENTS}{{}}{STOP}",
    "stray ends": f"a{END}{CLOSE}{THOUGHT}b{STOP}",
    "thought": f"{THINK}hm{THOUGHT}Oslo.",
    "thought without beginning": f"hm{THOUGHT}Oslo.",
    "thought without beginning, with a call": f"hm{call()}{THOUGHT}Oslo.",
    "thought never closed": f"{THINK}hm",
    "thought begun in an answer": f"Use {THINK} to think.",
    "call in a closed thought": f"{THINK}maybe {WHOLE} or not{THOUGHT}No.{TWO}",
    "call in an open thought": f"{THINK}maybe {WHOLE} and more",
    "call in an open thought, then another thought": f"{THINK}a{call()}b{THINK}c{THOUGHT}d",
    "two thoughts": f"{THINK}a{THOUGHT}b{THINK}c{THOUGHT}d",
    "nested thoughts": f"{THINK}a{THINK}b{THOUGHT}c{THOUGHT}d",
    "thought closed in a header": f"{THINK}a{CALL}f:0{THOUGHT}b",
    "thought closed in arguments": f"{THINK}a{CALL}f:0{ARGUMENTS}{{{THOUGHT}b",
    "a marker in a marker": f"<|im_{STOP}end|>",
    "a marker in a marker in a marker": f"<|im_<|im_{STOP}end|>end|>",
    "a thought in a marker": f"<|im_{THINK}a{THOUGHT}end|>",
    "a section in a marker": f"<|im_{WHOLE}end|>",
    "a call taken from the middle of a marker": f"<|im_functions.f:0{ARGUMENTS}{{}}{CLOSE}end|>",
    "a marker glued in arguments": f"{CALL}f:0{ARGUMENTS}{{<|im_{ARGUMENTS}end|>}}{CLOSE}",
    "a marker glued in a section": f"{BEGIN}<|im_{BEGIN}end|>",
    "a marker glued in a header": f"{CALL}<|im_{K2Marker.MIDDLE}end|>",
    "a marker glued from a given back call": f"{CALL}one two <|im_{ARGUMENTS}end|>{CLOSE}",
    "role headers": f"{K2Marker.USER}user{K2Marker.MIDDLE}hi{STOP}{K2Marker.ASSISTANT}assistant",
    "bare calls": 'Well functions.get_weather:0{"city":"Oslo"} functions.f:1{}',
    "every marker": "x".join(K2Marker),
    "every marker backwards": "x".join(reversed(K2Marker)),
    "a lone surrogate": f"\ud800{WHOLE}\udfff",
    "non-ASCII": section(call("functions.wëtter:0", '{"city":"Zürich ☀️"}')) + "ß",
}


def _texts_inside(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_array(value):
        for item in value:
            yield from _texts_inside(item)
    elif is_object(value):
        for entry in value.values():
            yield from _texts_inside(entry)


def _field_texts() -> dict[str, str]:
    """All texts of the field cases that hold more than words; a text that came in pieces is here joined."""
    texts: dict[str, str] = {}
    for line in FIELD_CASES.read_text(encoding="utf-8").splitlines():
        case: dict[str, Any] = json.loads(line)
        pieces = list(_texts_inside(case["input"]))
        whole = "".join(pieces)
        texts.update({text: case["id"] for text in (*pieces, whole) if "<" in text or "functions" in text})
    return {f"{case_id}.{place}": text for place, (text, case_id) in enumerate(texts.items())}


TEXTS: dict[str, str] = SHAPES | _field_texts()

_FRAGMENTS = (
    *("functions.get_weather:0", "functions.f:1", "functions.", "functions:", ":0", "call_12ab", "f", "x y"),
    *('{"city":"Oslo"}', "{}", "{", "}", '"', "\\", '\\"', '{"city":"', '"}', "[1,", "null", "NaN"),
    *(" ", "\n", "\t", "<", ">", "|", "<|", "|>", "a", "The answer is 4. ", "ß☀\ud83d", "\x00"),
)


@st.composite
def _broken_markers(draw: st.DrawFn) -> str:
    """A piece of a marker, or one with something in its middle."""
    marker = str(draw(st.sampled_from(K2Marker)))
    place = draw(st.integers(1, len(marker) - 1))
    inside = draw(st.sampled_from(("", "", " ", "<", *K2Marker)))
    half = draw(st.sampled_from(("both", "begin", "end")))
    return (marker[:place] if half != "end" else "") + inside + (marker[place:] if half != "begin" else "")


def _markers() -> SearchStrategy[str]:
    return st.sampled_from(K2Marker).map(str)


def glued_texts() -> SearchStrategy[str]:
    """Markers, pieces of markers, JSON, ids and letters in any order."""
    fragments = st.one_of(
        _markers(),
        st.sampled_from(tuple(map(str, (CALL, ARGUMENTS, CLOSE, THINK, THOUGHT)))),
        _broken_markers(),
        st.sampled_from(_FRAGMENTS),
        st.text(max_size=4),
    )
    return st.lists(fragments, max_size=14).map("".join)


@st.composite
def mutated_texts(draw: st.DrawFn) -> str:
    """A text of the corpus with a stretch taken out, doubled, or replaced by a fragment."""
    text = draw(st.sampled_from(tuple(SHAPES.values())))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 40)))
        put = draw(st.one_of(st.just(""), st.just(text[start:end] * 2), _markers(), _broken_markers()))
        text = text[:start] + put + text[end:]
    return text


def any_texts() -> SearchStrategy[str]:
    """Any text at all, the likely ones more often."""
    return st.one_of(glued_texts(), mutated_texts(), st.sampled_from(tuple(TEXTS.values())), st.text())


@st.composite
def cuts(draw: st.DrawFn, text: str) -> list[str]:
    """`text` in pieces; some of them may be empty."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
