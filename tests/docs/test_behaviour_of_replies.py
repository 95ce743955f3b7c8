"""What a reply means: the promises B-001 to B-018 of docs/reference/behaviour.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent import KimiAgent, ModelError, ModelOptions, ReasoningDelta, TextReset, ToolCallDelta
from kimi_agent.testing import KimiServer, adaptive_reply, chunk, stream_reply, text_reply, tool_call
from tests.docs.scene import DONE, PARIS, Scene, play, raw_call, raw_section, whole

if TYPE_CHECKING:
    from kimi_agent.testing import ScriptedReply

pytestmark = pytest.mark.anyio


async def test_text_beside_calls_is_withdrawn_from_the_answer_and_kept_in_the_history() -> None:
    # B-001
    first = adaptive_reply("One moment.", tool_calls=[tool_call("get_weather", {"city": "Paris"})])
    scene = await play([first, DONE])

    assert scene.cities == ["Paris"]
    assert scene.withdrawn == ["One moment."]
    assert scene.result.text == "Done."
    assert scene.result.messages[1]["content"] == "One moment."


@pytest.mark.parametrize("word", ["stop", "length", "end_turn"])
async def test_calls_run_whatever_the_finish_reason_says(word: str) -> None:
    # B-002
    call = tool_call("get_weather", {"city": "Paris"})
    scene = await play([adaptive_reply(tool_calls=[call], finish_reason=word), DONE])

    assert scene.cities == ["Paris"]


async def test_no_calls_are_an_answer_whatever_the_finish_reason_says() -> None:
    # B-002
    scene = await play([adaptive_reply("The answer.", finish_reason="tool_calls")])

    assert (scene.result.text, scene.result.finish_reason) == ("The answer.", "stop")


async def test_text_after_the_calls_belongs_to_the_message() -> None:
    # B-003
    scene = await play([text_reply(f"Before. {raw_section(PARIS)} After."), DONE])

    assert scene.cities == ["Paris"]
    assert scene.result.messages[1]["content"].split() == ["Before.", "After."]
    assert scene.result.text == "Done."


async def test_the_cut_call_of_several_is_dropped_and_reported() -> None:
    # B-004
    whole_call = tool_call("get_weather", {"city": "Paris"})
    cut_call = tool_call("get_weather", '{"city": "To', id="functions.get_weather:1")
    scene = await play([adaptive_reply(tool_calls=[whole_call, cut_call], finish_reason="length"), DONE])

    assert scene.cities == ["Paris"]
    assert [call.arguments for call in scene.result.tool_calls] == [{"city": "Paris"}]
    assert scene.repair_kinds == ["truncated_call"]


async def test_a_lone_cut_call_does_not_run_and_the_model_is_told() -> None:
    # B-005
    cut_call = tool_call("get_weather", '{"city": "Pa')
    scene = await play([adaptive_reply(tool_calls=[cut_call], finish_reason="length"), DONE])

    assert scene.executed == []
    assert scene.result.tool_calls[0].is_error
    assert "cut off at the output limit" in scene.result.tool_calls[0].result


async def test_a_call_reported_whole_at_the_output_limit_without_its_arguments_does_not_run() -> None:
    # B-006
    first = adaptive_reply(
        tool_calls=[tool_call("get_weather", "{}")],
        finish_reason="tool_calls",
        usage={"prompt_tokens": 9, "completion_tokens": 20},
    )
    scene = await play([first, DONE], options=ModelOptions(max_output_tokens=20))

    assert scene.executed == []
    assert "cut off at the output limit" in scene.result.tool_calls[0].result


async def test_a_raw_call_inside_a_closed_thought_is_none() -> None:
    # B-007
    scene = await play([text_reply(f"<think>I could {raw_section(PARIS)} but no.</think>It is sunny.")])

    assert scene.executed == []
    assert scene.result.text == "It is sunny."
    assert scene.repair_kinds == ["thought_call"]


async def test_a_raw_call_inside_an_unclosed_thought_runs() -> None:
    # B-008
    scene = await play([text_reply(f"I need it. {raw_section(PARIS)}", field="reasoning_content"), DONE])

    assert scene.cities == ["Paris"]
    assert scene.result.messages[1]["reasoning_content"].strip() == "I need it."


async def test_a_call_that_comes_structured_and_raw_runs_once() -> None:
    # B-009
    call = tool_call("get_weather", {"city": "Paris"})
    scene = await play([adaptive_reply(f"Well. {raw_section(PARIS)}", tool_calls=[call]), DONE])

    assert scene.cities == ["Paris"]
    assert scene.repair_kinds == ["repeated_call"]


async def test_a_call_without_markers_at_the_end_of_the_text_runs() -> None:
    # B-010
    scene = await play([text_reply('Well. functions.get_weather:0{"city": "Paris"}'), DONE])

    assert scene.cities == ["Paris"]
    assert scene.result.messages[1]["content"].strip() == "Well."


@pytest.mark.parametrize(
    "text",
    [
        'Try functions.get_moon:0{"city": "Paris"}',
        'Try functions.get_weather:0{"city": "Paris',
        'Write functions.get_weather:0{"city": "Paris"} to call it.',
    ],
)
async def test_text_that_only_looks_like_a_call_stays_text(text: str) -> None:
    # B-010
    scene = await play([text_reply(text)])

    assert scene.executed == []
    assert scene.result.text == text


async def test_a_call_without_name_goes_to_the_only_tool_that_accepts_its_arguments() -> None:
    # B-011
    scene = await play([text_reply(raw_section(raw_call("call_a1b2", '{"city": "Paris"}'))), DONE])

    assert scene.cities == ["Paris"]
    assert "call_name" in scene.repair_kinds


async def test_a_call_without_name_that_no_tool_accepts_is_an_error_result() -> None:
    # B-011
    scene = await play([text_reply(raw_section(raw_call("call_a1b2", '{"planet": "Mars"}'))), DONE])

    assert scene.executed == []
    assert scene.result.tool_calls[0].is_error


async def test_a_marker_inside_a_string_argument_is_text() -> None:
    # B-012
    note = "write <|tool_call_end|> and </think> at the end"
    scene = await play(
        [text_reply(raw_section(raw_call("functions.save_note:0", f'{{"text": "{note}"}}'))), DONE]
    )

    assert scene.executed == [("save_note", {"text": note})]


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_no_marker_is_ever_shown_however_the_stream_is_cut(size: int) -> None:
    # B-013
    reply = text_reply(f"<think>Hm.</think>Sure.<|im_end|>{raw_section(PARIS)}", cuts=size)
    scene = await play([reply, DONE])

    reasoning = "".join(event.text for event in scene.events if isinstance(event, ReasoningDelta))
    assert (scene.shown, reasoning) == ("Sure.Done.", "Hm.")
    assert scene.cities == ["Paris"]
    assert "<|" not in str(scene.result)


@pytest.mark.parametrize("empty", [adaptive_reply(""), adaptive_reply("", reasoning="Let me think.")])
async def test_a_reply_of_no_use_is_asked_for_once_more(empty: ScriptedReply) -> None:
    # B-014
    scene = await play([empty, DONE])

    assert scene.result.text == "Done."
    assert [request.body.get("stream", False) for request in scene.requests] == [True, False]


async def test_a_reply_of_no_use_twice_is_a_model_error() -> None:
    # B-014
    with pytest.raises(ModelError, match="twice"):
        await play([adaptive_reply(""), adaptive_reply("")])


@pytest.mark.parametrize("settings", [{"tools": []}, {"options": ModelOptions(tool_choice="none")}])
async def test_calls_that_were_not_asked_for_are_dropped(settings: dict[str, Any]) -> None:
    # B-015
    call = tool_call("get_weather", {"city": "Paris"})
    scene = await play([adaptive_reply("Sunny, I guess.", tool_calls=[call])], **settings)

    assert scene.executed == []
    assert scene.result.text == "Sunny, I guess."
    assert scene.repair_kinds == ["call_dropped"]


async def test_raw_calls_do_not_run_where_that_is_switched_off_and_stay_hidden() -> None:
    # B-016
    scene = await play(
        [text_reply(f"Sunny. {raw_section(PARIS)}")], options=ModelOptions(raw_tool_calls=False)
    )

    assert scene.executed == []
    assert scene.result.text.strip() == "Sunny."


async def test_an_unknown_finish_reason_is_carried_along() -> None:
    # B-017
    scene = await play([adaptive_reply("Well.", finish_reason="moon_phase")])

    assert scene.result.finish_reason == "moon_phase"
    assert scene.result.steps[0].finish_reason == "other"
    assert scene.result.steps[0].raw_finish_reason == "moon_phase"


def piece(index: int, arguments: str, **head: str) -> dict[str, object]:
    function = {"arguments": arguments, **({"name": head["name"]} if "name" in head else {})}
    identity = {"id": head["id"], "type": "function"} if "id" in head else {}
    return chunk({"tool_calls": [{"index": index, **identity, "function": function}]})


async def test_interleaved_calls_are_joined_by_index_and_get_distinct_ids() -> None:
    # B-018
    chunks = [
        piece(0, "", id="same", name="get_weather"),
        piece(1, "", id="same", name="get_weather"),
        piece(0, '{"city": '),
        piece(1, '{"city": "To'),
        piece(0, '"Paris"}'),
        piece(1, 'kyo"}'),
        chunk({}, finish_reason="tool_calls"),
    ]
    scene = await play([stream_reply(chunks), DONE])

    assert sorted(scene.cities) == ["Paris", "Tokyo"]
    ids = [call["id"] for call in scene.result.messages[1]["tool_calls"]]
    assert len(set(ids)) == 2
    assert [message.get("tool_call_id") for message in scene.result.messages[2:4]] == ids
    joined = {0: "", 1: ""}
    for event in scene.events:
        if isinstance(event, ToolCallDelta):
            joined[event.index] += event.arguments
    assert joined == {0: '{"city": "Paris"}', 1: '{"city": "Tokyo"}'}


async def test_whole_and_streamed_replies_mean_the_same() -> None:
    # B-013
    reply = adaptive_reply(f"<think>Hm.</think>Sure.{raw_section(PARIS)}")
    scene = Scene()
    async with (
        KimiServer(replies=[whole(reply), whole(DONE), reply, DONE]) as server,
        KimiAgent("kimi-k2", tools=scene.tools(), base_url=server.base_url) as agent,
    ):
        at_once = await agent.run("Go")
        async with agent.stream("Go") as run:
            resets = [event.text async for event in run if isinstance(event, TextReset)]

    assert at_once.messages == run.result.messages
    assert resets == ["Sure."]
