"""Does the engine evict what was asked for? By the windows that its layers have, and by the tokens that they keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gatekeeper.domain.base import LARGEST
from gatekeeper.domain.eviction import (
    Composed,
    Eviction,
    NoEviction,
    PerLayer,
    SlidingWindow,
    TopK,
    layer_ranges,
    single_policies,
)
from gatekeeper.domain.kv_budget import kept_by_layer, left_to_bound, tokens_kept
from gatekeeper.domain.kv_config import KVConfig, skipped_layers
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
        stages = [*_stages(config.eviction, effective, kept=kept, seen=seen)]
        agrees = effective.eviction == asked and all(stage.agrees for stage in stages)
        reason, shown = "", _policy(effective.eviction)
        if any(not isinstance(part, NoEviction | TopK) for _, part in single_policies(config.eviction)):
            shown = "; ".join([shown, *(stage.words for stage in stages)])
            evidence = effective.evidence.get("kept_tokens")
            if agrees and not _was_tried(config.eviction, stages):
                agrees, reason = None, NOTHING_TO_EVICT
    yield Observation(
        setting="eviction", requested=_policy(asked), effective=shown, agrees=agrees, evidence=evidence, reason=reason
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class _Stage:
    """What layers held of `seen` tokens, after a prompt or after decoding, and what they had to, lowest layer first."""

    seen: int
    held: tuple[int | None, ...]
    expected: tuple[int, ...]
    when: str = ""

    @property
    def agrees(self) -> bool:
        return self.held == self.expected

    @property
    def words(self) -> str:
        known = [tokens for tokens in self.held if tokens is not None]
        spread = f", from {min(known)} to {max(known)} by layer" if min(known) < max(known) else ""
        wrong: dict[tuple[int | None, int], list[int]] = {}
        for layer, pair in enumerate(zip(self.held, self.expected, strict=True)):
            if pair[0] != pair[1]:
                wrong.setdefault(pair, []).append(layer)
        others = "".join(
            f", {layer_ranges(layers)} {have} in place of {want}" for (have, want), layers in wrong.items()
        )
        return f"{sum(known) // len(known)} of {self.seen} tokens kept{self.when}{spread}{others}"


def _stages(eviction: Eviction, effective: EffectiveConfig, *, kept: int, seen: int) -> Iterator[_Stage]:
    """After the prompt, and after decoding where the engine tried that."""
    held = effective.kept_by_layer or {"0": kept}
    layers = len(held)
    yield _Stage(
        seen=seen,
        held=tuple(held.get(str(layer)) for layer in range(layers)),
        expected=kept_by_layer(eviction, seen, layers=layers),
    )
    decoded, then = effective.decoded_tokens, effective.kept_after_decoding
    if decoded is not None and then is not None:
        yield _Stage(
            seen=seen + decoded,
            held=tuple(then.get(str(layer)) for layer in range(layers)),
            expected=kept_by_layer(eviction, seen + decoded, layers=layers, decode_tokens=decoded),
            when=f" after {decoded} decoded",
        )


def _was_tried(eviction: Eviction, stages: Sequence[_Stage]) -> bool:
    """Whether some layer had to give something up, to each policy that frees tokens."""
    prompt, last = stages[0], stages[-1]
    layers = len(prompt.expected)
    match eviction:
        case Composed():
            left = left_to_bound(eviction, prompt.seen, layers=layers)
            tried = min(left, default=prompt.seen) < prompt.seen
            bound = tokens_kept(eviction.decode, LARGEST)
            return tried and max(left, default=0) + last.seen - prompt.seen > bound
        case PerLayer():
            return all(
                any(prompt.expected[layer] < prompt.seen for layer in group if layer < layers)
                for group, part in eviction.by_policy(layers)
                if not isinstance(part, NoEviction | TopK)
            )
        case _:
            return min(prompt.expected) < prompt.seen


def _policy(document: Mapping[str, Any]) -> str:
    """A policy's document in words, with those that it is made of."""
    return f"{document.get('policy')} ({_parameters(document)})"


def _parameters(document: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in document.items() if name != "policy")


def _value(value: Any) -> str:
    match value:
        case {"policy": _}:
            return _policy(value)
        case {"layers": list(layers), "eviction": dict(policy)}:
            return f"{layer_ranges(layers)} {_policy(policy)}"
        case list(values) if any(isinstance(entry, dict) for entry in values):
            return ", ".join(map(_value, values))
        case _:
            return str(value)
