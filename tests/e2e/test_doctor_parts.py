"""The parts of the examination that never wait: replies as they came, markers, remedies, lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kimi_agent.dialects import ENGINES, GENERATIONS
from kimi_agent.doctor import CHECKS
from kimi_agent.doctor.finding import VERDICTS, Finding, Report
from kimi_agent.doctor.leaks import Leak, leaks_in
from kimi_agent.doctor.observed_reply import ObservedReply
from kimi_agent.doctor.remedies import reasoning_remedy, start_command, tool_remedy
from kimi_agent.doctor.table import WIDTH, Table, command_lines
from kimi_agent.testing import chunk
from kimi_agent.transport import END_OF_REPLY

K3_PARSERS = "--enable-auto-tool-choice --tool-call-parser kimi_k3 --reasoning-parser kimi_k3"


def test_a_streamed_reply_is_joined_and_nothing_in_it_is_repaired() -> None:
    reply = ObservedReply()
    head = {"index": 0, "id": "a", "function": {"name": "functions.f:0", "arguments": ""}}
    for each in (
        chunk({"role": "assistant", "content": None, "reasoning": "Hm"}),
        chunk({"reasoning": "m.", "content": "<think>"}),
        chunk({"tool_calls": [head]}),
        chunk({"tool_calls": [{"index": 0, "id": "", "function": {"arguments": '{"x": '}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"name": None, "arguments": "1}"}}]}),
        chunk({"tool_calls": [{"index": 1, "id": "a", "function": {"name": "g", "arguments": {"y": 2}}}]}),
        chunk({}, finish_reason="tool_calls"),
        chunk(usage={"prompt_tokens": 1}),
        END_OF_REPLY,
    ):
        reply.add(each)

    assert (reply.content, reply.reasoning) == ("<think>", {"reasoning": "Hmm."})
    assert [(call.id, call.name, call.decoded) for call in reply.calls] == [
        ("a", "functions.f:0", {"x": 1}),
        ("a", "g", {"y": 2}),
    ]
    assert (reply.finish_reason, reply.usage, reply.is_ended) == ("tool_calls", {"prompt_tokens": 1}, True)


@pytest.mark.parametrize("choices", [None, [], [None], [{"delta": 3}], [{"message": {"tool_calls": 1}}], "x"])
def test_what_is_no_reply_is_an_empty_one(choices: object) -> None:
    reply = ObservedReply()
    reply.add({"choices": choices, "usage": "many", "system_fingerprint": 7})

    assert (reply.content, reply.reasoning, reply.calls, reply.usage) == ("", {}, [], None)


@pytest.mark.parametrize(
    ("text", "kind", "text_format"),
    [
        ("a<|tool_calls_section_begin|>", "call", "k2"),
        ("<|tool_call_end|>", "call", "k2"),
        ('functions.get_weather:0{"city"', "call", "k2"),
        ("</think>", "thought", "k2"),
        ("<think>", "thought", "k2"),
        ("<|im_end|>", "framing", "k2"),
        ("<|open|>think<|sep|>", "thought", "k3"),
        ("<|close|>tools<|sep|>", "call", "k3"),
        ("<|end_of_msg|>", "framing", "k3"),
    ],
)
def test_markers_tell_what_leaked_and_of_which_format(text: str, kind: str, text_format: str) -> None:
    leak = leaks_in(f"Well, {text} and so on")[0]

    assert (leak.kind, leak.text_format) == (kind, text_format)


@pytest.mark.parametrize("text", ["", "I think so.", "a < b | c > d", "functions.f:x", "<b>tool_call</b>"])
def test_plain_text_has_no_markers(text: str) -> None:
    assert leaks_in(text) == []


def test_one_leak_of_a_kind_is_enough() -> None:
    assert leaks_in("<think></think><|tool_call_begin|><|tool_call_end|>") == [
        Leak("call", "<|tool_call_begin|>", "k2"),
        Leak("thought", "<think>", "k2"),
    ]


@pytest.mark.parametrize(
    ("engine", "generation", "command"),
    [
        (
            "vllm",
            "k3",
            f"vllm serve W --trust-remote-code {K3_PARSERS}",
        ),
        (
            "tensorrt-llm",
            "k2.5",
            "trtllm-serve serve W --trust_remote_code --tool_parser kimi_k2 --reasoning_parser kimi_k25",
        ),
        (
            "tensorrt-llm",
            "k2-thinking",
            "trtllm-serve serve W --trust_remote_code --tool_parser kimi_k2 --reasoning_parser kimi_k2",
        ),
        ("llama.cpp", "k2", "llama-server -m W.gguf --jinja"),
        ("moonshot", "k2", ""),
        ("generic", "k2", ""),
    ],
)
def test_the_start_command_has_the_flags_of_engine_and_generation(
    engine: str, generation: str, command: str
) -> None:
    made = GENERATIONS[generation]

    told = start_command(ENGINES[engine], made, "W", text_format=made.text_format, reasons=False)

    assert told == command


def test_what_a_server_calls_its_weights_cannot_become_a_command_of_its_own() -> None:
    told = start_command(ENGINES["vllm"], GENERATIONS["k2"], "x; rm -rf /", text_format="k2", reasons=False)

    assert told.startswith("vllm serve 'x; rm -rf /' --trust-remote-code")


def test_remedies_fit_servers_nobody_can_set_and_servers_nobody_knows() -> None:
    hosted = tool_remedy(ENGINES["moonshot"], "k2")
    unknown = tool_remedy(ENGINES["generic"], "k3")
    thoughts = reasoning_remedy(ENGINES["llama.cpp"], "k2", GENERATIONS["k2-thinking"])

    assert "report it" in hosted
    assert "vllm: --enable-auto-tool-choice --tool-call-parser kimi_k3" in unknown
    assert thoughts == "start llama.cpp with --jinja --reasoning-format auto"


def test_long_findings_are_wrapped_under_each_other() -> None:
    found = Finding(title="tool call", verdict="fail", seen="no " * 60, remedy="do " * 60 + "x" * 200)

    lines = list(Table().rows(found))

    assert max(map(len, lines)) <= WIDTH
    assert lines[0].startswith("fail  tool call ")
    assert {line[:24] for line in lines[1:]} == {" " * 24}
    assert sum("fix:" in line for line in lines) == 1


def test_a_row_of_skipped_checks_is_one_line() -> None:
    table = Table()
    skipped = [Finding(title=f"check {place}", verdict="skip", seen="no server") for place in range(4)]
    other = Finding(title="other", verdict="skip", seen="something else")

    lines = [line for each in (*skipped, other) for line in table.rows(each)]
    closing = list(table.closing(report_of(*skipped, other)))

    assert lines == ["skip  4 more checks     no server"]
    assert closing == ["skip  other             something else", "", "5 skipped"]


def report_of(*findings: Finding) -> Report:
    return Report(
        base_url="",
        api="chat",
        model=None,
        engine=None,
        generation=None,
        context_tokens=None,
        findings=findings,
    )


def test_a_command_is_broken_before_its_flags_only() -> None:
    command = "serve " + " ".join(f"--flag-{place} value-{place}" for place in range(12))

    lines = list(command_lines(command))

    assert len(lines) > 1
    assert max(map(len, lines)) <= WIDTH
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert all(line.startswith("    --flag-") for line in lines[1:])
    assert " ".join(line.removesuffix("\\").strip() for line in lines) == command


def test_the_how_to_page_names_every_check() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/check-a-deployment.md").read_text("utf-8")

    listed = re.findall(r"^\| `(\w+)` \| ([\w ,]+) \|", page, re.MULTILINE)

    assert [row for row in listed if row[0] not in VERDICTS] == [(each.name, each.title) for each in CHECKS]
