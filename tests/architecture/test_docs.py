"""The documentation hangs together: every page is in the site's navigation, every link leads to a place that exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
GENERATED = "reference/"
"""Pages that `make docs` writes."""
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", [ROOT / "README.md", *(DOCS / name for name in PAGES)], ids=lambda p: p.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(_prose(page)) if not _leads_somewhere(link, page)]
    assert broken == []


def test_every_page_is_in_the_navigation_and_the_other_way_round() -> None:
    listed = list(_files(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert sorted(name for name in listed if not name.startswith(GENERATED)) == PAGES
    assert len(listed) == len(set(listed))


def _files(nav: list[dict[str, Any]]) -> list[str]:
    found: list[str] = []
    for entry in nav:
        for value in entry.values():
            found += _files(value) if isinstance(value, list) else [value]
    return found


def _leads_somewhere(link: str, page: Path) -> bool:
    if re.match(r"[a-z]+:", link):
        return True
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if target.is_relative_to(DOCS / "reference"):
        return True
    return target.exists() and (not anchor or target.suffix != ".md" or anchor in _anchors(target))


def _anchors(page: Path) -> set[str]:
    """Of its headings, as Python-Markdown's `toc` names them: the second of a name gets `_1`."""
    found: set[str] = set()
    for title in re.findall(r"^#+ (.+)$", _prose(page), flags=re.MULTILINE):
        plain = re.sub(r"[^\w\s-]", "", re.sub(r"[`*]|\]\([^)]*\)", "", title)).strip().lower()
        slug = re.sub(r"[-\s]+", "-", plain)
        found.add(slug if slug not in found else f"{slug}_1")
    return found


def _prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
