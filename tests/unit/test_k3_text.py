from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent._core.k3_text import TRANSITIONS, K3TextParser, State
from kimi_agent._core.transcript import ParsedText, RawCall
from kimi_agent.dialects.k3_format import LONGEST_K3_TAG, K3Marker, K3Tag

if TYPE_CHECKING:
    from kimi_agent._core.transcript import Output


def tags(short: str) -> str:
    """XTML from a short spelling: `[tag]` opens, `[/tag]` closes."""
    return short.replace("[/", "<|close|>").replace("[", "<|open|>").replace("]", "<|sep|>")


def read(
    text: str, *, start: Any = "answer", thought_closed: bool = False
) -> tuple[list[Output], ParsedText]:
    parser = K3TextParser(start=start)
    outputs = list(parser.feed(text))
    rest, parsed = parser.close(thought_closed=thought_closed)
    return outputs + list(rest), parsed


def parsed(short: str, **arguments: Any) -> ParsedText:
    return read(tags(short), **arguments)[1]


def call(name: str, arguments: str, *, closed: bool = True) -> RawCall:
    return RawCall(header=name, arguments=arguments, closed=closed)


OSLO = (
    '[tools][call tool="get_weather" index="1"]'
    '[argument key="city" type="string"]Oslo[/argument][/call][/tools]'
)
OSLO_CALL = call("get_weather", '{"city": "Oslo"}')


# --- channels ------------------------------------------------------------------------------------


def test_each_channel_goes_where_it_belongs() -> None:
    whole = parsed("[think]Hm.[/think][response]Reading.[/response]" + OSLO)

    assert whole == ParsedText(content="Reading.", reasoning="Hm.", calls=(OSLO_CALL,))


def test_text_outside_all_channels_is_answer_text() -> None:
    assert parsed("a[response]b[/response]c[/message]<|end_of_msg|>d") == ParsedText(content="abcd")


def test_a_reply_that_begins_in_the_thought_needs_no_opener() -> None:
    assert parsed("Hm.[/think][response]Yes.", start="reasoning") == ParsedText(
        content="Yes.", reasoning="Hm."
    )


def test_the_end_of_a_thought_that_nobody_opened_takes_the_text_before_it_back() -> None:
    outputs, whole = read(tags("Hm.[/think][response]Yes."))

    assert outputs == [("text", "Hm."), ("withdraw", ""), ("reasoning", "Hm."), ("text", "Yes.")]
    assert whole == ParsedText(content="Yes.", reasoning="Hm.")


def test_an_empty_thought_is_reasoning_that_is_empty() -> None:
    assert parsed("[think][/think][response]x").reasoning == ""
    assert parsed("[response]x").reasoning is None


def test_a_space_inside_a_tag_does_not_matter() -> None:
    assert parsed("hello world[/ response]") == ParsedText(content="hello world")
    assert parsed("[ think ]x[/ think ]y") == ParsedText(content="y", reasoning="x")


def test_unknown_tags_and_lone_separators_are_left_out_and_the_text_in_them_stays() -> None:
    assert parsed('a[aside kind="x"]b[/aside]c]d').content == "abcd"


def test_text_behind_an_opening_marker_that_is_no_tag_is_kept() -> None:
    assert (
        parsed("The marker [ opens a tag and ] ends it.").content == "The marker  opens a tag and  ends it."
    )
    assert parsed("a[one[two]b<|close|><|im_end|>c").content == "aonebc"


def test_a_tag_that_does_not_end_is_text() -> None:
    long_text = "x" * (LONGEST_K3_TAG + 1)

    assert parsed(f"a[{long_text}]b").content == f"a{long_text}b"


def test_a_tag_is_read_up_to_its_limit() -> None:
    name = "x" * (LONGEST_K3_TAG - len('call tool=""'))

    assert parsed(f'[call tool="{name}"][/call]').calls == (call(name, "{}"),)


def test_k2_markers_are_left_out_too_but_think_is_a_plain_word() -> None:
    assert parsed("a<|im_end|>b <think>c</think>").content == "ab <think>c</think>"


def test_text_without_markers_is_shown_at_once() -> None:
    parser = K3TextParser()

    assert parser.feed("a b") == [("text", "a b")]
    assert parser.feed("") == []
    assert parser.feed("x < y <") == [("text", "x < y ")]
    assert parser.close() == ([("text", "<")], ParsedText(content="a bx < y <"))


def test_text_between_channels_and_in_thoughts_is_shown_as_it_comes() -> None:
    parser = K3TextParser(start="reasoning")

    assert parser.feed("Hm") == [("reasoning", "Hm")]
    assert parser.feed(tags(".[/think][response]")) == [("reasoning", ".")]
    assert parser.feed("Yes") == [("text", "Yes")]


def test_taking_a_tag_out_does_not_make_its_neighbours_a_marker() -> None:
    assert parsed("a<|op]en|>b").content == "a<|op en|>b"
    assert parsed("a<|op[think]t[/think]en|>b[x]c").content == "a<|op en|>bc"
    assert parsed("a<|se[x]p|[y]>").content == "a<|se p|>"


def test_taking_a_tag_out_leaves_its_neighbours_as_they_are_otherwise() -> None:
    assert parsed("x <[/think]0", start="reasoning") == ParsedText(content="0", reasoning="x <")
    assert parsed("a <[x]= b").content == "a <= b"


# --- calls ---------------------------------------------------------------------------------------


def test_calls_come_in_order_with_typed_arguments() -> None:
    whole = parsed(
        '[tools][call tool="f" index="1"][argument key="s" type="string"]20[/argument]'
        '[argument key="n" type="integer"]20[/argument][argument key="x" type="number"] 1.50 [/argument]'
        '[argument key="o" type="object"]{"a": "b]"}[/argument][argument key="t"]true[/argument][/call]'
        '[call tool="g" index="2"][/call][/tools]'.replace("b]", "b}")
    )

    assert whole.calls == (
        call("f", '{"s": "20", "n": 20, "x": 1.50, "o": {"a": "b}"}, "t": true}'),
        call("g", "{}"),
    )


@pytest.mark.parametrize("value", ["a=1;b=2", "", "NaN", "[" * 100_000, "9" * 5000])
def test_a_value_that_is_not_json_stays_a_string(value: str) -> None:
    text = '<|open|>call tool="f"<|sep|><|open|>argument key="k" type="object"<|sep|>'
    whole = read(f"{text}{value}{tags('[/argument][/call]')}")[1]

    assert json.loads(whole.calls[0].arguments) == {"k": value}


def test_attributes_are_unescaped_and_values_are_not() -> None:
    whole = parsed(
        '[call tool="r&amp;d"][argument key="a&quot;&amp;quot;&lt;" type="string"]'
        '1 &lt; 2 &amp; "x"[/argument][/call]'
    )

    assert whole.calls[0].header == "r&d"
    assert json.loads(whole.calls[0].arguments) == {'a"&quot;&lt;': '1 &lt; 2 &amp; "x"'}


def test_only_its_own_end_ends_a_value() -> None:
    value = "a[tools]b[/call]c]d<|end_of_msg|>e<|im_end|>f[/argument g[/argument]"
    whole = parsed(f'[call tool="f"][argument key="k" type="string"]{value}[/call]after')

    assert json.loads(whole.calls[0].arguments) == {
        "k": tags("a[tools]b[/call]c]d<|end_of_msg|>e<|im_end|>f") + "<|close|>argument g"
    }
    assert whole.content == "after"


def test_a_value_keeps_what_looks_like_a_tag_that_never_ends() -> None:
    value = "a<|close|>" + "x" * (LONGEST_K3_TAG + 1) + "<|close|>b<|close|>c d<|sep|>"
    whole = read(
        f'<|open|>call tool="f"<|sep|><|open|>json type="object"<|sep|>{value}{tags("[/json][/call]")}'
    )[1]

    assert whole.calls == (call("f", value),)


def test_a_json_block_is_taken_as_it_is() -> None:
    assert parsed('[call tool="f"][json type="object"]{"a": 1,[/json][/call]').calls == (
        call("f", '{"a": 1,'),
    )


def test_a_json_block_beside_typed_arguments_is_kept_as_text() -> None:
    whole = parsed('[call tool="f"][json]{"b": 2}[/json][argument key="a"]1[/argument][/call]')

    assert whole == ParsedText(content='{"b": 2}', calls=(call("f", '{"a": 1}'),))


def test_json_that_stands_bare_in_a_call_is_its_arguments() -> None:
    assert parsed('[call tool="f"] {"a": 1}[/call]').calls == (call("f", ' {"a": 1}'),)


def test_other_text_in_a_call_is_answer_text() -> None:
    whole = parsed('[call tool="f"]so: [argument key="a"]1[/argument]\n[/call]')

    assert whole == ParsedText(content="so: \n", calls=(call("f", '{"a": 1}'),))


def test_prose_about_a_call_is_no_call() -> None:
    assert parsed('Write [call tool="f"] and so on.') == ParsedText(content="Write  and so on.")


def test_text_between_calls_is_answer_text_unless_it_is_blank() -> None:
    parser = K3TextParser()
    parser.feed(tags('[tools]\n [call tool="f"][/call]\n'))

    assert parser.feed(" ") == []
    assert parser.feed("but") == [("text", "\n but")]
    assert parser.feed(" so") == [("text", " so")]
    assert parser.close()[1].content == "\n but so"


def test_a_call_needs_neither_the_channel_around_it_nor_its_own_end() -> None:
    first, second = call("f", "{}"), call("g", "{}")

    assert parsed('[call tool="f"][call tool="g"][/tools]x') == ParsedText(content="x", calls=(first, second))
    assert parsed('[call tool="f"][/message]x') == ParsedText(content="x", calls=(first,))
    assert parsed('[call tool="f"]<|end_of_msg|>x') == ParsedText(content="x", calls=(first,))
    assert parsed('[call tool="f"][response]x') == ParsedText(content="x", calls=(first,))
    assert parsed('[call tool="f"][tools]x') == ParsedText(content="x", calls=(first,))


def test_a_thought_may_follow_calls() -> None:
    for end in ("[/call]", ""):
        whole = parsed(f'[call tool="f"]{end}[think]t[/think]x')

        assert whole == ParsedText(content="x", reasoning="t", calls=(call("f", "{}"),))


# --- unclosed thoughts ---------------------------------------------------------------------------


def test_tools_end_a_thought_that_nothing_closes() -> None:
    whole = parsed("I should look it up." + OSLO, start="reasoning")

    assert whole.reasoning == "I should look it up."
    assert whole.calls == (OSLO_CALL,)
    assert not whole.thought_closed


def test_a_response_ends_a_thought_that_nothing_closes() -> None:
    outputs, whole = read(tags("Hm.[response]Yes.[/response]" + OSLO), start="reasoning")

    assert outputs[-1] == ("text", "Yes.")
    assert (whole.content, whole.reasoning, whole.calls) == ("Yes.", "Hm.", (OSLO_CALL,))


@pytest.mark.parametrize("ending", ["[/think]x", "[tools]y[/think]x", '[call tool="f"][/think]x'])
def test_a_call_in_a_closed_thought_is_none(ending: str) -> None:
    whole = parsed(f"I could write {OSLO}{ending}", start="reasoning")

    assert whole.content == "x"
    assert whole.calls == ()
    assert OSLO_CALL in whole.thought_calls


def test_a_thought_closed_from_outside_makes_no_call() -> None:
    whole = parsed(f"Hm.{OSLO}", start="reasoning", thought_closed=True)

    assert whole == ParsedText(reasoning="Hm.", thought_calls=(OSLO_CALL,))


def test_a_thought_opened_behind_an_unclosed_one_loses_nothing() -> None:
    opened_again = f"a{OSLO}b[think]c"

    assert parsed(opened_again, start="reasoning") == ParsedText(
        content="bc", reasoning="a", calls=(OSLO_CALL,), thought_closed=False
    )
    assert parsed(f"{opened_again}[/think]d", start="reasoning") == ParsedText(
        content="d", reasoning="abc", thought_calls=(OSLO_CALL,)
    )


# --- texts that are cut off ----------------------------------------------------------------------


def test_a_whole_call_counts_without_the_end_of_the_tools() -> None:
    assert parsed(OSLO.removesuffix("[/tools]")).calls == (OSLO_CALL,)


@pytest.mark.parametrize(
    ("ending", "name", "arguments"),
    [
        ('[call tool="get_weather" index="1"]', "get_weather", "{"),
        ('[call tool="get_weather" ind', "get_weather", "{"),
        ('[call tool="get_wea', "get_wea", "{"),
        ("[call", "", "{"),
        ('[call tool="f"][argument key="a"]1[/argument]', "f", '{"a": 1'),
        ('[call tool="f"][argument key="a"]1[/argument][/ca', "f", '{"a": 1'),
        (
            '[call tool="f"][argument key="a"]1[/argument][argument key="b" type="string"]x"',
            "f",
            '{"a": 1, "b": "x\\"',
        ),
        ('[call tool="f"][argument key="b"]{"x', "f", '{"b": {"x'),
        ('[call tool="f"][argument key="b"]1[/argu', "f", '{"b": 1'),
        ('[call tool="f"][argument key="b"]1[/argu x', "f", '{"b": 1<|close|>argu x'),
        ('[call tool="f"][argument key="b', "f", '{"b": '),
        ('[call tool="f"][json]{"a": 1}[/json]', "f", '{"a": 1}'),
        ('[call tool="f"][json]{"a": 1}[/', "f", '{"a": 1}'),
        ('[call tool="f"]{"a": ', "f", '{"a": '),
    ],
)
def test_a_call_that_the_text_ends_in_is_not_closed(ending: str, name: str, arguments: str) -> None:
    whole = parsed(f"Ok.[tools]{ending}")

    assert whole == ParsedText(content="Ok.", calls=(call(name, arguments, closed=False),))


def test_a_call_whose_closing_tag_lacks_only_its_separator_is_closed() -> None:
    assert parsed('[call tool="f"][/call').calls == (call("f", "{}"),)


@pytest.mark.parametrize("ending", ["[", "[ ", "[/", "[to", "[/respon", "[think", "]", "[/message]", "[mess"])
def test_a_tag_that_the_text_ends_in_is_not_shown(ending: str) -> None:
    assert parsed(f"Finished{ending}").content == "Finished"


@pytest.mark.parametrize("ending", ["foo", "foo bar", " and no more", "tools now and then", "x=1", "1"])
def test_words_behind_a_marker_that_the_text_ends_in_are_shown(ending: str) -> None:
    assert parsed(f"Finished[{ending}").content == f"Finished{ending}"


@pytest.mark.parametrize("ending", ["<", "<|", "<|ope", "<|im_en"])
def test_half_a_marker_at_the_end_is_text(ending: str) -> None:
    assert parsed(f"Finished{ending}").content == f"Finished{ending}"


# --- the table -----------------------------------------------------------------------------------

REACH = {
    State.ANSWER: "",
    State.REASONING: "[think]",
    State.TOOLS: "[tools]",
    State.CALL: '[call tool="f"]',
    State.ARGUMENT: '[call tool="f"][argument key="k"]',
    State.JSON: '[call tool="f"][json]',
}


@pytest.mark.parametrize(
    ("state", "marker", "tag"),
    list(itertools.product(State, (K3Marker.OPEN, K3Marker.CLOSE), K3Tag)),
)
def test_a_tag_leads_where_the_table_says(state: State, marker: K3Marker, tag: K3Tag) -> None:
    parser = K3TextParser()
    parser.feed(tags(REACH[state]) + f"{marker}{tag}<|sep|>")

    assert parser._state is TRANSITIONS.get((state, marker, tag), state)
