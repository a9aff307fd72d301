"""The arms that are recorded: what each does to cached keys and values, and the suite that measures it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gatekeeper.catalog import get_suite
from gatekeeper.domain.probes import AccuracyProbe, FidelityProbe
from gatekeeper.domain.suite import Suite

CACHES: Final = ("fp8_e4m3", "fp8_e5m2", "fp8_e4m3-nearest", "fp8_e5m2-nearest", "int8", "int4", "int3")
"""Emulated caches narrower than 16 bits; `emulated_cache` has their roundings."""
NOISE: Final = {"keys": (0.1, 0.2, 0.4, 0.8), "values": (0.025, 0.05, 0.1, 0.2), "both": (0.05,)}
"""From hardly to badly damaged, about 0.005 to 1 nat per token; values bear less than keys."""


@dataclass(frozen=True, kw_only=True)
class Damage:
    """What an arm does to cached keys and values; nothing: a launch of the 16-bit baseline.

    `noise`: relative to the root mean square of each weight of the projections that make the `part`.
    """

    cache: str = "bf16"
    window: int | None = None
    part: str | None = None
    noise: float = 0.0


def _arms() -> Iterator[tuple[str, Damage]]:
    yield from ((f"launch-{number:02}", Damage()) for number in range(1, 13))
    yield from ((cache, Damage(cache=cache)) for cache in CACHES)
    yield from ((f"window-{window}", Damage(window=window)) for window in (256, 128, 64))
    for part, strengths in NOISE.items():
        yield from ((f"{part}-noise-{noise}", Damage(part=part, noise=noise)) for noise in strengths)


ARMS: Final[Mapping[str, Damage]] = dict(_arms())


def quality_suite(*, documents: int, items_per_task: int | None) -> Suite:
    """Fidelity and accuracy of the standard suite; their batches are the looks of a gate, as large as there."""
    standard = get_suite("standard")
    probes: list[FidelityProbe | AccuracyProbe] = []
    for probe in standard.probes:
        match probe:
            case FidelityProbe():
                size: dict[str, object] = {"documents": documents}
                share = documents / probe.documents
            case AccuracyProbe():
                size = {"items_per_task": items_per_task}
                asked = probe.model_copy(update=size).items
                share = sum(n or 0 for n in asked.values()) / sum(probe.expected_items.values())
            case _:
                continue
        probes.append(probe.model_copy(update={**size, "batches": max(1, round(share * probe.batches))}))
    return standard.model_copy(update={"probes": tuple(probes)})
