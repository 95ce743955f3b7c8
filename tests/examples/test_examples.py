"""Each file of examples/, run as a person runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kimi_agent.testing import KimiServer
from tests.docs.markdown import blocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MODEL = ROOT / "tests" / "engines" / "models" / "tiny-kimi.gguf"
ESCAPE = "\x1b"


@pytest.fixture
def server() -> Iterator[KimiServer]:
    with KimiServer() as server:
        yield server


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", **extra}


def run_example(
    name: str, *arguments: str, given: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    return subprocess.run(  # noqa: S603 - our own files
        command,
        input=given,
        env=environment(variables),
        capture_output=True,
        encoding="utf-8",
        timeout=90,
        check=False,
    )


def output_of(name: str, *arguments: str, given: str = "", **variables: str) -> str:
    done = run_example(name, *arguments, given=given, **variables)

    assert (done.returncode, done.stderr) == (0, "")
    assert ESCAPE not in done.stdout
    return done.stdout


def labelled(output: str) -> list[tuple[str, str]]:
    """The lines of the quickstart as (label, text)."""
    found = re.findall(r"^(\w+) +(.*)$", output, flags=re.MULTILINE)
    labels = {"prompt", "text", "text_reset", "tool_call", "tool_result", "answer"}
    return [(label, text) for label, text in found if label in labels]


def test_every_example_is_run_here() -> None:
    here = Path(__file__).read_text("utf-8")

    assert [path.name for path in sorted(EXAMPLES.glob("*.py")) if f'"{path.name}"' not in here] == []


@pytest.fixture(scope="module")
def quickstart() -> str:
    """What the quickstart prints into a pipe while nothing is configured."""
    return output_of("quickstart.py")


def test_the_quickstart_without_a_server_starts_a_simulated_one_and_says_so(quickstart: str) -> None:
    assert "No KIMI_BASE_URL is set, so a simulated engine was started at http://127.0.0.1:" in quickstart
    assert "no neural network" in quickstart


def test_the_quickstart_shows_the_text_reset_the_calls_the_results_and_the_answer(quickstart: str) -> None:
    lines = labelled(quickstart)

    order = ["prompt", "text", "text_reset", *["tool_call"] * 2, *["tool_result"] * 2, "text", "answer"]
    assert [label for label, _ in lines] == order
    calls = [text for label, text in lines if label == "tool_call"]
    assert calls == ['get_weather {"city": "Paris"}', 'get_weather {"city": "Tokyo"}']
    answer = lines[-1][1]
    assert "Paris: weather Sunny" in answer
    assert "Tokyo: weather Sunny" in answer


def test_the_quickstart_prints_results_as_they_come_not_in_the_order_of_the_calls(quickstart: str) -> None:
    results = [json.loads(text) for label, text in labelled(quickstart) if label == "tool_result"]

    assert quickstart.count('\ntool_result {"weather": "Sunny", ') == 2
    assert [result["city"] for result in results] == ["Tokyo", "Paris"]


def test_the_readme_shows_what_the_quickstart_prints(quickstart: str) -> None:
    shown = next(block.text for block in blocks(ROOT / "README.md") if "tool_result" in block.text)

    assert without_numbers(quickstart) == without_numbers(shown)


def without_numbers(output: str) -> str:
    """Output without the port and the tokens, which are not the same each time."""
    return re.sub(r":\d+/v1|\d+(?= tokens| out)", "N", output)


def test_the_quickstart_uses_the_server_model_and_key_of_the_environment() -> None:
    with KimiServer("moonshot", model="kimi-k2-test", api_key="open-sesame") as server:
        output = output_of(
            "quickstart.py",
            KIMI_BASE_URL=server.base_url,
            KIMI_MODEL="kimi-k2-test",
            KIMI_API_KEY="open-sesame",
        )

        assert [request.body["model"] for request in server.requests] == ["kimi-k2-test"] * 2
    assert output.startswith(f"Server: {server_url(output)}")
    assert "simulated" not in output
    assert "open-sesame" not in output


def server_url(output: str) -> str:
    return output.removeprefix("Server: ").partition("\n")[0]


def test_the_quickstart_finds_the_only_model_of_a_server_by_itself(server: KimiServer) -> None:
    output_of("quickstart.py", KIMI_BASE_URL=server.base_url)

    assert [request.path for request in server.requests] == ["/v1/models", *["/v1/chat/completions"] * 2]


def test_the_quickstart_says_which_address_does_not_answer_without_a_traceback() -> None:
    done = run_example("quickstart.py", KIMI_BASE_URL="http://127.0.0.1:9/v1")

    assert done.returncode == 1
    assert "TransportConnectionError: no server answered at http://127.0.0.1:9/v1" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_the_quickstart_strikes_withdrawn_text_through_on_a_terminal() -> None:
    output = on_a_terminal("quickstart.py")

    assert f"{ESCAPE}[2;9mI will look that up: get_weather for Paris and Tokyo.{ESCAPE}[0m" in output
    assert f"{ESCAPE}[32manswer     {ESCAPE}[0m Paris: weather Sunny" in output


def on_a_terminal(name: str, **variables: str) -> str:
    import pty  # noqa: PLC0415 - not on every platform

    ours, theirs = pty.openpty()
    process = subprocess.Popen(  # noqa: S603 - our own files
        [sys.executable, str(EXAMPLES / name)],
        stdin=theirs,
        stdout=theirs,
        env=environment({"TERM": "xterm", "COLUMNS": "120", **variables}),
    )
    os.close(theirs)
    received = bytearray()
    try:
        while piece := os.read(ours, 65536):
            received += piece
    except OSError:
        pass  # Linux reports the closed terminal as an error
    finally:
        os.close(ours)
        process.wait(timeout=30)
    assert process.returncode == 0
    return received.decode()


def test_the_minimal_loop_calls_its_tool_and_answers(server: KimiServer) -> None:
    output = output_of("minimal_loop.py", KIMI_BASE_URL=server.base_url)

    assert output.splitlines()[0] == "add({'a': 19.5, 'b': 22.5}) -> 42.0"
    assert "42.0" in output.splitlines()[1]


def test_only_final_text_is_written_where_nothing_can_be_wiped(server: KimiServer) -> None:
    output = output_of("stream_to_terminal.py", "Weather in Oslo and Lima?", KIMI_BASE_URL=server.base_url)

    assert output == "Oslo: weather Sunny, temperature 21. Lima: weather Sunny, temperature 21.\n"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_terminal_is_wiped_before_the_answer(server: KimiServer) -> None:
    output = on_a_terminal("stream_to_terminal.py", KIMI_BASE_URL=server.base_url)

    before, wiped, after = output.partition(f"\r{ESCAPE}[J")
    assert before == "I will look that up: get_weather for Paris and Tokyo."
    assert wiped
    assert after.strip() == "Paris: weather Sunny, temperature 21. Tokyo: weather Sunny, temperature 21."


def test_a_chat_goes_on_from_its_history(server: KimiServer) -> None:
    output = output_of(
        "chat_with_history.py",
        given="What is the weather in Oslo?\nAnd in Rome?\n",
        KIMI_BASE_URL=server.base_url,
    )

    assert "kimi> Oslo: weather Sunny, temperature 21." in output
    assert "kimi> Rome: weather Sunny, temperature 21." in output
    assert output.endswith("The conversation has 9 messages.\n")
    last_request = server.requests[-1].body["messages"]
    assert [message["role"] for message in last_request] == [
        "system",
        *["user", "assistant", "tool", "assistant"],
        *["user", "assistant", "tool"],
    ]


def test_a_server_without_parser_is_shown_raw_and_repaired() -> None:
    plain, _, repaired = output_of("raw_token_server.py").partition("An agent makes of it:")

    assert "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>" in plain
    assert "tool_calls: None" in plain
    assert "<|" not in repaired
    assert "answer:     Paris: weather Sunny, temperature 21." in repaired
    assert "repair:     raw_tool_calls (step 1, reply)" in repaired


def test_each_failure_is_met_where_a_program_branches() -> None:
    output = output_of("error_handling.py")

    assert [line[:14].strip() for line in output.splitlines()] == [
        "wrong model:",
        "no server:",
        *["overloaded:", ""],
        *["no quota:", ""],
        *["step limit:", ""],
    ]
    assert "suggestion 'kimi-k2-instruct'" in output
    assert "EngineOverloadedError, again in 0.1 s" in output
    assert "requests sent: 1" in output
    assert "StepLimitError after 3 steps" in output


@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="xllamacpp, llama.cpp's package, is not installed")
def test_a_real_model_on_this_machine_calls_the_tool_for_both_cities() -> None:
    done = run_example("local_llama_cpp.py", KIMI_GGUF=str(MODEL))

    assert done.returncode == 0, done.stderr
    assert "tool_call   get_weather {'city': 'Paris'}" in done.stdout
    assert "tool_call   get_weather {'city': 'Tokyo'}" in done.stdout
    assert '"temperature": 21' in done.stdout.partition("answer ")[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((), "Name a GGUF model:"), (("nowhere.gguf",), "There is no model file at nowhere.gguf.")],
)
def test_a_missing_model_is_explained_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = run_example("local_llama_cpp.py", *arguments)

    assert done.returncode == 1
    assert done.stderr.startswith(said)
    assert "KIMI_GGUF" in done.stderr
    assert done.stderr.count("\n") == 1
