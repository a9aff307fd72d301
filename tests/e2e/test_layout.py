"""What a reader would fault, measured in a real Chromium: cut text, tiny letters, wasted width, a page that jumps."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page

from tests.e2e.conftest import Open, Site, every_page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

PHONE, LAPTOP, WALL = (
    {"width": 360, "height": 780},
    {"width": 1280, "height": 800},
    {"width": 2560, "height": 1300},
)
SMALLEST_LETTERS_PX = 9
PASSING_TIME = re.compile(r"[\d.]+ (s|min|h)\b( ago)?|now")
MOST_SHIFTED = 0.05
"""Half of what counts as good; a table that arrives in pieces moves its columns by up to 0.02."""

SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
UNFOLD = "document.querySelectorAll('details').forEach(fold => { fold.open = true })"
CUT_CAPTIONS = """
    [...document.querySelectorAll('.scroll caption:not(.unseen)')]
        .filter(caption => caption.getClientRects().length)
        .filter(caption => caption.getBoundingClientRect().width > caption.closest('.scroll').clientWidth + 1)
        .map(caption => caption.textContent.trim())
"""
TINY_LETTERS = """
    smallest => [...document.querySelectorAll('svg text')]
        .filter(text => text.getClientRects().length)
        .map(text => [parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a, text.textContent])
        .filter(([size]) => size < smallest)
"""
BARE_LABELS = """
    [...document.querySelectorAll('.pairs td[data-label]')]
        .filter(cell => cell.getClientRects().length && !cell.textContent.trim() && !cell.querySelector('svg'))
        .map(cell => cell.dataset.label)
"""
SCROLLING_TABLES = """
    [...document.querySelectorAll('.scroll')]
        .filter(box => box.scrollWidth > box.clientWidth + 1 && !box.querySelector('.tokens') && !box.closest('figure'))
        .map(box => box.getAttribute('aria-label'))
"""
CUT_CHOICES = """
    [...document.querySelectorAll('main select')].filter(list => list.getClientRects().length).filter(list => {
        const style = getComputedStyle(list), pen = document.createElement('canvas').getContext('2d')
        pen.font = style.font
        const needed = pen.measureText(list.selectedOptions[0].text).width
        return needed > list.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 16
    }).map(list => `${list.name}: ${list.selectedOptions[0].text}`)
"""
"""The arrow of a list takes 16 px."""
BROKEN_SHORT_CELLS = """
    [...document.querySelectorAll('.brief tbody :is(th, td):not(.words)')].filter(cell => {
        const words = document.createRange()
        words.selectNodeContents(cell)
        return words.getBoundingClientRect().height > 2 * parseFloat(getComputedStyle(cell).fontSize)
    }).map(cell => cell.textContent.trim())
"""
LEADS_NOWHERE = """
    [...document.querySelectorAll('main a[href^="#"]')]
        .filter(link => !document.getElementById(link.hash.slice(1)))
        .map(link => link.textContent.trim())
"""
SHIFTED = """
    new Promise(resolve => {
        let shifted = 0
        new PerformanceObserver(list => list.getEntries().forEach(entry => { shifted += entry.value }))
            .observe({type: 'layout-shift', buffered: true})
        setTimeout(() => resolve(shifted), 150)
    })
"""


def faults(page: Page, script: str, paths: dict[str, str], argument: object = None) -> dict[str, object]:
    """What a script finds on each page with everything unfolded, by the page's name; pages without a fault left out."""
    found = {}
    for name, path in paths.items():
        page.goto(path)
        page.evaluate(UNFOLD)
        found[name] = page.evaluate(script, argument)
    return {name: value for name, value in found.items() if value}


def test_a_phone_shows_every_page_whole(open_page: Open, site: Site) -> None:
    page = open_page("/runs", viewport=PHONE)
    wide = f"({SIDEWAYS}) > 0 ? ['the page scrolls sideways'] : []"
    found = faults(page, f"[...({wide}), ...({CUT_CAPTIONS}), ...({BARE_LABELS})]", every_page(site))
    assert found == {}


@pytest.mark.parametrize("screen", [PHONE, LAPTOP, WALL], ids=["phone", "laptop", "wall"])
def test_the_letters_of_drawings_can_be_read(open_page: Open, site: Site, screen: dict[str, int]) -> None:
    page = open_page("/runs", viewport=screen)
    paths = {name: every_page(site)[name] for name in ("failed", "window", "cached", "history")}
    assert faults(page, TINY_LETTERS, paths, SMALLEST_LETTERS_PX) == {}


def test_a_wall_has_room_for_every_table(open_page: Open, site: Site) -> None:
    page = open_page("/runs", viewport=WALL)
    assert faults(page, SCROLLING_TABLES, every_page(site)) == {}


def test_no_list_cuts_what_is_chosen(open_page: Open, site: Site) -> None:
    page = open_page("/runs", viewport=PHONE)
    assert faults(page, CUT_CHOICES, every_page(site)) == {}


def test_a_wall_has_room_for_short_cells_in_one_line(open_page: Open, site: Site) -> None:
    page = open_page("/runs", viewport=WALL)
    assert faults(page, BROKEN_SHORT_CELLS, {"policy": every_page(site)["policy"]}) == {}


def test_every_page_says_the_same_without_javascript(open_page: Open, site: Site) -> None:
    def said(page: Page, path: str) -> str:
        page.goto(path)
        return PASSING_TIME.sub("", page.locator("main").inner_text())

    scripted, bare = open_page("/runs"), open_page("/runs", java_script_enabled=False)
    for name, path in every_page(site).items():
        assert said(bare, path) == said(scripted, path), name


def test_every_link_within_a_page_leads_somewhere(open_page: Open, site: Site) -> None:
    page = open_page("/runs", viewport=LAPTOP)
    assert faults(page, LEADS_NOWHERE, every_page(site)) == {}


def test_no_page_jumps_while_it_loads(open_page: Open, site: Site) -> None:
    page = open_page("/runs", viewport=LAPTOP)
    shifted = {}
    for name, path in every_page(site).items():
        page.goto(path)
        shifted[name] = page.evaluate(SHIFTED)
    assert {name: value for name, value in shifted.items() if value > MOST_SHIFTED} == {}


def test_names_stay_in_sight_while_a_comparison_is_scrolled(open_page: Open, site: Site) -> None:
    runs = "&".join(f"run={run_id}" for run_id in list(vars(site.runs).values())[:5])
    page = open_page(f"/compare?{runs}", viewport=PHONE)
    assert page.evaluate(SIDEWAYS) <= 0
    box = page.get_by_role("region", name="Figures")
    scrolled = box.evaluate("box => { box.scrollLeft = 1e6; return box.scrollLeft }")
    assert scrolled > 0
    name = box.get_by_role("rowheader").first
    assert name.bounding_box()["x"] >= box.bounding_box()["x"] - 1  # type: ignore[index]
