"""Where the memory of the KV pool goes: what the declared load takes, and what is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gatekeeper.domain.plan import Plan
from gatekeeper.services.views import RunDetail
from gatekeeper.web import figures, plots

SHOWN: Final = ("baseline", "candidate")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryBar:
    """One arm's pool. `used`, `pool`: per mille of the longest bar; `fits` False: the load needs more than there is."""

    role: str
    used: float
    pool: float
    fits: bool
    load: str
    size: str
    per_token: str
    at_once: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MemorySection:
    """Both arms' pools under the same load."""

    bars: tuple[MemoryBar, ...]
    load: str


def memory_section(run: RunDetail, plan: Plan) -> MemorySection | None:
    """The pools that the engines report; None where neither did."""
    length = plan.change.deployment.max_context or plan.suite.quality_context
    pools = list(_pools(run))
    if not pools or not length:
        return None
    needed = {role: size / tokens * length * plan.concurrency for role, tokens, size in pools}
    longest = max(*(size for _, _, size in pools), *needed.values())
    declared = "declared" if plan.change.deployment.max_context else "not declared: the suite's longest"
    return MemorySection(
        bars=tuple(
            MemoryBar(
                role=role,
                used=plots.share(min(needed[role], size), longest),
                pool=plots.share(size, longest),
                fits=needed[role] <= size,
                load=figures.size(needed[role]),
                size=figures.size(size),
                per_token=f"{size / tokens:,.0f} bytes",
                at_once=f"{tokens / length:,.1f}",
            )
            for role, tokens, size in pools
        ),
        load=f"{plan.concurrency} sequences of {length:,} tokens ({declared})",
    )


def _pools(run: RunDetail) -> Iterator[tuple[str, int, int]]:
    """Role, tokens and bytes of the pools that are known."""
    known: Mapping[str, Mapping[str, Any]] = {arm.role: arm.effective or {} for arm in run.arms}
    for role in SHOWN:
        tokens, size = known.get(role, {}).get("kv_cache_tokens"), known.get(role, {}).get("kv_cache_bytes")
        if tokens and size:
            yield role, tokens, size
