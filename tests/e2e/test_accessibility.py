"""axe-core looks at every kind of page: nothing in it may keep anybody out."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.e2e.conftest import Open, Site, every_page

pytestmark = pytest.mark.browser
WCAG_AA = {
    "resultTypes": ["violations"],
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]},
}


KINDS = (
    "runs",
    "failed",
    "invalid",
    "running",
    "items",
    "tokens",
    "margins",
    "comparison",
    "submit",
    "memory",
)


@pytest.mark.timeout(300)  # axe looks at each of the thousands of elements of a run's page
@pytest.mark.parametrize(
    ("scheme", "width", "kinds"), [("light", 1280, KINDS), ("dark", 360, ("runs", "inconclusive"))]
)
def test_no_page_has_a_barrier(
    open_page: Open, site: Site, scheme: str, width: int, kinds: tuple[str, ...]
) -> None:
    page = open_page("/runs", viewport={"width": width, "height": 800}, color_scheme=scheme)
    axe, paths, found = Axe(), every_page(site), {}
    for name in kinds:
        page.goto(paths[name])
        answer = axe.run(page, options=WCAG_AA).response
        if answer["violations"]:
            found[name] = [
                (violation["id"], violation["nodes"][0]["html"]) for violation in answer["violations"]
            ]
    assert found == {}
