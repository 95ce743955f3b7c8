"""The shape of the package that no linter keeps."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kimi_agent"
MODULES = sorted(PACKAGE.rglob("*.py"))
CORE = sorted((PACKAGE / "_core").glob("*.py"))
WAITING = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
MAX_LINES = 400
MAX_FUNCTION_LINES = 60

# In pieces, so that this file does not hold what it looks for.
REGISTRIES = re.compile(
    "|".join(
        host.replace(" ", r"\.")
        for host in (
            "pypi org/simple",
            "pythonhosted org",
            "deb debian org",
            "registry npmjs org",
            "registry yarnpkg com",
        )
    )
)
FOLDERS = [word[::-1] for word in ("krow", "toor", "mraf")]
MACHINE_PATHS = re.compile(f"(?:^|[^A-Za-z0-9_.])/(?:{'|'.join(FOLDERS)})/")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tracked_files() -> list[Path]:
    """The files of the repository, or, outside one, those of the unpacked source."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        paths = [ROOT / entry for entry in listing.stdout.decode().split("\0") if entry]
    else:
        paths = [path for path in ROOT.rglob("*") if not {".venv", ".git"} & set(path.parts)]
    return [path for path in paths if path.is_file()]


@pytest.mark.parametrize("path", CORE, ids=name)
def test_the_core_never_waits(path: Path) -> None:
    waiting = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, WAITING)]

    assert [node.lineno for node in waiting] == []


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_is_short_enough_to_be_read_at_once(path: Path) -> None:
    text = path.read_text("utf-8")
    functions = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES]

    assert text.count("\n") < MAX_LINES, "is there a second noun in it?"
    assert long == []


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_only_one_module_imports_openai_when_it_runs(path: Path) -> None:
    if path.name == "openai_transport.py":
        return

    assert {module for module in runtime_imports(path) if module.split(".")[0] in OPENAI_AND_HTTP} == set()


OPENAI_AND_HTTP = {"openai", "httpx", "httpx2", "httpcore", "httpcore2", "requests", "aiohttp"}


def runtime_imports(path: Path) -> set[str]:
    """The modules that `path` imports, those for type checkers aside."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_says_in_its_first_line_what_it_is(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8")))

    assert docstring
    assert docstring.splitlines()[0].endswith((".", ":"))


def test_no_file_names_a_package_registry_or_a_path_of_one_machine() -> None:
    found: list[str] = []
    for path in tracked_files():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # packed recordings and models
        found += [
            f"{name(path)}:{number}"
            for number, line in enumerate(text.splitlines(), start=1)
            if REGISTRIES.search(line) or MACHINE_PATHS.search(line)
        ]

    assert found == []
