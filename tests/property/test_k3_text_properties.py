from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from hypothesis import assume, given
from hypothesis import strategies as st

from kimi_agent._core.k3_text import K3TextParser
from kimi_agent._core.render import render_prompt
from kimi_agent._core.text_parser import EitherTextParser
from kimi_agent.dialects.k2_format import K2Marker
from kimi_agent.dialects.k3_format import LONGEST_K3_TAG, K3Marker, K3Tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_agent._core.text_parser import TextParser
    from kimi_agent._core.transcript import Output, ParsedText

MARKERS = (*map(str, K3Marker), *(str(marker) for marker in K2Marker if marker.startswith("<|")))
LONGEST = max(map(len, MARKERS))

WHOLE_TAGS = st.sampled_from(
    [
        *(f"<|open|>{tag}<|sep|>" for tag in K3Tag),
        *(f"<|close|>{tag}<|sep|>" for tag in K3Tag),
        '<|open|>call tool="f" index="1"<|sep|>',
        '<|open|>aside x="1"<|sep|>',
        "<|sep|>",
        "<|end_of_msg|>",
        "<|im_end|>",
        "<|tool_calls_section_begin|>",
    ]
)
PIECES = st.one_of(
    WHOLE_TAGS,
    st.sampled_from(MARKERS),
    st.sampled_from(["<", "<|", "<|op", "en|>", "|>", "im_", "end|>", '"', "{", "}", '{"a": 1}', " ", "\n"]),
    st.sampled_from(
        ['call tool="f"', 'argument key="a" type="number"', "argument", "think", "call", "tools"]
    ),
    st.sampled_from(["word ", "1", "x" * (LONGEST_K3_TAG + 1)]),
    st.text(max_size=5),
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)
STARTS: st.SearchStrategy[Any] = st.sampled_from(["answer", "reasoning"])


def read(
    parser: TextParser, pieces: Sequence[str], *, thought_closed: bool
) -> tuple[list[Output], ParsedText]:
    outputs: list[Output] = []
    for piece in pieces:
        outputs += parser.feed(piece)
    rest, parsed = parser.close(thought_closed=thought_closed)
    outputs += rest
    whole: list[Output] = []
    for kind, text in outputs:
        if whole and whole[-1][0] == kind:
            whole[-1] = (kind, whole[-1][1] + text)
        else:
            whole.append((kind, text))
    return whole, parsed


def cut(text: str, places: Sequence[int]) -> list[str]:
    ends = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[begin:end] for begin, end in itertools.pairwise(ends)]


@given(text=TEXTS, places=st.lists(st.integers(0, 10_000), max_size=40), start=STARTS, closed=st.booleans())
def test_cutting_the_text_elsewhere_changes_nothing(
    text: str, places: list[int], start: Any, closed: bool
) -> None:
    expected = read(K3TextParser(start=start), [text], thought_closed=closed)

    assert read(K3TextParser(start=start), cut(text, places), thought_closed=closed) == expected
    assert read(K3TextParser(start=start), list(text), thought_closed=closed) == expected


@given(text=TEXTS, places=st.lists(st.integers(0, 10_000), max_size=40), start=STARTS, closed=st.booleans())
def test_a_parser_that_has_to_find_the_format_out_is_cut_proof_too(
    text: str, places: list[int], start: Any, closed: bool
) -> None:
    expected = read(EitherTextParser(start=start), [text], thought_closed=closed)

    assert read(EitherTextParser(start=start), cut(text, places), thought_closed=closed) == expected


@given(text=TEXTS, start=STARTS, closed=st.booleans())
def test_no_marker_is_ever_shown(text: str, start: Any, closed: bool) -> None:
    outputs, parsed = read(K3TextParser(start=start), list(text), thought_closed=closed)
    shown = [parsed.content, parsed.reasoning or "", *(shown for _, shown in outputs)]

    assert not [marker for marker in MARKERS for one in shown if marker in one]


@given(st.lists(st.one_of(WHOLE_TAGS, st.none()), max_size=40), STARTS)
def test_every_word_of_the_text_is_somewhere_in_the_result(pieces: list[str | None], start: Any) -> None:
    words = [f"w{place}." for place, piece in enumerate(pieces) if piece is None]
    text = "".join(f"w{place}." if piece is None else piece for place, piece in enumerate(pieces))
    # Two arguments of one name are one in JSON too.
    text = "".join(
        part if place == 0 else f'<|open|>argument key="k{place}"<|sep|>{part}'
        for place, part in enumerate(text.split("<|open|>argument<|sep|>"))
    )
    _, parsed = read(K3TextParser(start=start), [text], thought_closed=False)
    kept = parsed.content + (parsed.reasoning or "")
    kept += "".join(call.arguments for call in (*parsed.calls, *parsed.thought_calls))

    assert [word for word in words if word not in kept] == []


@given(st.text().filter(lambda text: "<|" not in text), STARTS)
def test_text_without_markers_comes_through_unchanged(text: str, start: Any) -> None:
    _, parsed = read(K3TextParser(start=start), list(text), thought_closed=False)

    assert (parsed.reasoning if start == "reasoning" else parsed.content) == text


@given(TEXTS)
def test_no_more_is_held_back_than_a_marker_and_a_tag(text: str) -> None:
    parser = K3TextParser()
    for character in text:
        parser.feed(character)

        assert len(parser._lexer.held) + parser._tag_length < LONGEST + LONGEST_K3_TAG


JSON_VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=6,
)
PLAIN = st.text().filter(lambda text: "<|" not in text)
# A name is what a server lets through; it would be text if the tag were longer than any name makes it.
NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs", "Z"]), min_size=1, max_size=20).filter(
    lambda text: "<|" not in text
)
KEYS = st.text(max_size=20).filter(lambda text: "<|" not in text)


@given(
    content=PLAIN,
    reasoning=PLAIN.filter(lambda text: not text or bool(text.strip())),
    calls=st.lists(st.tuples(NAMES, st.dictionaries(KEYS, JSON_VALUES, max_size=3)), max_size=3),
)
def test_a_rendered_reply_is_read_back_as_it_was(
    content: str, reasoning: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    assume("<|" not in reasoning[-1:] + content[:1])
    message: dict[str, Any] = {"role": "assistant", "content": content, "reasoning_content": reasoning}
    message["tool_calls"] = [{"function": {"name": name, "arguments": values}} for name, values in calls]
    stub = render_prompt([], generation="k3")
    reply = render_prompt([message], generation="k3", add_generation_prompt=False).removeprefix(
        stub.removesuffix("<|open|>think<|sep|>")
    )
    _, parsed = read(K3TextParser(), [reply], thought_closed=False)

    assert parsed.content == content
    assert parsed.reasoning == reasoning
    assert [(call.header, json.loads(call.arguments), call.closed) for call in parsed.calls] == [
        (name, values, True) for name, values in calls
    ]
