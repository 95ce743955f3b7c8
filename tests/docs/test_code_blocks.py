"""Every Python block of README and docs runs, each on its own, against a simulated server.

`http://127.0.0.1:8000/v1` in a block is that server, and it is what KIMI_BASE_URL names. Blocks may `await`
at their top level, as in `python -m asyncio`. Two comments around a block are understood:

    <!-- not run: REASON -->    above it: it is only compiled
    <!-- prints -->             below it: the next block is what it prints
"""

from __future__ import annotations

import ast
import asyncio
import gc
import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from kimi_agent.testing import KimiServer
from tests.docs.markdown import PAGES, Block, blocks

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path
    from typing import Any

PYTHON = [block for page in PAGES for block in blocks(page) if block.language == "python"]
RUN = [block for block in PYTHON if block.not_run is None]
MAX_NOT_RUN = 6

# Short programs end without closing their agent, and leave the connection to the interpreter.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What a block is run as: types find their module, as in a program."""
    module = ModuleType("documented_program")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[KimiServer]:
    with KimiServer(model="kimi-k2") as server:
        monkeypatch.setenv("KIMI_BASE_URL", server.base_url)
        yield server


def place(block: Block) -> str:
    return block.place


@pytest.mark.parametrize("block", RUN, ids=place)
def test_a_documented_program_runs(
    block: Block,
    module: ModuleType,
    server: KimiServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    run(block, module, server)
    # What was left open is noticed now, not in a later test.
    module.__dict__.clear()
    gc.collect()

    printed = capsys.readouterr().out
    if block.prints is not None:
        assert printed == block.prints


def run(block: Block, module: ModuleType, server: KimiServer) -> None:
    text = block.text.replace("http://127.0.0.1:8000/v1", server.base_url)
    # Blank lines in front make tracebacks name the page's own lines.
    source = "\n" * (block.line - 1) + text
    code = compile(source, block.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, module.__dict__)  # noqa: S102 - our own documentation
        return

    async def awaited() -> None:
        coroutine: Coroutine[Any, Any, None] = eval(code, module.__dict__)  # noqa: S307 - same
        await coroutine

    asyncio.run(awaited())


def test_a_program_that_cannot_run_here_is_at_least_python() -> None:
    for block in PYTHON:
        compile(block.text, block.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_few_programs_are_not_run() -> None:
    assert len(PYTHON) - len(RUN) <= MAX_NOT_RUN
    assert len(RUN) > len(PAGES)
