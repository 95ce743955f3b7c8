"""K2's text format: every form a reply takes, and what becomes of it."""

from __future__ import annotations

import pytest

from kimi_agent._core.k2_text import K2TextParser
from kimi_agent._core.transcript import ParsedText, RawCall
from kimi_agent.dialects.k2_format import LONGEST_K2_MARKER, K2Marker
from tests.property.corpus import ARGUMENTS, BEGIN, CALL, CLOSE, END, STOP, THINK, THOUGHT, call, section
from tests.property.parsing import Start, read

OSLO = '{"city":"Oslo"}'


def parsed(text: str, start: Start = "answer") -> ParsedText:
    return read([text], start=start).parsed


def headers(text: str, start: Start = "answer") -> list[str]:
    return [each.header for each in parsed(text, start).calls]


def test_text_without_markers_is_the_answer_and_shown_at_once() -> None:
    parser = K2TextParser()

    assert parser.feed("It is ") == [("text", "It is ")]
    assert parser.feed("") == []
    assert parser.feed("sunny.") == [("text", "sunny.")]
    outputs, whole = parser.close()
    assert outputs == []
    assert whole == ParsedText(content="It is sunny.")


def test_a_section_of_calls_is_taken_out_of_the_answer() -> None:
    seen = read([f"I look. {section(call(), call('functions.get_weather:1', '{}'))}{STOP}"])

    assert seen.shown == (("text", "I look. "),)
    assert seen.parsed.calls == (
        RawCall(header="functions.get_weather:0", arguments=OSLO, closed=True),
        RawCall(header="functions.get_weather:1", arguments="{}", closed=True),
    )


def test_text_after_a_section_belongs_to_the_answer() -> None:
    assert parsed(f"a {section(call())}b").content == "a b"


@pytest.mark.parametrize(
    "text",
    [
        f"{BEGIN}{call()}{END}",
        call(),
        f"{BEGIN}{call()}",
        f"{call()}{END}",
        f"{K2Marker.SINGULAR_SECTION_BEGIN}{call()}{K2Marker.SINGULAR_SECTION_END}",
        f"{BEGIN}functions.get_weather:0{ARGUMENTS}{OSLO}{CLOSE}{END}",
        f"{BEGIN}functions.get_weather:0{OSLO}{CLOSE}{END}",
        f"{CALL}functions.get_weather:0{OSLO}{CLOSE}",
        f"functions.get_weather:0{ARGUMENTS}{OSLO}{CLOSE}",
        f"{BEGIN} {CALL} functions.get_weather:0 {ARGUMENTS}{OSLO}{CLOSE} {END} ",
        f"{BEGIN}{CALL}functions.get_weather:0{ARGUMENTS}{OSLO}{CALL}{CLOSE}",
        f"{BEGIN}{CALL}functions.get_weather:0{ARGUMENTS}{OSLO}{END}",
        f"{BEGIN}{CALL}functions.get_weather:0{ARGUMENTS}{OSLO}{BEGIN}",
        f"{BEGIN}{CALL}functions.get_weather:0{ARGUMENTS}{OSLO}{STOP}",
        f"{THINK}hm{CALL}functions.get_weather:0{ARGUMENTS}{OSLO}{CLOSE}",
        f"{THINK}hm{section(call())}",
        f"{THINK}hm{THOUGHT}{section(call())}",
    ],
)
def test_a_call_is_found_whichever_markers_are_missing(text: str) -> None:
    found = parsed(text)

    assert [(one.header, one.arguments, one.closed) for one in found.calls] == [
        ("functions.get_weather:0", OSLO, True)
    ]
    assert found.content.strip() == ""


def test_a_call_at_the_end_of_the_text_is_not_closed() -> None:
    assert parsed(f"{CALL}functions.f:0{ARGUMENTS}{{}}").calls == (
        RawCall(header="functions.f:0", arguments="{}", closed=False),
    )
    assert parsed(f"{CALL}functions.f:0{ARGUMENTS}{{").calls == (
        RawCall(header="functions.f:0", arguments="{", closed=False),
    )


def test_a_call_closed_before_its_arguments_has_none() -> None:
    assert parsed(f"{CALL}functions.f:0{CLOSE}").calls == (
        RawCall(header="functions.f:0", arguments="", closed=True),
    )


def test_a_call_cut_in_its_header_is_not_closed() -> None:
    assert [one.closed for one in parsed(f"{CALL}functions.f").calls] == [False]
    assert [one.closed for one in parsed(f"{CALL}functions.f{STOP}").calls] == [False]


def test_calls_may_follow_each_other_without_the_markers_between_them() -> None:
    found = parsed(f'{CALL}functions.f:0{ARGUMENTS}{{"a":1}} functions.f:1{ARGUMENTS}{{"b":2}}{CLOSE}')

    assert [(one.header, one.arguments.strip(), one.closed) for one in found.calls] == [
        ("functions.f:0", '{"a":1}', True),
        ("functions.f:1", '{"b":2}', True),
    ]


def test_calls_may_follow_each_other_without_any_marker() -> None:
    found = parsed(f'{CALL}functions.f:0{ARGUMENTS}{{"a":1}}functions.f:1{{"b":2}} functions.f:2 {{{CLOSE}')

    assert [(one.header, one.arguments) for one in found.calls] == [
        ("functions.f:0", '{"a":1}'),
        ("functions.f:1", '{"b":2}'),
        ("functions.f:2", "{"),
    ]


def test_text_behind_the_arguments_of_a_closed_call_stays_with_them() -> None:
    found = parsed(f"{CALL}functions.f:0{ARGUMENTS}{{}} more{CLOSE}")

    assert [one.arguments for one in found.calls] == ["{} more"]


def test_a_marker_that_means_nothing_in_arguments_leaves_a_space() -> None:
    found = parsed(f'{CALL}functions.f:0{ARGUMENTS}{{"a":{ARGUMENTS}1}}{CLOSE}')

    assert [one.arguments for one in found.calls] == ['{"a": 1}']


def test_text_behind_whole_arguments_of_an_unclosed_call_is_answer() -> None:
    found = parsed(f"{CALL}functions.f:0{ARGUMENTS}{{}} and so on")

    assert found.calls == (RawCall(header="functions.f:0", arguments="{}", closed=False),)
    assert found.content == " and so on"


@pytest.mark.parametrize("marker", [CLOSE, END, CALL, THOUGHT, STOP])
def test_a_marker_inside_a_string_of_the_arguments_is_text(marker: K2Marker) -> None:
    arguments = f'{{"city":"a \\" {marker} b"}}'

    assert parsed(section(call(arguments=arguments))).calls == (
        RawCall(header="functions.get_weather:0", arguments=arguments, closed=True),
    )


def test_a_string_that_is_never_closed_hides_no_structure() -> None:
    found = parsed(section(call("functions.f:0", '{"a":"x'), call("functions.f:1", "{}")))

    assert [(one.header, one.arguments) for one in found.calls] == [
        ("functions.f:0", '{"a":"x'),
        ("functions.f:1", "{}"),
    ]


def test_after_many_strings_that_are_never_closed_strings_hide_nothing() -> None:
    count = 40
    found = parsed("".join(call(f"functions.f:{each}", '{"a":"x') for each in range(count)))

    assert len(found.calls) == count


def test_a_section_inside_a_string_that_is_never_closed_is_read_at_the_end() -> None:
    found = parsed(f'{CALL}functions.f:0{ARGUMENTS}{{"a":"{CLOSE}{CALL}functions.f:1{ARGUMENTS}{{}}{CLOSE}')

    assert [one.header for one in found.calls] == ["functions.f:0", "functions.f:1"]


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (f"{BEGIN}I look it up.{END}", "I look it up."),
        (f"{BEGIN}I look it up. {call()} then", "I look it up.  then"),
        (f"{BEGIN}a set {{1}}{END}", "a set {1}"),
        (f"{BEGIN}set{{1}}{END}", "set{1}"),
        (f"{BEGIN}word{END}", "word"),
        (f"{BEGIN}word{CLOSE}", "word"),
        (f"{BEGIN}word", "word"),
        (f"{CALL}one two{CLOSE}", "one two"),
        (f"{CALL}one two", "one two"),
        (f"{CALL}{'word ' * 20}", "word " * 20),
        (f"{CALL}{'x' * 600}", "x" * 600),
        (f"Write {CALL}the id{ARGUMENTS}the arguments{CLOSE}.", "Write the id the arguments."),
        (f"See{ARGUMENTS}{{}}{CLOSE}", "See{}"),
        (f"See functions.{ARGUMENTS}{{}}{CLOSE}", "See functions.{}"),
        (f"{CALL}{CLOSE}{CALL} {STOP}", ""),
    ],
)
def test_prose_between_markers_is_answer(text: str, content: str) -> None:
    found = parsed(text)

    assert found.content == content
    assert all(one.header.startswith("functions.") for one in found.calls)


def test_an_id_just_before_an_arguments_marker_is_taken_from_the_answer() -> None:
    found = parsed(f"Well functions.f:0{ARGUMENTS}{{}}{CLOSE} so")

    assert found.content == "Well  so"
    assert [one.header for one in found.calls] == ["functions.f:0"]


def test_stray_markers_vanish() -> None:
    assert parsed(f"a{END}b{CLOSE}c{STOP}d{K2Marker.MIDDLE}e").content == "abcde"


@pytest.mark.parametrize("inner", [STOP, END, K2Marker.MEDIA_PAD, section(call()), f"{THINK}x{THOUGHT}"])
def test_taking_a_marker_out_of_a_marker_leaves_no_marker(inner: str) -> None:
    seen = read([f"<|im_{inner}end|> <|im_{inner}end|>"])

    assert str(STOP) not in seen.parsed.content
    assert seen.parsed.content.replace(" ", "") == "<|im_end|><|im_end|>"
    assert str(STOP) not in "".join(text for _, text in seen.shown)


def test_a_thought_is_reasoning() -> None:
    seen = read([f"{THINK}hm{THOUGHT}Oslo"])

    assert seen.shown == (("reasoning", "hm"), ("text", "Oslo"))
    assert (seen.parsed.content, seen.parsed.reasoning) == ("Oslo", "hm")


def test_a_text_may_begin_inside_a_thought() -> None:
    assert parsed("hm", "reasoning") == ParsedText(reasoning="hm", thought_closed=False)
    assert parsed(f"hm{THOUGHT}Oslo", "reasoning") == ParsedText(reasoning="hm", content="Oslo")


def test_a_thought_s_end_alone_makes_all_before_it_reasoning() -> None:
    seen = read(["hm", f"{THOUGHT}Oslo"])

    assert seen.shown == (("text", "hm"), ("withdraw", ""), ("reasoning", "hm"), ("text", "Oslo"))


def test_calls_of_a_closed_thought_are_no_calls() -> None:
    found = parsed(f"{THINK}a{section(call('functions.f:0'))}b{THOUGHT}c{section(call('functions.f:1'))}")

    assert [one.header for one in found.calls] == ["functions.f:1"]
    assert [one.header for one in found.thought_calls] == ["functions.f:0"]


@pytest.mark.parametrize(
    "inside",
    [BEGIN, f"{BEGIN}x", f"{CALL}functions.f:0", f"{CALL}functions.f:0{ARGUMENTS}{{}}"],
)
def test_a_thought_may_be_closed_inside_a_call(inside: str) -> None:
    found = parsed(f"hm{inside}{THOUGHT}Oslo", "reasoning")

    assert found.content == "Oslo"
    assert found.calls == ()
    assert found.thought_closed


def test_something_outside_the_text_may_close_its_thought() -> None:
    parser = K2TextParser(start="reasoning")
    parser.feed(f"hm{section(call())}")
    _, found = parser.close(thought_closed=True)

    assert found.calls == ()
    assert len(found.thought_calls) == 1
    assert found.reasoning == "hm"


def test_an_answer_cannot_be_closed_from_outside() -> None:
    parser = K2TextParser()
    parser.feed(f"a{section(call())}")
    _, found = parser.close(thought_closed=True)

    assert len(found.calls) == 1
    assert found.content == "a"


@pytest.mark.parametrize("marker", K2Marker)
def test_the_beginning_of_any_marker_is_held_back_and_shown_if_it_stays_one(marker: K2Marker) -> None:
    parser = K2TextParser()
    begun = str(marker)[:-1]

    assert parser.feed(f"a{begun}") == [("text", "a")]
    assert len(begun) < LONGEST_K2_MARKER
    assert parser.close()[0] == [("text", begun)]
