"""What a reply means, as a message of the history."""

from __future__ import annotations

from typing import Any

from kimi_agent._core.settled import SettledCall, SettledReply
from kimi_agent.results import Usage

CALL = SettledCall(index=0, id="functions.f:0", name="f", arguments={}, arguments_text="{}")


def message(
    content: str = "", *, reasoning: str | None = None, calls: tuple[SettledCall, ...] = ()
) -> dict[str, Any]:
    return SettledReply(
        content=content,
        reasoning=reasoning,
        calls=calls,
        finish_reason="stop",
        raw_finish_reason="stop",
        usage=Usage(),
        repairs=(),
    ).message()


def test_an_answer_has_content_even_if_it_is_empty() -> None:
    assert message("Oslo") == {"role": "assistant", "content": "Oslo"}
    assert message() == {"role": "assistant", "content": ""}


def test_reasoning_is_kept_even_if_it_is_empty() -> None:
    assert message("a", reasoning="hm")["reasoning_content"] == "hm"
    assert message("a", reasoning="")["reasoning_content"] == ""
    assert "reasoning_content" not in message("a")


def test_calls_stand_beside_text_but_not_beside_blank_text() -> None:
    calls = [{"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": "{}"}}]

    assert message("I look.", calls=(CALL,)) == {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": calls,
    }
    assert message(" \n", calls=(CALL,)) == {"role": "assistant", "tool_calls": calls}
