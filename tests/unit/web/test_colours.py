"""The style sheet keeps its promises: contrast in both colour schemes, nothing from elsewhere."""

from __future__ import annotations

import re

import pytest

from gatekeeper.web.assets import ASSETS
from gatekeeper.web.badges import OUTCOMES, STATES, VERDICTS

SHEET = ASSETS["gatekeeper.css"].content.decode()
TONES = ("pass", "fail", "unsure", "invalid", "error", "live", "quiet")
TEXT = [
    *((ink, ground) for ink in ("ink", "soft", "link") for ground in ("page", "card", "sunk")),
    *((tone, f"{tone}-wash") for tone in TONES),
    *((tone, ground) for tone in TONES for ground in ("card", "page")),
    *(("card", tone) for tone in TONES),  # the big badge
    *((tone, "sunk") for tone in ("pass", "fail")),  # outcomes above answers
    ("ink", "fail-wash"),  # a mismatch
    ("ink", "pass-wash"),  # text over a plot's zone
]
SHAPES = [
    *((line, "card") for line in ("edge", "focus", "series-first", "series-second", "series-noise")),
    ("edge", "page"),
    *((tone, "pass-wash") for tone in TONES),
]


def palette(scheme: str) -> dict[str, str]:
    light, dark = re.findall(r":root \{(.*?)\}", SHEET, flags=re.DOTALL)
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light))
    return found | dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", dark)) if scheme == "dark" else found


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("pairs", "least"), [(TEXT, 4.5), (SHAPES, 3.0)], ids=["text", "shapes"])
def test_contrast_meets_wcag_aa(scheme: str, pairs: list[tuple[str, str]], least: float) -> None:
    colours = palette(scheme)
    weak = {
        pair: round(found, 2)
        for pair in pairs
        if (found := contrast(colours[pair[0]], colours[pair[1]])) < least
    }
    assert weak == {}


def test_the_dark_scheme_names_every_colour_of_the_light_one() -> None:
    _, dark = re.findall(r":root \{(.*?)\}", SHEET, flags=re.DOTALL)
    assert set(re.findall(r"--([\w-]+): #", dark)) == set(palette("light"))


def test_the_sheet_loads_nothing() -> None:
    assert not re.search(r"@import|url\(|//[a-z]", SHEET)


def test_no_two_verdicts_share_word_or_symbol_and_all_have_a_tone() -> None:
    for badges in (VERDICTS, STATES):
        assert len({badge.word for badge in badges.values()}) == len(badges)
    assert len({badge.symbol for badge in VERDICTS.values()}) == len(VERDICTS)
    used = {badge.tone for badges in (VERDICTS, STATES, OUTCOMES) for badge in badges.values()}
    assert used <= set(TONES)
    assert all(f".tone-{tone} {{" in SHEET for tone in TONES)
