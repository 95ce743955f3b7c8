"""Real engines as fixtures: llama.cpp, started here, and vLLM, named by a variable. See README.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NothingReportedError
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

pytest.register_assert_rewrite("tests.engines.event_grammar", "tests.engines.weather")

from tests.engines.weather import Served  # noqa: E402 - its asserts are rewritten by the line above

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

HERE = Path(__file__).parent
START_S = 60.0
STOP_S = 10.0

ENGINES = ["llama.cpp", pytest.param("vllm", marks=pytest.mark.live)]
# Without parser flags vLLM leaves calls raw, with them it never does: that takes a server more.
VLLM_URLS = {
    "tiny-kimi": ("KIMI_TEST_VLLM_URL", "KIMI_TEST_VLLM_RAW_URL"),
    "tiny-kimi-thinking": ("KIMI_TEST_VLLM_THINKING_URL", "KIMI_TEST_VLLM_THINKING_RAW_URL"),
}


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """The engine to test on."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def plain(engine: str, request: pytest.FixtureRequest) -> Served:
    """The model that does not think."""
    return _served(engine, "tiny-kimi", request)


@pytest.fixture(scope="session")
def thinking(engine: str, request: pytest.FixtureRequest) -> Served:
    """The model that thinks first."""
    return _served(engine, "tiny-kimi-thinking", request)


@pytest.fixture(scope="session", params=["tiny-kimi", "tiny-kimi-thinking"], ids=["plain", "thinking"])
def served(engine: str, request: pytest.FixtureRequest) -> Served:
    """Either model."""
    return _served(engine, request.param, request)


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spare each client the tenth of a second it takes to read certificates: all is plain HTTP here."""
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def streamed(request: pytest.FixtureRequest) -> bool:
    """Whether the replies are streamed."""
    value: bool = request.param
    return value


@pytest.fixture(scope="session")
def llama_cpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """The base URL of a model, whose server starts when it is first asked for."""
    logs = tmp_path_factory.mktemp("llama_cpp")
    with ExitStack() as servers:

        @cache
        def base_url(model: str) -> str:
            return servers.enter_context(_llama_server(HERE / "models" / f"{model}.gguf", logs / model))

        yield base_url


def _served(engine: str, model: str, request: pytest.FixtureRequest) -> Served:
    if engine == "llama.cpp":
        start: Callable[[str], str] = request.getfixturevalue("llama_cpp")
        return Served(base_url=start(model), raw_base_url=start(model))
    variable, raw_variable = VLLM_URLS[model]
    url = os.environ.get(variable)
    if not url:
        pytest.skip(f"{variable} names no vLLM server with {model}; see tests/engines/README.md")
    return Served(base_url=url, raw_base_url=os.environ.get(raw_variable))


@contextmanager
def _llama_server(model: Path, log: Path) -> Generator[str]:
    """The base URL of a llama.cpp that runs as long as the block."""
    command = [sys.executable, str(HERE / "llama_server.py"), str(model)]
    with (
        log.open("wb") as printed,
        subprocess.Popen(  # noqa: S603 - our own script, by its full path
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=printed
        ) as process,
    ):
        try:
            report = _report_of(process, log)
            if "import_error" in report:
                pytest.skip(f"llama.cpp cannot be imported, install xllamacpp: {report['import_error']}")
            yield report["base_url"]
        finally:
            _stop(process)


def _report_of(process: subprocess.Popen[bytes], log: Path) -> dict[str, Any]:
    """What the server says first; a failure with the end of its log if it says nothing in time."""
    said: IO[bytes] | None = process.stdout
    assert said is not None
    with ThreadPoolExecutor(1) as reader:
        line = reader.submit(said.readline)
        try:
            report = line.result(START_S)
        except NothingReportedError:
            process.kill()  # also ends the reader
            report = b""
    if not report:
        pytest.fail(
            f"llama.cpp did not start within {START_S} s:\n{log.read_text('utf-8', 'replace')[-2000:]}"
        )
    fields: dict[str, Any] = json.loads(report)
    return fields


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
