"""Replies that the output limit cuts, at every place of a reply with two calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import regex

from kimi_agent import ModelError, StepLimitError
from tests.engines.weather import RAW_CALLS, TWO_CITIES, Answer, Served, ask, raw_reply

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.anyio

PATHS = pytest.mark.parametrize("raw", [None, RAW_CALLS], ids=["parsed", "raw"])
BEGUN = regex.compile(r"<\|tool_call_begin\|>\s*functions\.get_weather:\d+<\|tool_call_argument_begin\|>")
WHOLE = regex.compile(r'<\|tool_call_argument_begin\|>(\{"city": "[^"]*"\})')
CLOSED = regex.compile(WHOLE.pattern + r"<\|tool_call_end\|>")
CALLS = [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Tokyo"})]


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here: what is cut is decided without waiting."""
    return "asyncio"


async def cut_step(served: Served, limit: int, raw: Mapping[str, str] | None, *, streamed: bool) -> Answer:
    """The first step alone, its tools included."""
    return await ask(
        served,
        TWO_CITIES,
        streamed=streamed,
        raw=raw,
        max_output_tokens=limit,
        max_steps=1,
        may_fail=True,
    )


def check_cut(answer: Answer, raw_text: str) -> None:
    """Only whole calls ran, the cut one is dropped or answered with an error, and it is said."""
    records = answer.result.tool_calls
    kinds = [repair.kind for repair in answer.result.repairs]
    ran = [(record.name, record.arguments) for record in records if not record.is_error]
    closed, whole, begun = (len(pattern.findall(raw_text)) for pattern in (CLOSED, WHOLE, BEGUN))

    assert ran == CALLS[: len(ran)]
    # A parser that reports a whole object whose end marker was cut is right to do so.
    assert closed <= len(ran) <= whole
    if begun > len(ran):
        assert "truncated_call" in kinds
    if records:
        assert isinstance(answer.error, StepLimitError)
        assert [record.is_error for record in records] == ([False] * len(ran) or [True])
        assert answer.result.messages[-1]["role"] == "tool"
    elif answer.error is None:
        assert answer.result.finish_reason == "length"
        assert answer.result.text == raw_text.partition("<|")[0]
    else:
        assert isinstance(answer.error, ModelError)
        assert "max_output_tokens" in str(answer.error)
        assert raw_text == ""


@PATHS
@pytest.mark.parametrize("limit", range(8, 33))
async def test_wherever_a_reply_is_cut_no_partial_call_runs(
    plain: Served, streamed: bool, raw: Mapping[str, str] | None, limit: int
) -> None:
    raw_text = raw_reply(plain, TWO_CITIES, max_tokens=limit)

    answer = await cut_step(plain, limit, raw, streamed=streamed)

    check_cut(answer, raw_text)


@PATHS
@pytest.mark.parametrize("limit", range(8, 60, 4))
async def test_wherever_a_thinking_reply_is_cut_no_partial_call_runs(
    thinking: Served, streamed: bool, raw: Mapping[str, str] | None, limit: int
) -> None:
    raw_text = raw_reply(thinking, TWO_CITIES, max_tokens=limit)

    answer = await cut_step(thinking, limit, raw, streamed=streamed)

    check_cut(answer, raw_text)


@PATHS
@pytest.mark.parametrize("limit", [21, 23, 25])
async def test_the_model_is_told_that_its_call_was_cut(
    plain: Served, streamed: bool, raw: Mapping[str, str] | None, limit: int
) -> None:
    answer = await ask(plain, TWO_CITIES, streamed=streamed, raw=raw, max_output_tokens=limit, may_fail=True)

    first = answer.result.tool_calls[0]
    told = answer.result.messages[2]
    assert first.is_error
    assert "cut off" in first.result
    assert told == {"role": "tool", "tool_call_id": first.id, "content": first.result}
    assert answer.error is None or isinstance(answer.error, ModelError | StepLimitError)


@PATHS
async def test_a_limit_that_is_large_enough_cuts_nothing(
    plain: Served, streamed: bool, raw: Mapping[str, str] | None
) -> None:
    answer = await cut_step(plain, 60, raw, streamed=streamed)

    assert [(record.name, record.arguments) for record in answer.result.tool_calls] == CALLS
    assert "truncated_call" not in [repair.kind for repair in answer.result.repairs]
