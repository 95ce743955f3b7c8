"""Twice the input is twice the work, whatever the input is made of."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent._core.call_name import spoken_name
from kimi_agent._core.k2_text import K2TextParser
from kimi_agent._core.lenient_json import UnreadableError, read_value
from kimi_agent._core.loop_guard import LoopGuard
from kimi_agent._core.redaction import one_line
from kimi_agent._core.reply_reader import ReplyReader
from kimi_agent._core.settle import settle
from kimi_agent._core.settled import Asked
from kimi_agent._core.sse import SseDecoder
from kimi_agent._core.status_errors import StatusAnswer, status_error
from kimi_agent.dialects.k2_format import K2Marker
from tests.property.corpus import ARGUMENTS, BEGIN, CALL, CLOSE, THINK, THOUGHT, TOOLS, call, section

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

    from _typeshed import TraceFunction

    from kimi_agent.json_types import JsonObject

# Text that repeats; each is fed whole and character by character.
REPEATED = {
    "plain text": "It is sunny. ",
    "white space": " ",
    "lone brackets": "<",
    "begun markers": "<|tool_calls_section_begi",
    "dropped markers": K2Marker.MIDDLE,
    "thoughts": f"{THINK}a{THOUGHT}",
    "open thoughts": THINK,
    "calls": call(),
    "calls in thoughts": f"{THINK}{call()}{THOUGHT}",
    "calls in open thoughts": f"{THINK}{call()}b",
    "sections": section(call()),
    "section begins": f"{BEGIN} a",
    "call begins": f"{CALL}x",
    "call begins with spaces": f"{CALL} x y",
    "strings never closed": f'{CALL}f:0{ARGUMENTS}{{"',
    "argument markers": f"{'x' * 30}:0{ARGUMENTS}",
    "argument markers after ids": f"functions.f:0{ARGUMENTS}",
    "ids": "functions.f:0 ",
    "bare calls": "functions.f:0{} ",
    "bare calls never closed": 'functions.f:0{"a":',
    "empty calls": f"{CALL}{ARGUMENTS}{CLOSE}",
}

# Text that repeats inside the arguments of one call.
INSIDE = {
    "letters": "a",
    "markers": CLOSE,
    "escaped quotes": '\\"',
    "quotes": '"',
    "quotes and markers": f'"{CLOSE}',
    "brackets": "{[",
    "commas": ", ",
    "fences": "```\n",
    "white space": " ",
}


def reply_of(deltas: Iterable[JsonObject]) -> None:
    reader = ReplyReader(TOOLS)
    for delta in deltas:
        reader.feed({"choices": [{"delta": delta}]})
    reader.end()
    settle(reader.close()[1], Asked(step=1, tools=TOOLS))


def text_in_pieces(text: str) -> None:
    parser = K2TextParser()
    for character in text:
        parser.feed(character)
    parser.close()


def text_reply(text: str) -> Callable[[], object]:
    return lambda: reply_of([{"content": text}])


def calls_reply(entries: list[JsonObject]) -> Callable[[], object]:
    return lambda: reply_of({"tool_calls": [entry]} for entry in entries)


def entry(index: int | None, call_id: str | None, name: str | None, arguments: str) -> JsonObject:
    function: dict[str, Any] = {"name": name, "arguments": arguments}
    return {"index": index, "id": call_id, "function": function}


def sse(pieces: Iterable[bytes]) -> None:
    decoder = SseDecoder(max_event_bytes=10**9)
    for piece in pieces:
        decoder.feed(piece)
    decoder.close()


def unreadable(text: str) -> None:
    try:
        read_value(text)
    except UnreadableError:
        return


def looped(count: int) -> None:
    guard = LoopGuard(None)
    for each in range(count):
        guard.note("f", {"a": each % 10}, "same")


def status(message: str) -> Callable[[], object]:
    return lambda: status_error(StatusAnswer(status_code=400, body={"error": {"message": message}}))


WORK: dict[str, Callable[[int], Callable[[], object]]] = {
    **{
        f"text of {name}, whole": lambda n, part=part: text_reply(part * (n // 20))
        for name, part in REPEATED.items()
    },
    **{
        f"text of {name}, in characters": lambda n, part=part: lambda: text_in_pieces(part * (n // 20))
        for name, part in REPEATED.items()
    },
    **{
        f"{name} in raw arguments": lambda n, part=part: text_reply(
            f'{CALL}functions.f:0{ARGUMENTS}{{"a":"{part * (n // 20)}'
        )
        for name, part in INSIDE.items()
    },
    **{
        f"{name} in arguments that cannot be read": lambda n, part=part: (
            lambda: unreadable(f'{{"a":"{part * (n // 20)}')
        )
        for name, part in INSIDE.items()
    },
    "a fence and white space": lambda n: lambda: unreadable(f"```\n{' ' * n}x"),
    "one call in pieces": lambda n: calls_reply(
        [entry(0, "a", "f", '{"a":"')] + [entry(0, None, None, "a")] * n
    ),
    "one call, its id new each time": lambda n: calls_reply(
        [entry(0, f"call_{each}", "f", '{"a":"' if each == 0 else "a") for each in range(n)]
    ),
    "one call without index, its id new each time": lambda n: calls_reply(
        [entry(None, f"call_{each}", "f" if each == 0 else None, '{"a":"a') for each in range(n)]
    ),
    "a name in pieces": lambda n: calls_reply([entry(0, "a", "x", "")] * n),
    "many calls": lambda n: calls_reply([entry(each, f"id{each}", "f", "{}") for each in range(n // 5)]),
    "many calls with one id": lambda n: calls_reply([entry(each, "id", "f", "{}") for each in range(n // 5)]),
    "many calls with markers": lambda n: calls_reply(
        [entry(each, f"id{each}", "f", f"{{}}{CLOSE}{call('f:1', '{}')}") for each in range(n // 5)]
    ),
    "calls structured and raw": lambda n: (
        lambda: reply_of(
            [
                {"tool_calls": [entry(each, f"id{each}", "f", f'{{"a":{each}}}') for each in range(n // 5)]},
                {"content": "".join(call("f:0", f'{{"a":{each}}}') for each in range(n // 5))},
            ]
        )
    ),
    "a long name": lambda n: lambda: spoken_name(f"call_{'1' * n}!"),
    "an event of many lines": lambda n: lambda: sse([b"data: x\n" * n]),
    "an event byte by byte": lambda n: lambda: sse([b"x"] * n),
    "many events": lambda n: lambda: sse([b"data: x\n\n"] * n),
    "an error about the context": lambda n: status("maximum context length is 1 tokens " * (n // 10)),
    "an error about secrets": lambda n: lambda: one_line("sk-abcdefghijkl " * n),
    "an error in an error": lambda n: status(json.dumps({"error": {"message": "{" * n}})),
    "calls that repeat": lambda n: lambda: looped(n),
}


def steps(work: Callable[[], object]) -> int:
    """How many lines of Python `work` runs, and how many functions written in C it calls."""
    count = 0

    def on_line(_frame: FrameType, event: str, _argument: object) -> TraceFunction:
        nonlocal count
        count += event == "line"
        return on_line

    def on_call(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "c_call"

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(on_line)
    sys.setprofile(on_call)
    try:
        work()
    finally:
        sys.setprofile(before[1])
        sys.settrace(before[0])
    return count


@pytest.mark.parametrize("name", WORK)
def test_four_times_the_input_takes_at_most_four_times_the_steps(name: str) -> None:
    # Beyond a short input, so that what is done once weighs little; the bounds on rewinding are small.
    small, large = (steps(WORK[name](size)) for size in (500, 2000))

    assert large <= 4.6 * small + 200


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", WORK)
def test_four_times_the_input_takes_about_four_times_as_long(name: str) -> None:
    size = 2000
    while (small := fastest(WORK[name](size))) < 0.01 and size < 500_000:
        size *= 2
    large = fastest(WORK[name](4 * size))

    # Quadratic work would take sixteen times as long.
    assert large <= 9 * small + 0.02, f"{size}: {small:.3f} s, {4 * size}: {large:.3f} s"


def fastest(work: Callable[[], object]) -> float:
    """Seconds of processor time of the fastest of three runs."""
    times: list[float] = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)
