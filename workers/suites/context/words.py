"""What facts are about: common English words, one token each in most vocabularies."""

from __future__ import annotations

from typing import Final

from workers.suites.dice import Dice

NAMES: Final = tuple(
    (
        "Adam Alice Andrew Anna Arthur Ben Carl Charles Clara Daniel David Diana Edward Emma Eric Frank George Grace "
        "Harry Helen Henry Jack James Jane John Julia Karl Kate Laura Leo Lucy Maria Mark Martin Mary Max Michael "
        "Nick Nora Oliver Oscar Paul Peter Rachel Robert Rosa Ruth Sam Sarah Simon Sophie Thomas Tom Victor Walter"
    ).split()
)
PLACES: Final = tuple(
    (
        "bakery bridge castle cathedral chapel cinema factory farm garage garden gallery harbor hospital hotel "
        "kitchen laboratory library market mill museum observatory office palace pharmacy prison school station "
        "theater tower university warehouse workshop"
    ).split()
)
THINGS: Final = tuple(
    (
        "apple arrow basket bell boat book bottle box brick brush button camera candle carpet chair clock coat coin "
        "cup desk door drum engine feather fence flag flute glass glove guitar hammer hat horn jacket kettle key knife "
        "ladder lamp letter lock map mirror needle paper pencil piano pillow pipe plate ring rope ruler saddle scarf "
        "shell shirt shoe spoon stamp stone stool sword table ticket towel train trumpet umbrella violin wagon watch "
        "wheel window"
    ).split()
)
CITIES: Final = tuple(
    (
        "Athens Berlin Boston Cairo Chicago Dublin Geneva Havana London Madrid Milan Moscow Munich Oslo Paris Prague "
        "Rome Sydney Tokyo Toronto Vienna Warsaw Zurich"
    ).split()
)


def code(dice: Dice, digits: int) -> str:
    """A number of so many digits that starts with none of 0."""
    return str(dice.choose("123456789")) + "".join(dice.choose("0123456789") for _ in range(digits - 1))


def codes(dice: Dice, digits: int, count: int) -> list[str]:
    """So many numbers, no two alike."""
    found: dict[str, None] = {}
    while len(found) < count:
        found[code(dice, digits)] = None
    return list(found)
