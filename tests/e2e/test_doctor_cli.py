"""`kimi-agent doctor` as a person or a script meets it: what it prints, where, and how it exits."""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent.cli import doctor
from kimi_agent.doctor import CHECKS
from kimi_agent.testing import Hang, KimiServer, Reply, adaptive_reply, error_reply

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

START = """
import argparse, sys
from kimi_agent.cli import doctor
parser = argparse.ArgumentParser(prog="kimi-agent")
doctor.add_to(parser.add_subparsers(required=True))
arguments = parser.parse_args()
sys.exit(arguments.run(arguments))
"""
CHAT = "/v1/chat/completions"
K2 = "moonshotai/Kimi-K2-Instruct"
KEY = "sk-wrong-wrong-wrong"
ESCAPE = "\x1b"
LONGEST_S = 60


def run_doctor(*arguments: str) -> int:
    parser = argparse.ArgumentParser(prog="kimi-agent")
    doctor.add_to(parser.add_subparsers(required=True))
    parsed = parser.parse_args(["doctor", *arguments])
    status: int = parsed.run(parsed)
    return status


@contextmanager
def started(
    *arguments: str, stdout: int = subprocess.PIPE, env: Mapping[str, str] | None = None
) -> Generator[subprocess.Popen[bytes]]:
    """The command as a process of its own, which ends with the block."""
    with subprocess.Popen(  # noqa: S603 - this Python and our own module
        [sys.executable, "-c", START, "doctor", *arguments], stdout=stdout, stderr=subprocess.PIPE, env=env
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def nobody() -> str:
    """An address where nobody listens any more."""
    with KimiServer() as server:
        return server.base_url


# --- the table ---------------------------------------------------------------------------------------


def test_a_healthy_server_gets_one_line_a_check_and_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    with KimiServer(model=K2) as server:
        status = run_doctor("--base-url", server.base_url)

    printed = capsys.readouterr()
    rows = [line for line in printed.out.splitlines() if re.match(r"(ok|warn|fail|skip) ", line)]
    assert status == 0
    assert [row[6:22].strip() for row in rows] == [check.title for check in CHECKS]
    assert {row[:4].strip() for row in rows} == {"ok", "warn", "skip"}
    assert max(map(len, printed.out.splitlines())) <= 100
    assert ESCAPE not in printed.out
    assert printed.out.splitlines()[-1] == "1 warning, 22 ok, 1 skipped"
    assert printed.err == ""


def test_a_missing_parser_gets_status_1_and_a_command_to_copy(capsys: pytest.CaptureFixture[str]) -> None:
    with KimiServer(model=K2, parser=False) as server:
        status = run_doctor("--base-url", server.base_url)

    out = capsys.readouterr().out
    flags = "--enable-auto-tool-choice --tool-call-parser kimi_k2"
    command = re.sub(r" \\\n +", " ", out[out.index("  vllm serve") :]).strip()
    assert status == 1
    assert command == f"vllm serve {K2} --trust-remote-code {flags}"
    # Told once; the other checks refer to it.
    assert out.count(f"fix: start vllm with {flags}\n") == 1
    assert "fix: as for tool call\n" in out
    assert max(map(len, out.splitlines())) <= 100


def test_where_nothing_listens_the_table_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    status = run_doctor("--base-url", nobody())

    out = capsys.readouterr().out
    assert status == 1
    assert out.startswith("fail  reachable ")
    assert "(connection refused)" in out
    assert f"skip  {len(CHECKS) - 1} more checks" in out
    assert out.endswith(f"\n\n1 failed, {len(CHECKS) - 1} skipped\n")


def test_what_a_server_says_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    rude = error_reply(500, f"{ESCAPE}[2J{ESCAPE}]0;title\x07gone\r\nfail", type="server_error")

    with KimiServer(model=K2, replies=rude) as server:
        run_doctor("--base-url", server.base_url)

    out = capsys.readouterr().out
    assert "gone" in out
    assert all(letter.isprintable() or letter == "\n" for letter in out)


def test_on_a_terminal_verdicts_are_coloured_unless_that_is_unwanted() -> None:
    with KimiServer(model=K2) as server:
        coloured = on_a_terminal(server.base_url)
        plain = on_a_terminal(server.base_url, NO_COLOR="1")

    assert f"{ESCAPE}[32mok  {ESCAPE}[0m  reachable" in coloured
    assert f"{ESCAPE}[32m" not in plain
    assert "ok    reachable" in plain


def on_a_terminal(base_url: str, **environment: str) -> str:
    """What a terminal gets that is standard output of the command."""
    ours, theirs = pty.openpty()
    variables = {**os.environ, "TERM": "xterm", **environment}
    pieces: list[bytes] = []
    with (
        closing(os.fdopen(ours, "rb", buffering=0)) as terminal,
        started("--base-url", base_url, stdout=theirs, env=variables) as process,
    ):
        os.close(theirs)
        # Linux says by an error that the other side is closed, other systems by an empty piece.
        with suppress(OSError):
            while piece := terminal.read(4096):
                pieces.append(piece)
        assert process.wait(LONGEST_S) == 0
    return b"".join(pieces).decode()


def test_letters_that_the_output_has_not_are_no_reason_to_fail() -> None:
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}

    with (
        KimiServer(model=K2, replies={CHAT: adaptive_reply("我是 Kimi。")}) as server,
        started("--base-url", server.base_url, env=ascii_only) as process,
    ):
        out, errors = process.communicate(timeout=LONGEST_S)

    assert errors == b""
    assert b'"?? Kimi?"' in out


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    with (
        KimiServer(model=K2, chunk_delay_s=0.001) as server,
        started("--base-url", server.base_url) as process,
    ):
        assert process.stdout is not None
        first = process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        errors = process.stderr.read()

    assert first.startswith(b"ok    reachable")
    assert errors == b""


def test_ctrl_c_ends_it_with_one_line() -> None:
    hanging = Reply(headers={"content-type": "application/json"}, body=[Hang()])

    with (
        KimiServer(model=K2, replies=hanging) as server,
        started("--base-url", server.base_url) as process,
    ):
        server.wait_for(lambda: any(request.path == CHAT for request in server.requests), LONGEST_S)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LONGEST_S)

    assert errors == b"kimi-agent doctor: interrupted\n"
    assert process.returncode == 130


# --- for machines ------------------------------------------------------------------------------------


def test_json_is_one_object_with_every_finding(capsys: pytest.CaptureFixture[str]) -> None:
    with KimiServer("sglang", model=K2, parser=False) as server:
        status = run_doctor("--base-url", server.base_url, "--json")

    report = json.loads(capsys.readouterr().out)
    assert status == 1
    assert {name: report[name] for name in ("base_url", "api", "model", "engine", "generation")} == {
        "base_url": server_url(report),
        "api": "chat",
        "model": K2,
        "engine": "sglang",
        "generation": "k2",
    }
    assert (report["is_healthy"], report["context_tokens"]) == (False, 131_072)
    assert [each["check"] for each in report["checks"]] == [check.name for check in CHECKS]
    assert set(report["checks"][0]) == {"check", "title", "verdict", "seen", "remedy", "duration_s"}
    assert sum(report["counts"].values()) == len(CHECKS)
    assert report["start_command"].endswith("--tool-call-parser kimi_k2")


def server_url(report: dict[str, Any]) -> str:
    """The address in a report, if it is one of this machine."""
    url: str = report["base_url"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1", url)
    return url


def test_json_keeps_what_goes_on_meanwhile_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    loading = [error_reply(503, "Loading model", type="unavailable_error"), error_reply(404, "no list")]

    with KimiServer(model=K2, replies={"/v1/models": loading}) as server:
        status = run_doctor("--base-url", server.base_url, "--model", K2, "--wait", "20", "--json")

    printed = capsys.readouterr()
    assert status == 0
    assert json.loads(printed.out)["is_healthy"]
    assert printed.err == "waiting for the server: it is loading the model (0 of 20 s)\n"


def test_a_server_that_never_comes_is_waited_for_as_long_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    status = run_doctor("--base-url", nobody(), "--wait", "0.6")

    printed = capsys.readouterr()
    assert status == 1
    assert printed.err == "waiting for the server: nothing listens there (0 of 0.6 s)\n"
    assert printed.out.startswith("fail  reachable ")


# --- what it is given --------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["KIMI", "MOONSHOT", "OPENAI"])
def test_the_agents_environment_variables_are_read(
    prefix: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with KimiServer(model=K2, api_key="sk-right-right") as server:
        monkeypatch.setenv(f"{prefix}_BASE_URL", server.base_url)
        monkeypatch.setenv(f"{prefix}_API_KEY", "sk-right-right")
        monkeypatch.setenv("KIMI_MODEL", "Kimi-K2-Instruct")
        status = run_doctor()

    out = capsys.readouterr().out
    assert status == 1
    assert "'Kimi-K2-Instruct' is not served" in out
    assert "ok    API key           accepted" in out


def test_a_key_is_never_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def echo(request: Any) -> Reply:
        return error_reply(401, f"Incorrect API key provided: {request.headers['authorization']}")

    with KimiServer(replies={"/v1/models": echo}) as server:
        for more in ([], ["--json"]):
            assert run_doctor("--base-url", server.base_url, "--api-key", KEY, *more) == 1

    printed = capsys.readouterr()
    assert "Incorrect API key provided" in printed.out
    assert KEY not in printed.out + printed.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no server is named: pass --base-url, or set KIMI_BASE_URL"),
        (["--base-url", "ftp://user:hush@host/v1"], "is not a URL"),
        (["--base-url", "https://kimi.example/v1"], "no API key for kimi.example: pass --api-key"),
    ],
)
def test_what_cannot_be_run_is_one_clear_line_and_status_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run_doctor(*arguments)

    printed = capsys.readouterr()
    assert status == 2
    assert printed.out == ""
    assert printed.err.startswith("kimi-agent doctor: ")
    assert printed.err.count("\n") == 1
    assert said in printed.err
    assert "hush" not in printed.err


@pytest.mark.parametrize(
    "wrong",
    [
        ["--engine", "ollama"],
        ["--generation", "k9"],
        ["--api", "responses"],
        ["--wait", "-1"],
        ["--wait", "soon"],
        ["--timeout", "0"],
        ["--timeout", "inf"],
    ],
)
def test_a_wrong_value_is_refused_with_status_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run_doctor(*wrong)

    assert stopped.value.code == 2
    assert wrong[1] in capsys.readouterr().err


def test_its_help_has_an_example_and_names_the_variables(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run_doctor("--help")

    out = capsys.readouterr().out
    assert stopped.value.code == 0
    assert "example:\n  kimi-agent doctor --base-url" in out
    assert "KIMI_BASE_URL, KIMI_MODEL, KIMI_API_KEY" in out
