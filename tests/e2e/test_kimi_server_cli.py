"""`kimi-agent simulate` as a process."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from kimi_agent.cli.main import main
from kimi_agent.testing import KimiServer

if TYPE_CHECKING:
    from collections.abc import Iterator

START = "import sys; from kimi_agent.cli.main import main; sys.exit(main())"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    arguments = ["simulate", "--engine", "sglang", "--port", "0", "--no-parser"]
    with subprocess.Popen(  # noqa: S603 - this Python and our own module
        [sys.executable, "-c", START, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        yield started
        started.kill()


def test_it_serves_says_where_and_ends_quietly_on_ctrl_c(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    greeting, export = process.stdout.readline(), process.stdout.readline()
    base_url = export.removeprefix("export KIMI_BASE_URL=").strip()
    with urllib.request.urlopen(f"{base_url}/models", timeout=10) as response:  # noqa: S310 - our server
        served = response.read()
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=10)

    assert greeting == f"simulated sglang on {base_url} (Ctrl-C stops it)\n"
    assert b'"id":"kimi-simulated"' in served
    assert (process.returncode, rest, errors) == (0, "", "")


def test_a_port_in_use_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    with KimiServer() as server:
        port = urlsplit(server.base_url).port
        status = main(["simulate", "--port", str(port)])

    assert status == 1
    assert capsys.readouterr().err == (
        f"kimi-agent simulate: 127.0.0.1:{port} is in use; choose another with --port (0 takes a free one)\n"
    )


@pytest.mark.parametrize("command", [[], ["simulate"]])
def test_every_command_has_help_with_an_example(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--help"])

    assert stopped.value.code == 0
    assert "example:\n  kimi-agent simulate --engine vllm" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [["--port", "70000"], ["--chunk-delay-ms", "-1"], ["--engine", "x"]])
def test_a_wrong_value_is_refused_with_status_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", *wrong])

    assert stopped.value.code == 2
    assert wrong[1] in capsys.readouterr().err
