from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent._core.k2_text import K2TextParser
from kimi_agent._core.k3_text import K3TextParser
from kimi_agent._core.text_parser import EitherTextParser, text_parser
from kimi_agent._core.transcript import ParsedText, RawCall

if TYPE_CHECKING:
    from kimi_agent._core.text_parser import TextParser
    from kimi_agent._core.transcript import Output

K2_CALL = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
    '{"a": 1}<|tool_call_end|><|tool_calls_section_end|>'
)
K3_CALL = (
    '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="a" type="number"<|sep|>'
    "1<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
)


def read(parser: TextParser, *pieces: str, thought_closed: bool = False) -> tuple[list[Output], ParsedText]:
    outputs = [output for piece in pieces for output in parser.feed(piece)]
    rest, parsed = parser.close(thought_closed=thought_closed)
    return outputs + list(rest), parsed


def joined(outputs: list[Output]) -> list[Output]:
    """Outputs with neighbours of one kind as one."""
    whole: list[Output] = []
    for kind, text in outputs:
        if whole and whole[-1][0] == kind:
            whole[-1] = (kind, whole[-1][1] + text)
        else:
            whole.append((kind, text))
    return whole


@pytest.mark.parametrize(
    ("generation", "kind"),
    [
        ("k2", K2TextParser),
        ("k2-thinking", K2TextParser),
        ("k2.7", K2TextParser),
        ("k3", K3TextParser),
        ("k3.1", K3TextParser),
        (None, EitherTextParser),
        ("other", EitherTextParser),
    ],
)
def test_a_generation_has_the_parser_of_its_family(generation: str | None, kind: type[Any]) -> None:
    assert type(text_parser(generation)) is kind


@pytest.mark.parametrize(("text", "header"), [(K2_CALL, "functions.f:0"), (K3_CALL, "f")])
def test_the_first_marker_tells_the_format_of_an_unknown_generation(text: str, header: str) -> None:
    whole = read(text_parser(None), f"Ok.{text}")[1]

    assert whole == ParsedText(
        content="Ok.", calls=(RawCall(header=header, arguments='{"a": 1}', closed=True),)
    )


@pytest.mark.parametrize(
    "text", [K2_CALL, K3_CALL, "Hm.</think>x", "Hm.<|close|>think<|sep|>x", "<|im_<|im_end|>x"]
)
@pytest.mark.parametrize("start", ["answer", "reasoning"])
def test_what_was_shown_before_the_first_marker_is_not_shown_again(text: str, start: Any) -> None:
    text = f"before {text}"
    known = (K3TextParser if "<|close|>" in text else K2TextParser)(start=start)
    expected_outputs, expected = read(known, text)

    for pieces in ((text,), tuple(text), ("before ", "", text.removeprefix("before "))):
        outputs, whole = read(EitherTextParser(start=start), *pieces)
        assert whole == expected
        assert joined(outputs) == joined(expected_outputs)


def test_text_without_markers_is_shown_as_it_comes() -> None:
    parser = EitherTextParser()

    assert parser.feed("a <|") == [("text", "a ")]
    assert parser.feed("b <|im_") == [("text", "<|b ")]
    assert parser.close() == ([("text", "<|im_")], ParsedText(content="a <|b <|im_"))


def test_a_thought_without_markers_can_be_closed_from_outside() -> None:
    parser = EitherTextParser(start="reasoning")

    assert read(parser, "Hm", thought_closed=True) == (
        [("reasoning", "Hm")],
        ParsedText(reasoning="Hm"),
    )


def test_pieces_after_the_decision_go_to_the_parser_of_the_format() -> None:
    outputs, whole = read(EitherTextParser(), "a", "<|open|>resp", "onse<|sep|>b", thought_closed=True)

    assert joined(outputs) == [("text", "ab")]
    assert whole == ParsedText(content="ab")
