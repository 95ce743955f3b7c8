"""A reply as it was read → what it means."""

from __future__ import annotations

from typing import Any

import pytest

from kimi_agent._core.call_assembler import StructuredCall
from kimi_agent._core.reply_reader import Reply
from kimi_agent._core.settle import settle
from kimi_agent._core.settled import Asked, SettledCall, SettledReply
from kimi_agent._core.transcript import ParsedText, RawCall
from kimi_agent.messages import ToolSpec
from kimi_agent.results import Usage
from tests.property.corpus import TOOLS

OSLO = '{"city":"Oslo"}'


def structured(
    arguments: str = OSLO, *, call_id: str = "functions.get_weather:0", name: str = "get_weather"
) -> StructuredCall:
    return StructuredCall(id=call_id, name=name, arguments=arguments)


def raw(arguments: str = OSLO, *, header: str = "functions.get_weather:0", closed: bool = True) -> RawCall:
    return RawCall(header=header, arguments=arguments, closed=closed)


def reply(
    *calls: StructuredCall, content: str = "", raws: tuple[RawCall, ...] = (), finish: str | None = "stop"
) -> Reply:
    return Reply(calls=calls, content=ParsedText(content=content, calls=raws), finish_reason=finish)


def settled(one: Reply, *, tools: dict[str, ToolSpec] = TOOLS, **asked: Any) -> SettledReply:
    return settle(one, Asked(step=1, tools=tools, **asked))


def only(one: SettledReply) -> SettledCall:
    (call,) = one.calls
    return call


def kinds(one: SettledReply) -> list[str]:
    return [repair.kind for repair in one.repairs]


def test_an_answer_is_an_answer() -> None:
    one = settled(reply(content="Sunny."))

    assert (one.content, one.reasoning, one.calls) == ("Sunny.", None, ())
    assert (one.finish_reason, one.raw_finish_reason) == ("stop", "stop")
    assert one.repairs == ()
    assert one.usage == Usage(requests=1)
    assert one.message() == {"role": "assistant", "content": "Sunny."}


def test_a_call_is_decoded_and_keeps_its_id() -> None:
    call = only(settled(reply(structured(), finish="tool_calls")))

    assert call == SettledCall(
        index=0,
        id="functions.get_weather:0",
        name="get_weather",
        arguments={"city": "Oslo"},
        arguments_text=OSLO,
    )


# --- finish reasons ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "with_call", "without"),
    [
        ("stop", "tool_calls", "stop"),
        ("tool_calls", "tool_calls", "stop"),
        ("length", "length", "length"),
        ("content_filter", "content_filter", "content_filter"),
        ("odd", "tool_calls", "other"),
        (None, "tool_calls", "stop"),
    ],
)
def test_what_the_reply_holds_decides_not_its_word(word: str | None, with_call: str, without: str) -> None:
    calling, answering = settled(reply(structured(), finish=word)), settled(reply(content="a", finish=word))

    assert (calling.finish_reason, calling.raw_finish_reason) == (with_call, word)
    assert len(calling.calls) == 1
    assert (answering.finish_reason, answering.raw_finish_reason) == (without, word)


# --- what a call means -------------------------------------------------------------------------------


def test_an_unknown_tool_is_told_which_tools_there_are() -> None:
    one = settled(reply(structured(name="nobody", call_id="a"), structured(call_id="b")))
    call = one.calls[0]

    assert (call.problem, call.name) == ("unknown_tool", "nobody")
    assert call.arguments == {"city": "Oslo"}
    assert call.arguments_text == OSLO
    assert "'nobody'" in call.explanation
    assert "get_weather, mcp__files__read, f" in call.explanation
    assert one.calls[1].problem is None


@pytest.mark.parametrize(("text", "arguments"), [("[1]", [1]), ("{", "{")])
def test_odd_arguments_of_an_unknown_tool_are_kept_and_not_sent_again(text: str, arguments: Any) -> None:
    call = only(settled(reply(structured(text, name="nobody"))))

    assert call.arguments == arguments
    assert call.arguments_text == "{}"


def test_arguments_that_cannot_be_read_are_told_with_the_schema() -> None:
    call = only(settled(reply(structured('{"city":'))))

    assert call.problem == "invalid_arguments"
    assert call.arguments == '{"city":'
    assert call.arguments_text == "{}"
    assert "get_weather" in call.explanation
    assert '"city"' in call.explanation


def test_forgiven_arguments_are_written_anew_and_told() -> None:
    one = settled(reply(structured('{"city": "Oslo",}')))

    assert only(one).arguments == {"city": "Oslo"}
    assert only(one).arguments_text == OSLO
    assert kinds(one) == ["arguments"]
    assert "comma" in one.repairs[0].detail
    assert one.repairs[0].where == "step 1, call 0"


def test_no_arguments_are_an_empty_object() -> None:
    call = only(settled(reply(structured("", name="f"))))

    assert (call.arguments, call.arguments_text) == ({}, "{}")


def test_a_foreign_id_with_the_name_in_the_arguments_is_a_call_of_that_tool() -> None:
    one = settled(reply(raws=(raw('{"name":"f","arguments":{"a":1}}', header="call_1a2b"),)))

    assert (only(one).name, only(one).arguments, only(one).arguments_text) == ("f", {"a": 1}, '{"a":1}')
    assert only(one).id == "functions.f:0"
    assert "call_name" in kinds(one)


def test_a_foreign_id_is_a_call_of_the_one_tool_that_accepts_the_arguments() -> None:
    one = settled(reply(raws=(raw(header="call_1a2b"),)))

    assert only(one).name == "get_weather"
    assert "call_name" in kinds(one)


@pytest.mark.parametrize("arguments", ['{"nothing":"known","at":"all"}', "{}"])
def test_a_call_that_names_no_tool_in_any_way_is_an_unknown_one(arguments: str) -> None:
    tools = {name: TOOLS[name] for name in ("get_weather",)}
    call = only(settled(reply(raws=(raw(arguments, header="call_1a2b"),)), tools=tools))

    assert (call.problem, call.name) == ("unknown_tool", "unknown")


def test_structured_calls_without_a_usable_name_may_hold_anything() -> None:
    for arguments in ("{", "[1]", "3"):
        assert (
            only(settled(reply(structured(arguments, name="", call_id="call_1")))).problem == "unknown_tool"
        )


# --- ids ---------------------------------------------------------------------------------------------


def test_a_server_s_id_is_kept_whatever_it_is() -> None:
    assert only(settled(reply(structured(call_id="call_1")))).id == "call_1"


def test_a_call_without_id_gets_the_one_the_model_knows() -> None:
    one = settled(reply(structured(call_id="")), calls_before=4)

    assert only(one).id == "functions.get_weather:4"
    assert kinds(one) == ["call_id"]


@pytest.mark.parametrize(
    ("header", "call_id"),
    [
        ("functions.get_weather:7", "functions.get_weather:7"),
        ("get_weather:7", "functions.get_weather:2"),
        ("functions.get_weather", "functions.get_weather:2"),
        ("functions.get_weather:", "functions.get_weather:2"),
    ],
)
def test_a_raw_call_keeps_its_id_if_it_is_one(header: str, call_id: str) -> None:
    assert only(settled(reply(raws=(raw(header=header),)), calls_before=2)).id == call_id


def test_repeated_ids_are_told_apart() -> None:
    one = settled(
        reply(
            structured(call_id="functions.f:0", name="f"), structured("{}", call_id="functions.f:0", name="f")
        )
    )

    ids = [call.id for call in one.calls]
    assert ids[0] == "functions.f:0"
    assert len(set(ids)) == 2
    assert ids[1].startswith("functions.f:")
    assert kinds(one) == ["call_id"]


def test_a_new_id_is_never_one_that_another_call_has() -> None:
    calls = [structured(call_id=one, name="f") for one in ("functions.f:1", "x", "x", "functions.f:0")]
    ids = [call.id for call in settled(reply(*calls)).calls]

    assert len(set(ids)) == 4
    assert (ids[0], ids[1], ids[3]) == ("functions.f:1", "x", "functions.f:0")


# --- cut off -----------------------------------------------------------------------------------------


def test_a_cut_call_alone_is_told_to_the_model() -> None:
    one = settled(reply(structured('{"ci'), finish="length"))

    assert only(one).problem == "truncated"
    assert "cut off" in only(one).explanation
    assert "shorter" in only(one).explanation
    assert only(one).arguments_text == "{}"
    assert kinds(one) == ["truncated_call"]


def test_a_cut_call_beside_whole_ones_is_dropped() -> None:
    one = settled(reply(structured(), structured('{"ci', call_id="functions.get_weather:1"), finish="length"))

    assert [call.id for call in one.calls] == ["functions.get_weather:0"]
    assert kinds(one) == ["truncated_call"]
    assert "functions.get_weather:1" in one.repairs[0].detail
    assert "dropped" in one.repairs[0].detail


def test_a_dropped_call_keeps_its_place_empty() -> None:
    one = settled(reply(structured('{"ci'), raws=(raw(),), finish="length"))

    assert [(call.index, call.recovered) for call in one.calls] == [(1, True)]


def test_of_several_cut_calls_the_last_one_is_told() -> None:
    one = settled(reply(raws=(raw("{", closed=False), raw("{", closed=False)), finish="length"))

    assert [call.index for call in one.calls] == [1]


def test_a_limit_in_tokens_cuts_even_if_the_server_says_otherwise() -> None:
    cut = Reply(
        calls=(structured("{}"),),
        finish_reason="tool_calls",
        usage={"prompt_tokens": 5, "completion_tokens": 8},
    )

    assert only(settled(cut, max_output_tokens=8)).problem == "truncated"
    assert only(settled(cut, max_output_tokens=9)).problem is None
    assert settled(cut).usage == Usage(requests=1, input_tokens=5, output_tokens=8)


def test_a_cut_call_of_an_unknown_name_is_cut() -> None:
    assert only(settled(reply(structured("", name="get_w"), finish="length"))).problem == "truncated"
    assert (
        only(settled(reply(structured("{", name="", call_id="call_1"), finish="length"))).problem
        == "truncated"
    )


# --- calls that were not asked for -------------------------------------------------------------------


@pytest.mark.parametrize("one", [reply(structured(), content="a"), reply(raws=(raw(),), content="a")])
def test_calls_that_were_not_asked_for_are_dropped_and_told(one: Reply) -> None:
    understood = settled(one, calls_allowed=False)

    assert understood.calls == ()
    assert understood.content == "a"
    assert understood.calls_refused
    assert "call_dropped" in kinds(understood)
    assert "functions.get_weather:0" in understood.repairs[-1].detail


def test_without_tools_text_that_looks_like_a_bare_call_is_text() -> None:
    text = "functions.f:0{}"

    assert settled(reply(content=text), tools=dict[str, ToolSpec](), calls_allowed=False).content == text
