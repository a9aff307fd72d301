"""The reference pages that are generated from the code, and the site's table of contents."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Name of a page -> its text."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    folder = tmp_path_factory.mktemp("reference")
    reference.write(folder)
    return {path.stem: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("commands", "### `gatekeeper gate`"),
        ("commands", "#### `gatekeeper waiver grant`"),
        ("settings", "| `GATEKEEPER_WEBHOOK_NETWORKS` | `()` | Networks such as"),
        ("settings", "| `DATABASE_URL` | `None` | None: the embedded PostgreSQL"),
        ("metrics", "| `decode_kl` | decode KL | nats/token |"),
        ("api", "## `POST /api/v1/runs/{run_id}/waivers`"),
    ],
)
def test_the_reference_speaks_of_what_the_code_has(pages: dict[str, str], page: str, text: str) -> None:
    assert text in pages[page]


def test_the_site_lists_every_page_and_no_other() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = [page for entry in navigation for page in entry.values() if isinstance(page, str)]
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))
