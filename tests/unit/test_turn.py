"""A turn as a state machine: replies and tool results in, commands out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent._core.settled import SettledCall, SettledReply
from kimi_agent._core.turn import (
    CallModel,
    Finish,
    PlannedCall,
    RunTools,
    StepTiming,
    ToolOutcome,
    Turn,
)
from kimi_agent.errors import KimiAgentError, LoopDetectedError, ModelError, StepLimitError, TokenLimitError
from kimi_agent.messages import ToolSpec
from kimi_agent.options import ModelOptions, RunLimits
from kimi_agent.results import Repair, Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimi_agent._core.turn import Command

TOOLS = {"f": ToolSpec(name="f")}
ASK = {"role": "user", "content": "And in Oslo?"}
REPAIR = Repair(kind="arguments", where="step 1, call 0", detail="forgiven")


def turn(
    history: list[dict[str, Any]] | None = None,
    *,
    tools: dict[str, ToolSpec] | None = None,
    options: ModelOptions | None = None,
    **limits: Any,
) -> Turn:
    return Turn(
        history or [],
        [ASK],
        tools=TOOLS if tools is None else tools,
        options=options or ModelOptions(),
        limits=RunLimits(**limits),
    )


def call(place: int = 0, arguments: Any = None, **fields: Any) -> SettledCall:
    return SettledCall(
        index=place,
        id=f"functions.f:{place}",
        name="f",
        arguments={} if arguments is None else arguments,
        arguments_text="{}",
        **fields,
    )


def reply(
    content: str = "",
    *calls: SettledCall,
    finish: str = "stop",
    reasoning: str | None = None,
    **fields: Any,
) -> SettledReply:
    return SettledReply(
        content=content,
        reasoning=reasoning,
        calls=calls,
        finish_reason=finish,
        raw_finish_reason=fields.pop("raw", finish),
        usage=Usage(requests=1, input_tokens=10, output_tokens=5),
        repairs=fields.pop("repairs", ()),
        **fields,
    )


def round_of(machine: Turn, *outcomes: ToolOutcome) -> Command:
    command = machine.on_reply(reply("", *(call(place) for place in range(len(outcomes)))))
    assert isinstance(command, RunTools)
    return machine.on_tool_results(outcomes)


OK = ToolOutcome(text="sunny")


def test_a_turn_begins_with_the_history_and_the_prompt() -> None:
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    machine = turn(history)
    command = machine.start()

    assert command.step == 1
    assert list(command.messages) == [*history, ASK] == list(machine.messages)
    assert command.because is None
    assert (command.asked.step, command.asked.calls_allowed, command.asked.calls_before) == (1, True, 0)


def test_an_answer_ends_the_turn() -> None:
    machine = turn([{"role": "user", "content": "Hi"}])
    machine.start()
    command = machine.on_reply(
        reply("Sunny.", reasoning="hm", repairs=(REPAIR,)), StepTiming(ttft_s=0.5, duration_s=2.0)
    )
    assert isinstance(command, Finish)
    result = command.result

    assert (result.text, result.output, result.reasoning) == ("Sunny.", "Sunny.", "hm")
    assert result.finish_reason == "stop"
    assert result.new_messages == [
        ASK,
        {"role": "assistant", "content": "Sunny.", "reasoning_content": "hm"},
    ]
    assert result.messages == [{"role": "user", "content": "Hi"}, *result.new_messages]
    assert result.usage == Usage(requests=1, input_tokens=10, output_tokens=5)
    assert result.repairs == [REPAIR]
    (step,) = result.steps
    assert (step.step, step.ttft_s, step.duration_s, step.repairs) == (1, 0.5, 2.0, (REPAIR,))


@pytest.mark.parametrize(
    ("finish", "raw", "expected"),
    [
        ("stop", "end_turn", "stop"),
        ("length", "length", "length"),
        ("other", "odd_word", "odd_word"),
        ("other", None, "stop"),
    ],
)
def test_a_run_ends_with_a_word_users_know_or_the_server_s_own(
    finish: str, raw: str | None, expected: str
) -> None:
    machine = turn()
    machine.start()
    command = machine.on_reply(reply("a", finish=finish, raw=raw))

    assert isinstance(command, Finish)
    assert command.result.finish_reason == expected


def test_calls_are_run_and_their_results_go_back_in_call_order() -> None:
    machine = turn()
    machine.start()
    command = machine.on_reply(reply("I look.", call(0, {"a": 1}), call(1)))

    assert command == RunTools(
        step=1,
        calls=(
            PlannedCall(index=0, id="functions.f:0", name="f", arguments={"a": 1}),
            PlannedCall(index=1, id="functions.f:1", name="f", arguments={}),
        ),
    )

    following = machine.on_tool_results(
        [ToolOutcome(text="one", duration_s=0.1), ToolOutcome(text="two", kind="error")]
    )

    assert isinstance(following, CallModel)
    assert (following.step, following.asked.calls_before) == (2, 2)
    assert list(following.messages)[-2:] == [
        {"role": "tool", "tool_call_id": "functions.f:0", "content": "one"},
        {"role": "tool", "tool_call_id": "functions.f:1", "content": "two"},
    ]
    records = machine.result("stop").tool_calls
    assert [(one.step, one.index, one.result, one.is_error, one.duration_s) for one in records] == [
        (1, 0, "one", False, 0.1),
        (1, 1, "two", True, 0.0),
    ]
    assert records[0].arguments == {"a": 1}


def test_calls_of_the_history_count_for_the_next_ids() -> None:
    old = {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]}
    machine = turn([old, {"role": "assistant", "tool_calls": None}])

    assert machine.start().asked.calls_before == 2


def test_a_call_that_must_not_run_is_answered_already() -> None:
    machine = turn()
    machine.start()
    command = machine.on_reply(reply("", call(problem="unknown_tool", explanation="no such tool")))

    assert isinstance(command, RunTools)
    answer = command.calls[0].answer
    assert answer == ToolOutcome(text="no such tool", kind="unknown_tool")
    assert answer is not None
    assert answer.is_error


def test_the_history_of_the_caller_is_not_touched() -> None:
    history = [{"role": "user", "content": "Hi"}]
    machine = turn(history)
    machine.start()
    machine.on_reply(reply("Hello."))

    assert history == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("tools", "choice", "allowed"),
    [(TOOLS, None, True), (TOOLS, "none", False), (TOOLS, "required", True), ({}, None, False)],
)
def test_calls_are_allowed_if_tools_were_offered_and_not_forbidden(
    tools: dict[str, ToolSpec], choice: str | None, allowed: bool
) -> None:
    options = ModelOptions(tool_choice=choice, raw_tool_calls=False, max_output_tokens=9)
    asked = turn(tools=tools, options=options).start().asked

    assert asked.calls_allowed is allowed
    assert not asked.raw_calls_allowed
    assert asked.max_output_tokens == 9


# --- replies nobody can use --------------------------------------------------------------------------


@pytest.mark.parametrize(("reasoning", "word"), [("hm", "reasoning only"), (None, "nothing")])
def test_an_empty_reply_is_asked_for_once_more(reasoning: str | None, word: str) -> None:
    machine = turn()
    first = machine.start()
    again = machine.on_reply(reply(" ", reasoning=reasoning))

    assert isinstance(again, CallModel)
    assert (again.step, again.messages) == (1, first.messages)
    assert again.because is not None
    assert word in str(again.because)
    assert again.because.retryable
    assert machine.result("stop").usage.requests == 1
    assert [repair.kind for repair in machine.result("stop").repairs] == ["empty_reply"]

    assert isinstance(machine.on_reply(reply("Sunny.")), Finish)


def failure(work: Callable[[], object]) -> KimiAgentError:
    with pytest.raises(KimiAgentError) as caught:
        work()
    assert caught.value.result is not None
    assert caught.value.result.finish_reason == "error"
    return caught.value


def test_a_second_empty_reply_ends_the_run() -> None:
    machine = turn()
    machine.start()
    machine.on_reply(reply())
    error = failure(lambda: machine.on_reply(reply()))

    assert isinstance(error, ModelError)
    assert not error.retryable
    assert "step 1" in str(error)
    assert "parser" in str(error)
    assert error.result.messages == [ASK]
    assert error.result.usage.requests == 2


def test_an_empty_reply_in_a_later_step_is_asked_for_again_too() -> None:
    machine = turn()
    machine.start()
    machine.on_reply(reply())
    round_of(machine, OK)

    assert isinstance(machine.on_reply(reply()), CallModel)


def test_a_reply_that_reached_the_limit_with_nothing_ends_the_run() -> None:
    machine = turn()
    machine.start()
    error = failure(lambda: machine.on_reply(reply(finish="length", reasoning="hm")))

    assert isinstance(error, ModelError)
    assert "max_output_tokens" in str(error)
    assert "reasoning only" in str(error)


def test_a_filtered_reply_is_an_answer_even_if_it_is_empty() -> None:
    machine = turn()
    machine.start()
    command = machine.on_reply(reply(finish="content_filter"))

    assert isinstance(command, Finish)
    assert command.result.finish_reason == "content_filter"


def test_a_reply_whose_calls_were_refused_is_an_answer() -> None:
    machine = turn()
    machine.start()

    assert isinstance(machine.on_reply(reply(calls_refused=True)), Finish)


def test_a_request_that_failed_counts() -> None:
    machine = turn()
    machine.start()
    machine.on_failure()

    assert machine.result("error").usage == Usage(requests=1)


# --- limits ------------------------------------------------------------------------------------------


def test_the_steps_of_a_run_are_limited() -> None:
    machine = turn(max_steps=2)
    machine.start()
    round_of(machine, OK)
    machine.on_reply(reply("", call()))
    error = failure(lambda: machine.on_tool_results([ToolOutcome(text="rain")]))

    assert isinstance(error, StepLimitError)
    assert "2 steps" in str(error)
    assert "max_steps" in str(error)
    assert len(error.result.tool_calls) == 2


def test_the_tokens_of_a_run_are_limited() -> None:
    machine = turn(max_total_tokens=30)
    machine.start()
    assert isinstance(round_of(machine, OK), CallModel)
    error = failure(lambda: round_of(machine, OK))

    assert isinstance(error, TokenLimitError)
    assert "30 tokens" in str(error)
    assert "max_total_tokens" in str(error)


def test_three_steps_of_unusable_calls_end_the_run() -> None:
    machine = turn()
    machine.start()
    for kind in ("invalid_arguments", "unknown_tool"):
        round_of(machine, ToolOutcome(text=f"no {kind}", kind=kind))
    error = failure(lambda: round_of(machine, ToolOutcome(text="cut", kind="truncated")))

    assert isinstance(error, ModelError)
    assert "3 steps" in str(error)
    assert "cut" in str(error)
    assert not error.retryable


def test_one_usable_call_begins_the_count_anew() -> None:
    machine = turn()
    machine.start()
    bad = ToolOutcome(text="no", kind="invalid_arguments")
    for _ in range(2):
        round_of(machine, bad)
    round_of(machine, bad, OK)

    assert isinstance(round_of(machine, bad), CallModel)


def test_a_call_that_repeats_is_reminded_refused_and_ended() -> None:
    machine = turn()
    machine.start()
    for _ in range(4):
        round_of(machine, OK)
    contents = [message["content"] for message in machine.messages if message["role"] == "tool"]

    assert contents[:2] == ["sunny", "sunny"]
    assert contents[2].startswith("sunny\n")
    assert "3 times" in contents[2]
    assert machine.result("stop").tool_calls[2].result == contents[2]

    for _ in range(3):
        command = machine.on_reply(reply("", call()))
        assert isinstance(command, RunTools)
        answer = command.calls[0].answer
        assert answer is not None
        assert answer.kind == "refused"
        machine.on_tool_results([answer])
    machine.on_reply(reply("", call()))
    error = failure(lambda: machine.on_tool_results([ToolOutcome(text="no", kind="refused")]))

    assert isinstance(error, LoopDetectedError)
    assert "'f'" in str(error)
    assert "8 times" in str(error)
    assert "max_repeats" in str(error)


def test_a_call_whose_result_changes_may_be_made_for_ever() -> None:
    machine = turn()
    machine.start()

    for place in range(30):
        assert isinstance(round_of(machine, ToolOutcome(text=f"at {place} %")), CallModel)


# --- giving up ---------------------------------------------------------------------------------------


def test_a_turn_given_up_during_a_tool_round_keeps_what_had_finished() -> None:
    machine = turn()
    machine.start()
    machine.on_reply(reply("", call(0), call(1), call(2, problem="unknown_tool", explanation="no such tool")))
    machine.cancel({1: ToolOutcome(text="done")})
    result = machine.result("cancelled")

    assert [message["content"] for message in result.messages if message["role"] == "tool"] == [
        "[cancelled]",
        "done",
        "no such tool",
    ]
    assert [record.is_error for record in result.tool_calls] == [True, False, True]
    assert result.finish_reason == "cancelled"


def test_a_turn_given_up_outside_a_tool_round_needs_no_results() -> None:
    machine = turn()
    machine.start()
    machine.cancel({})
    round_of(machine, OK)
    machine.cancel({})

    assert sum(message["role"] == "tool" for message in machine.messages) == 1
