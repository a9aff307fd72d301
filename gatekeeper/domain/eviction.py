"""Eviction: which tokens leave the cache. One policy for all, two in turn, or one for each of several groups of layers.

Compositions are made of single policies and never of each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, Self, TypeAlias, TypeVar, assert_never, get_args

from pydantic import AfterValidator, Field, model_validator

from gatekeeper.domain.base import (
    Closed,
    Fraction,
    LayerIndices,
    NonNegativeInt,
    PositiveInt,
    SkippedLayers,
)

# --- single policies -------------------------------------------------------------------------------------------------


class NoEviction(Closed):
    """Every token stays in the cache."""

    policy: Literal["none"] = "none"


class Evicting(Closed):
    """A policy. `skip_layers`: those in which every token stays, and every query sees all."""

    skip_layers: SkippedLayers = None


class SlidingWindow(Evicting):
    """Each token attends to the last `window` tokens only."""

    policy: Literal["sliding_window"]
    window: PositiveInt


class StreamingLlm(Evicting):
    """The first `sinks` tokens and the last `window` tokens stay (Xiao et al. 2024, StreamingLLM)."""

    policy: Literal["streaming_llm"]
    sinks: NonNegativeInt = 4
    window: PositiveInt


class TopK(Evicting):
    """Each query attends to its `k` highest-scoring keys; nothing is freed."""

    policy: Literal["topk"]
    k: PositiveInt


class Budgeted(Evicting):
    """A policy with one budget: the share of tokens evicted, or the number of tokens kept."""

    evicted_fraction: Fraction | None = None
    budget_tokens: PositiveInt | None = None

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        if (self.evicted_fraction is None) == (self.budget_tokens is None):
            raise ValueError("exactly one of evicted_fraction and budget_tokens is needed")
        return self


class HeavyHitter(Budgeted):
    """Accumulated attention decides who stays, beside a recent window (Zhang et al. 2023, H2O)."""

    policy: Literal["h2o"]


class SnapKv(Budgeted):
    """The attention of the last `observation_window` prompt tokens decides (Li et al. 2024, SnapKV)."""

    policy: Literal["snapkv"]
    observation_window: PositiveInt = 64


class PyramidKv(Budgeted):
    """As SnapKV in each layer, with budgets that fall from the lowest to the highest (Cai et al. 2024, PyramidKV)."""

    policy: Literal["pyramidkv"]
    observation_window: PositiveInt = 64


class ExpectedAttention(Budgeted):
    """The attention that the next `future_tokens` queries can be expected to pay decides (Devoto et al. 2025)."""

    policy: Literal["expected_attention"]
    future_tokens: PositiveInt = 512


class PrefillSelector(Budgeted):
    """Other selectors that compress the prompt's cache once, named as in the literature."""

    policy: Literal["tova", "knorm", "keydiff"]


PromptPolicy: TypeAlias = HeavyHitter | SnapKv | PyramidKv | ExpectedAttention | PrefillSelector
DecodePolicy: TypeAlias = SlidingWindow | StreamingLlm
SinglePolicy: TypeAlias = NoEviction | DecodePolicy | TopK | PromptPolicy

# --- compositions ----------------------------------------------------------------------------------------------------

Part = TypeVar("Part", bound=SinglePolicy)


def _names_no_layers(part: Part) -> Part:
    """Which layers a part is for is said by what it is a part of."""
    if isinstance(part, Evicting) and part.skip_layers is not None:
        raise ValueError("skip_layers has no meaning in a part of a composition; allowed: absent")
    return part


class Composed(Evicting):
    """Two policies in turn: `prompt` compresses the prompt once it is read, `decode` bounds the cache from then on.

    `decode` counts tokens that the cache still holds, those of the compressed prompt among them.
    """

    policy: Literal["composed"]
    prompt: Annotated[PromptPolicy, Field(discriminator="policy"), AfterValidator(_names_no_layers)]
    decode: Annotated[DecodePolicy, Field(discriminator="policy"), AfterValidator(_names_no_layers)]

    @property
    def first(self) -> PromptPolicy:
        """What compresses the prompt, with the layers that it leaves as they are."""
        return self.prompt.model_copy(update={"skip_layers": self.skip_layers})


LayerPolicy = Annotated[SinglePolicy, Field(discriminator="policy"), AfterValidator(_names_no_layers)]


class PolicyOfLayers(Closed):
    """Some layers, and the policy of each of them."""

    layers: LayerIndices
    eviction: LayerPolicy


def _disjoint(groups: tuple[PolicyOfLayers, ...]) -> tuple[PolicyOfLayers, ...]:
    named = [layer for group in groups for layer in group.layers]
    twice = sorted({layer for layer in named if named.count(layer) > 1})
    if twice:
        raise ValueError(f"{layer_ranges(twice)} in several groups; allowed: each layer in one")
    return groups


class PerLayer(Closed):
    """A policy for each group of layers, and `other` for those that no group names. Shares are those of a group."""

    policy: Literal["per_layer"]
    groups: Annotated[tuple[PolicyOfLayers, ...], Field(min_length=1), AfterValidator(_disjoint)]
    other: LayerPolicy = NoEviction()

    @model_validator(mode="after")
    def _evicts_something(self) -> Self:
        if all(isinstance(part, NoEviction) for _, part in single_policies(self)):
            raise ValueError("no layer has a policy; allowed: policy none")
        return self

    def by_policy(self, layers: int) -> tuple[tuple[tuple[int, ...], SinglePolicy], ...]:
        """Of a model with so many layers, those that share a policy, with it; `other`'s last, if any are left."""
        named = {layer for group in self.groups for layer in group.layers}
        left = tuple(layer for layer in range(layers) if layer not in named)
        groups = tuple((group.layers, group.eviction) for group in self.groups)
        return (*groups, (left, self.other)) if left else groups


Eviction = Annotated[SinglePolicy | Composed | PerLayer, Field(discriminator="policy")]


def single_policies(eviction: Eviction) -> Iterator[tuple[str, SinglePolicy]]:
    """What a policy is made of, each part with where it stands in it, such as `.prompt`; a single one is all of it."""
    match eviction:
        case Composed(prompt=prompt, decode=decode):
            yield ".prompt", prompt
            yield ".decode", decode
        case PerLayer(groups=groups, other=other):
            for number, group in enumerate(groups):
                yield f".groups.{number}.eviction", group.eviction
            yield ".other", other
        case _:
            yield "", eviction


def policies_at(place: str) -> tuple[str, ...]:
    """The single policies that may stand at a place that `single_policies` names."""
    union = {".prompt": PromptPolicy, ".decode": DecodePolicy}.get(place, SinglePolicy)
    return tuple(
        name for kind in get_args(union) for name in get_args(kind.model_fields["policy"].annotation)
    )


def compresses_prompts_only(eviction: Eviction) -> bool:
    """Whether nothing of it shows before the whole prompt has been read."""
    if isinstance(eviction, Composed):
        return True
    parts = [part for _, part in single_policies(eviction) if not isinstance(part, NoEviction)]
    return bool(parts) and all(isinstance(part, Budgeted) for part in parts)


# --- names -----------------------------------------------------------------------------------------------------------


def eviction_label(eviction: Eviction) -> str:
    """A short name, such as `h2o(0.5) then sliding_window(512)`; `full` where nothing is evicted."""
    match eviction:
        case NoEviction():
            return "full"
        case Composed(prompt=prompt, decode=decode):
            return f"{eviction_label(prompt)} then {eviction_label(decode)}"
        case PerLayer(groups=groups, other=other):
            named = [f"{layer_ranges(group.layers)} {eviction_label(group.eviction)}" for group in groups]
            return ", ".join([*named, f"others {eviction_label(other)}"])
        case Evicting():
            parameters = eviction.model_dump(exclude={"policy", "skip_layers"}, exclude_none=True)
            return f"{eviction.policy}({', '.join(str(value) for value in parameters.values())})"
        case _:
            assert_never(eviction)


def layer_ranges(layers: Sequence[int]) -> str:
    """Layers in ascending order in words, such as `layers 0-3, 7`."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    words = (f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(words)}"
