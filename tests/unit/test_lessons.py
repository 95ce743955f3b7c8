"""What a server's refusal teaches."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from kimi_agent._core.lessons import Learned, learn
from kimi_agent.errors import (
    ContentFilteredError,
    InvalidRequestError,
    KimiAgentError,
    ModelError,
    ToolsUnsupportedError,
    TransportStatusError,
)

SENT = frozenset(
    {
        "model",
        "messages",
        "tools",
        "stream",
        "prompt",
        "seed",
        "top_p",
        "thinking",
        "tool_choice",
        "max_tokens",
    }
)


def refused(text: str, kind: type[InvalidRequestError] = InvalidRequestError) -> InvalidRequestError:
    """The error of a server that says `text`."""
    return kind("status 400", status_code=400, server_message=text)


def changes(learned: Learned) -> dict[str, Any]:
    """What is learned, the bookkeeping left aside."""
    fresh = Learned()
    return {
        name: value
        for name in Learned.__slots__
        if name not in ("version", "warned") and (value := getattr(learned, name)) != getattr(fresh, name)
    }


def taught(text: str, sent: Any = SENT) -> tuple[str | None, dict[str, Any]]:
    """The kind of the lesson, and what it changed."""
    learned = Learned()
    lesson = learn(refused(text), learned, sent=sent)
    assert (lesson is None) == (changes(learned) == {})
    return lesson and lesson.kind, changes(learned)


@pytest.mark.parametrize(
    ("text", "kind", "change"),
    [
        ("invalid top_p: only 0.95 is allowed for this model", "field_dropped", {"dropped": {"top_p"}}),
        ("Unknown parameter: 'seed'.", "field_dropped", {"dropped": {"seed"}}),
        ("unsupported parameter seed", "field_dropped", {"dropped": {"seed"}}),
        ("property 'seed' is unsupported", "field_dropped", {"dropped": {"seed"}}),
        ("`seed` is not supported", "field_dropped", {"dropped": {"seed"}}),
        ("top_p is not allowed here", "field_dropped", {"dropped": {"top_p"}}),
        ("invalid thinking: only type=enabled", "field_dropped", {"dropped": {"thinking"}}),
        ("thinking.keep is not supported by model", "field_dropped", {"thinking_without_keep": True}),
        (
            "tool_choice 'required' is incompatible with thinking enabled",
            "field_dropped",
            {"dropped": {"tool_choice"}},
        ),
        (
            "'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
            "field_renamed",
            {"renamed": {"max_tokens": "max_completion_tokens"}},
        ),
        (
            "Unknown parameter: 'max_completion_tokens'",
            "field_renamed",
            {"renamed": {"max_completion_tokens": "max_tokens"}},
        ),
        (
            "max_completion_tokens is not supported",
            "field_renamed",
            {"renamed": {"max_completion_tokens": "max_tokens"}},
        ),
        ("unknown role developer", "developer_role", {"developer_as_system": True}),
        ("reasoning_content is missing", "reasoning_required", {"reasoning_required": True}),
        ("image is not allowed in tool messages", "image_in_result", {"text_only_results": True}),
        ("tokenization failed", "dynamic_tools", {"static_tools": True}),
        ("content must be a string", "plain_content", {"plain_text_content": True}),
        ("unknown field stream_options", "field_dropped", {"dropped": {"stream_options"}}),
        ("parallel_tool_calls must be true", "field_dropped", {"dropped": {"parallel_tool_calls"}}),
        (
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
            "raw_tool_mode",
            {"tool_choice": "none"},
        ),
    ],
)
def test_a_refusal_teaches_one_thing(text: str, kind: str, change: dict[str, Any]) -> None:
    assert taught(text) == (kind, change)
    assert taught(f"Upstream said:\n{text}\n(request 1)") == (kind, change)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Invalid request Error",
        "Unknown parameter: 'messages'",
        "Unknown parameter: 'model'",
        "`tools` is not supported",
        "Unknown parameter: 'stream'",
        "Unknown parameter: 'prompt'",
        "Unknown parameter: 'another_one'",
    ],
)
def test_what_no_change_answers_teaches_nothing(text: str) -> None:
    assert taught(text) == (None, {})


def test_a_field_that_was_not_sent_is_not_at_fault() -> None:
    assert taught("Unknown parameter: 'seed'.", sent=frozenset({"model"})) == (None, {})


@pytest.mark.parametrize(
    "error",
    [
        ModelError("Unknown parameter: 'seed'."),
        TransportStatusError("x", status_code=500, server_message="Unknown parameter: 'seed'."),
        KimiAgentError("Unknown parameter: 'seed'."),
    ],
)
def test_only_a_refused_request_teaches(error: KimiAgentError) -> None:
    assert learn(error, Learned(), sent=SENT) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Unknown parameter: 'seed'.", InvalidRequestError),
        ("thinking.keep is not supported", InvalidRequestError),
        ("'max_tokens': use 'max_completion_tokens'", InvalidRequestError),
        ("invalid thinking", InvalidRequestError),
        ('"auto" tool choice requires --enable-auto-tool-choice', ToolsUnsupportedError),
    ],
)
def test_nothing_is_learned_twice(text: str, kind: type[InvalidRequestError]) -> None:
    learned = Learned()

    assert learn(refused(text, kind), learned, sent=SENT) is not None
    before = copy.deepcopy(changes(learned))
    assert learn(refused(text, kind), learned, sent=SENT) is None
    assert changes(learned) == before


def test_a_server_without_tools_is_not_helped_by_leaving_a_field_out() -> None:
    error = refused("Unknown parameter: 'seed', and --tool-call-parser is not set", ToolsUnsupportedError)

    assert learn(error, Learned(tool_choice="none"), sent=SENT) is None


def test_a_refused_content_teaches_nothing_by_itself() -> None:
    assert learn(refused("high risk", ContentFilteredError), Learned(), sent=SENT) is None


def test_a_name_may_go_back_and_forth_but_once() -> None:
    learned = Learned()
    there = refused("'max_tokens' is not supported. Use 'max_completion_tokens' instead.")
    back = refused("Unknown parameter: 'max_completion_tokens'")

    assert learn(there, learned, sent=SENT) is not None
    assert learn(back, learned, sent=SENT) is not None
    assert learned.renamed == {"max_completion_tokens": "max_tokens"}


def test_a_lesson_says_what_was_changed() -> None:
    lesson = learn(refused("Unknown parameter: 'seed'."), Learned(), sent=SENT)

    assert lesson is not None
    assert "'seed'" in lesson.detail


def test_a_person_is_warned_of_each_subject_once() -> None:
    learned = Learned()

    assert [learned.warn_once(subject) for subject in ("a", "b", "a", "b")] == [True, True, False, False]


@pytest.mark.parametrize(
    "text", ["x" * 1_000_000, "invalid " * 100_000, "role" * 250_000, "content " * 100_000]
)
def test_a_very_long_refusal_is_read_in_little_time(text: str) -> None:
    before = time.process_time()

    learn(refused(text), Learned(), sent=SENT)

    assert time.process_time() - before < 1


def test_what_was_learned_can_be_forgotten() -> None:
    learned = Learned()
    earlier = copy.deepcopy(learned)
    learn(refused("Unknown parameter: 'seed'."), learned, sent=SENT)

    learned.restore(earlier)

    assert changes(learned) == {}
