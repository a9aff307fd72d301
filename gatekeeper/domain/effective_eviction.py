"""Does the engine evict what was asked for? By the windows that its layers have, and by the tokens that they keep."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from gatekeeper.domain.kv_budget import kept_by_layer
from gatekeeper.domain.kv_config import KVConfig, NoEviction, SlidingWindow, TopK, skipped_layers
from gatekeeper.domain.measurement import EffectiveConfig
from gatekeeper.domain.observation import NOT_SAID, Observation, by_layer

NOTHING_TO_EVICT: Final = "the engine's own sequence is too short for anything to be evicted"


def of_window(config: KVConfig, effective: EffectiveConfig) -> Iterator[Observation]:
    """A sliding window is asked of every layer; what the layers have counts more than the configuration's figure."""
    if not isinstance(config.eviction, SlidingWindow):
        return
    window, layers = config.eviction.window, dict(effective.windows)
    if len(skipped_layers(config.eviction)) == layers.get("none", 0):
        layers.pop("none", None)  # which they are, `of_kept_tokens` looks
    figures = [effective.sliding_window] if effective.sliding_window is not None else []
    named = "windows" if layers else "sliding_window"
    yield Observation(
        setting="sliding_window",
        requested=str(window),
        effective=by_layer(layers) or (str(figures[0]) if figures else None),
        agrees={*layers, *map(str, figures)} == {str(window)} if layers or figures else None,
        evidence=effective.evidence.get(named),
        reason="" if layers or figures else NOT_SAID,
    )


def of_kept_tokens(config: KVConfig, effective: EffectiveConfig) -> Iterator[Observation]:
    """An eviction policy, by what an engine kept of a sequence of its own.

    Where all of that was to stay, nothing is known; top-k frees nothing, so of it there is the engine's word alone. A
    window is compared by itself too, and only so where the engine counts no tokens.
    """
    if isinstance(config.eviction, NoEviction):
        return
    asked = config.eviction.model_dump(mode="json", exclude_none=True)
    kept, seen = effective.kept_tokens, effective.seen_tokens
    if kept is None and isinstance(config.eviction, SlidingWindow):
        return
    agrees, evidence, reason, shown = None, effective.evidence.get("eviction"), NOT_SAID, None
    if effective.eviction is not None and kept is not None and seen is not None:
        held = effective.kept_by_layer or {"0": kept}
        expected = kept_by_layer(config.eviction, seen, layers=len(held))
        alike = all(held.get(str(layer)) == tokens for layer, tokens in enumerate(expected))
        agrees, reason = effective.eviction == asked and alike, ""
        shown = _policy(effective.eviction)
        if not isinstance(config.eviction, TopK):
            shown = f"{shown}, {_held(held.values(), seen)}"
            evidence = effective.evidence.get("kept_tokens")
            if agrees and min(expected) == seen:
                agrees, reason = None, NOTHING_TO_EVICT
    yield Observation(
        setting="eviction", requested=_policy(asked), effective=shown, agrees=agrees, evidence=evidence, reason=reason
    )  # fmt: skip


def _held(tokens: Collection[int], seen: int) -> str:
    low, high = min(tokens), max(tokens)
    spread = f", from {low} to {high} by layer" if low < high else ""
    return f"{sum(tokens) // len(tokens)} of {seen} tokens kept{spread}"


def _policy(document: Mapping[str, Any]) -> str:
    parameters = ", ".join(f"{name} {value}" for name, value in document.items() if name != "policy")
    return f"{document.get('policy')} ({parameters})"
