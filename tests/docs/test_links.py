"""Links and paths in the docs lead somewhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.docs.markdown import PAGES, ROOT, anchors, prose

if TYPE_CHECKING:
    from pathlib import Path

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
REPOSITORY_PATH = re.compile(r"`((?:examples|docs|tests|kimi_agent|\.ci)/[\w./-]*)`")
DOCS = [page for page in PAGES if page.parent != ROOT]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def links(page: Path) -> list[str]:
    return [match[1] for match in LINK.finditer(prose(page))]


def local_links(page: Path) -> list[str]:
    return [target for target in links(page) if not urlsplit(target).scheme]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    broken: list[str] = []
    for target in local_links(page):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            broken.append(target)

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_link_to_the_web_is_encrypted(page: Path) -> None:
    assert [target for target in links(page) if urlsplit(target).scheme not in ("", "https")] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_path_of_the_repository_exists(page: Path) -> None:
    named = REPOSITORY_PATH.findall(prose(page))

    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_page_can_be_reached_from_the_index() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        for target in local_links(page):
            linked = (page.parent / target.partition("#")[0]).resolve()
            if linked.suffix == ".md" and linked.exists() and linked not in reached:
                waiting.append(linked)

    assert [name(page) for page in DOCS if page not in reached] == []
