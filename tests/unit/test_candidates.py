"""Where the calls of a reply are."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kimi_agent._core.call_assembler import StructuredCall
from kimi_agent._core.candidates import CallFinder, Candidate, joined, label
from kimi_agent._core.reply_reader import Reply
from kimi_agent._core.settled import Asked
from kimi_agent._core.transcript import ParsedText, RawCall
from tests.property.corpus import CLOSE, TOOLS, call

OSLO = '{"city":"Oslo"}'


@dataclass(frozen=True)
class Found:
    calls: list[Candidate]
    content: str
    reasoning: str | None
    repairs: list[tuple[str, str, str]]

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.repairs]


def find(reply: Reply, *, limit_reached: bool = False, asked: Asked | None = None) -> Found:
    repairs: list[tuple[str, str, str]] = []

    def repair(kind: str, where: str, detail: str) -> None:
        repairs.append((kind, where, detail))

    finder = CallFinder(
        reply,
        asked or Asked(step=1, tools=TOOLS),
        limit_reached=limit_reached,
        repair=repair,
    )
    calls = finder.find()
    return Found(calls, finder.content, finder.reasoning, repairs)


def structured(
    arguments: str = OSLO, *, call_id: str = "functions.get_weather:0", name: str = "get_weather"
) -> StructuredCall:
    return StructuredCall(id=call_id, name=name, arguments=arguments)


def raw(arguments: str = OSLO, *, header: str = "functions.get_weather:0", closed: bool = True) -> RawCall:
    return RawCall(header=header, arguments=arguments, closed=closed)


def reply(
    *calls: StructuredCall,
    content: str = "",
    raws: tuple[RawCall, ...] = (),
    thought: ParsedText | None = None,
) -> Reply:
    parsed = ParsedText(content=content, calls=raws)
    if thought is None:
        return Reply(calls=calls, content=parsed)
    return Reply(calls=calls, content=parsed, thought=thought, has_reasoning_field=True)


def test_what_the_server_reported_is_a_call_as_it_is() -> None:
    found = find(reply(structured(), content="I look."))

    assert found.calls == [
        Candidate(id="functions.get_weather:0", header="get_weather", arguments=OSLO, raw=False)
    ]
    assert found.content == "I look."
    assert found.repairs == []


def test_a_call_without_a_name_is_named_by_its_id() -> None:
    assert find(reply(structured(name=" "))).calls[0].header == "functions.get_weather:0"


def test_calls_left_in_text_and_in_reasoning_are_recovered_and_told() -> None:
    thought = ParsedText(reasoning="hm", calls=(raw(header="functions.f:0"),), thought_closed=False)
    found = find(reply(content="So.", raws=(raw(),), thought=thought))

    assert [(one.header, one.raw, one.cut) for one in found.calls] == [
        ("functions.f:0", True, False),
        ("functions.get_weather:0", True, False),
    ]
    assert (found.content, found.reasoning) == ("So.", "hm")
    assert found.kinds == ["raw_tool_calls"]
    assert "functions.f:0, functions.get_weather:0" in found.repairs[0][2]


def test_raw_calls_can_be_switched_off() -> None:
    asked = Asked(step=1, tools=TOOLS, raw_calls_allowed=False)
    found = find(reply(content="So.", raws=(raw(),)), asked=asked)

    assert found.calls == []
    assert found.content == "So."
    assert found.kinds == ["raw_tool_calls"]
    assert "switched off" in found.repairs[0][2]
    assert find(reply(content="So."), asked=asked).repairs == []


def test_calls_of_a_closed_thought_are_told_and_not_made() -> None:
    thought = ParsedText(reasoning="hm", thought_calls=(raw(),))
    found = find(reply(content="Oslo.", thought=thought))

    assert found.calls == []
    assert found.kinds == ["thought_call"]


def test_the_same_call_structured_and_raw_counts_once() -> None:
    again = raw('{ "city": "Oslo" }', header="functions.get_weather:7")
    found = find(reply(structured(), raws=(again,)))

    assert [one.raw for one in found.calls] == [False]
    assert found.kinds == ["repeated_call"]


def test_a_call_that_comes_more_often_raw_than_structured_counts_the_difference() -> None:
    found = find(reply(structured(), raws=(raw(), raw())))

    assert [one.raw for one in found.calls] == [False, True]


def test_unreadable_arguments_are_compared_as_text() -> None:
    found = find(reply(structured("{"), raws=(raw("{"), raw("}"))))

    assert [one.arguments for one in found.calls] == ["{", "}"]


def test_markers_in_the_arguments_are_taken_out_and_calls_behind_them_recovered() -> None:
    glued = f"{OSLO}{CLOSE}{call('functions.f:1', '{}')} more"
    found = find(reply(structured(glued), structured('{"city":"Rome"}', call_id="x"), content="I look."))

    assert [(one.header, one.arguments, one.raw) for one in found.calls] == [
        ("get_weather", OSLO, False),
        ("get_weather", '{"city":"Rome"}', False),
        ("functions.f:1", "{}", True),
    ]
    assert found.content.split() == ["I", "look.", "more"]
    assert "raw_tool_calls" in found.kinds


def test_markers_in_arguments_that_hold_no_call_leave_them_as_they_are() -> None:
    prose = f"prose with{CLOSE}"

    assert find(reply(structured(prose, name="no name at all"))).calls[0].arguments == prose


def test_markers_inside_a_string_of_the_arguments_are_text() -> None:
    arguments = f'{{"city":"{CLOSE}"}}'

    assert find(reply(structured(arguments))).calls[0].arguments == arguments


@pytest.mark.parametrize(
    ("name", "arguments", "cut"),
    [
        ("get_weather", OSLO, False),
        ("get_weather", '{"ci', True),
        ("get_weather", "", True),
        ("get_weather", "{}", True),  # the city is required
        ("f", "{}", False),  # nothing is
        ("get_wea", "{}", True),
        ("functions.get_wea", "", True),
        ("nobody", "{}", False),
    ],
)
def test_the_last_call_at_the_output_limit_may_be_cut(name: str, arguments: str, cut: bool) -> None:
    found = find(reply(structured(), structured(arguments, name=name, call_id="x")), limit_reached=True)

    assert [one.cut for one in found.calls] == [False, cut]
    assert not any(one.cut for one in find(reply(structured(arguments, name=name))).calls)


@pytest.mark.parametrize(
    ("one", "limit_reached", "cut"),
    [
        (raw(), True, False),
        (raw("{"), True, False),
        (raw(closed=False), True, True),
        (raw(closed=False), False, False),
        (raw("{", closed=False), True, True),
        (raw("{", closed=False), False, False),
    ],
)
def test_a_raw_call_is_cut_if_the_limit_was_reached_before_its_end(
    one: RawCall, limit_reached: bool, cut: bool
) -> None:
    assert [call.cut for call in find(reply(raws=(one,)), limit_reached=limit_reached).calls] == [cut]


def test_bare_calls_at_the_end_of_the_answer_are_recovered() -> None:
    found = find(reply(content='I look. functions.f:0{"a":1}'))

    assert [(one.header, one.arguments) for one in found.calls] == [("functions.f:0", '{"a":1}')]
    assert found.content == "I look. "


def test_bare_calls_at_the_end_of_the_reasoning_count_if_nothing_else_came() -> None:
    thought = ParsedText(reasoning="hm functions.f:0{}")

    assert len(find(reply(thought=thought)).calls) == 1
    assert find(reply(content="Oslo.", thought=thought)).calls == []
    assert len(find(reply(structured(), thought=thought)).calls) == 1
    assert find(reply(thought=thought)).reasoning == "hm "


@pytest.mark.parametrize("arguments", ["", "prose", "[1]"])
def test_what_names_nothing_and_holds_no_object_is_no_call(arguments: str) -> None:
    found = find(reply(raws=(raw(arguments, header=""),)))

    assert found.calls == []
    assert found.kinds == (["raw_text_dropped"] if arguments else [])
    assert all(arguments in detail for _, _, detail in found.repairs)


def test_an_object_under_a_foreign_id_is_a_call() -> None:
    assert len(find(reply(raws=(raw("{}", header="call_1a"),))).calls) == 1


def test_reasoning_of_the_field_and_of_the_answer_are_joined() -> None:
    content = ParsedText(content="Oslo.", reasoning="in the answer")
    thought = ParsedText(reasoning="in the field")

    assert find(Reply(content=content)).reasoning == "in the answer"
    assert find(Reply(thought=thought, has_reasoning_field=True)).reasoning == "in the field"
    assert find(Reply(content=content, thought=thought, has_reasoning_field=True)).reasoning == (
        "in the field\nin the answer"
    )
    assert find(Reply()).reasoning is None


def test_texts_are_joined_by_a_line_unless_one_is_blank() -> None:
    assert joined("a", "b") == "a\nb"
    assert joined("", "b") == "b"
    assert joined("a", " ") == "a "


def test_a_call_is_labelled_by_what_it_has() -> None:
    one = Candidate(id="a", header="b", arguments="", raw=False)

    assert label(one) == "a"
    assert label(Candidate(id="", header="b", arguments="", raw=False)) == "b"
    assert "without name" in label(Candidate(id="", header="", arguments="", raw=False))
