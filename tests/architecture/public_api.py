"""The public names and signatures of the package, as its source has them.

    python -m tests.architecture.public_api

writes them to public_api.txt beside this file, which test_public_api.py compares with the source: a
change of what users type is a visible line in every diff.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from docs.generate_api import declarations, public_declarations, public_modules, signature

if TYPE_CHECKING:
    from collections.abc import Iterator

SNAPSHOT = Path(__file__).with_name("public_api.txt")
HEAD = "# Written by `python -m tests.architecture.public_api`: run it after a change of the public API.\n"


def lines() -> Iterator[str]:
    """The snapshot, line by line."""
    yield HEAD
    for module, sources in public_modules():
        yield f"\n[{module}]\n"
        for node, _ in public_declarations(sources):
            yield f"{signature(node)}\n"
            members = declarations(node) if isinstance(node, ast.ClassDef) else ()
            yield from (f"    {signature(member)}\n" for member, _ in members)


def snapshot() -> str:
    """All public names, module by module."""
    return "".join(lines())


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(), "utf-8")
