"""The reference engine's eviction policies beside NVIDIA's kvpress: which tokens stay, and what is lost by it.

`python benchmarks/against_kvpress.py MODEL FILE` runs what `kvpress_kept` has written into FILE once more on the
reference engine, with the same tokens and shares, and prints the table of docs/methods.md. Both compute and store in 32
bits. Where the two are known to differ, a further row has our policy changed to what kvpress does: where it then
agrees, the change is the whole difference.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final, TypeAlias

import torch
from kvpress_kept import CONTEXT, FULL, Kept
from methods import forced

from gatekeeper.domain.kv_config import KVConfig, StreamingLlm
from workers.engines.reference.codecs import Cast
from workers.engines.reference.layers import SequenceLayer
from workers.engines.reference.loading import load_model
from workers.engines.reference.policies import Policy, Prompt, Selector, tova
from workers.engines.reference.runner import Runner
from workers.engines.reference.store import Store

Alteration: TypeAlias = Callable[[Policy, int], Policy]
"""A layer's policy and how many tokens kvpress keeps there -> the policy in its place."""


@dataclass(kw_only=True)
class In32Bits(Store):
    """Keys or values as they were computed."""

    def append(self, x: torch.Tensor) -> None:
        """Unrounded."""
        self._encode(x)


@dataclass(kw_only=True)
class AsKvpress(Runner):
    """The reference engine in 32 bits. `kept`: tokens that kvpress keeps in each layer."""

    alteration: Alteration
    kept: Sequence[int]

    def new_layers(self) -> list[SequenceLayer]:
        """Other stores, and policies where they are altered."""
        layers = super().new_layers()
        for layer, kept in zip(layers, self.kept, strict=True):
            layer.keys, layer.values = (In32Bits(codec=Cast(dtype=torch.float32)) for _ in range(2))
            layer.policy = self.alteration(layer.policy, kept)
        return layers


def as_it_is(policy: Policy, _kept: int) -> Policy:
    """Ours."""
    return policy


def same_budget(policy: Policy, kept: int) -> Policy:
    """A layer keeps as many tokens as in kvpress."""
    assert isinstance(policy, Selector)
    policy.budget = lambda _tokens: kept
    return policy


def last_token_stays(policy: Policy, _kept: int) -> Policy:
    """Whatever it attends to."""
    assert isinstance(policy, Selector)
    policy.score = _tova_and_last
    return policy


def _tova_and_last(prompt: Prompt) -> torch.Tensor:
    scores = tova(prompt).clone()
    scores[:, -1] = math.inf
    return scores


def once_after_the_prompt(_policy: Policy, kept: int) -> Policy:
    """The prompt sees all of itself, then sinks and window are cut out, and what is decoded stays."""
    return Selector(budget=lambda _tokens: kept, score=_sinks_then_newest, observed=1)


def _sinks_then_newest(prompt: Prompt) -> torch.Tensor:
    heads, held = prompt.keys.shape[:2]
    scores = torch.arange(float(held), device=prompt.keys.device)
    scores[: StreamingLlm.model_fields["sinks"].default] = math.inf
    return scores.expand(heads, -1)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the table for one policy: its words, and what is changed."""

    name: str
    policy: str
    alteration: Alteration = as_it_is


ROWS: Final = (
    Row(name="full cache", policy=FULL),
    Row(name="SnapKV", policy="snapkv"),
    Row(name="PyramidKV", policy="pyramidkv"),
    Row(name="– with kvpress's budgets", policy="pyramidkv", alteration=same_budget),
    Row(name="TOVA", policy="tova"),
    Row(name="– and the last token stays", policy="tova", alteration=last_token_stays),
    Row(name="expected attention", policy="expected_attention"),
    Row(name="Knorm", policy="knorm"),
    Row(name="KeyDiff", policy="keydiff"),
    Row(name="StreamingLLM", policy="streaming_llm"),
    Row(name="– once, after the prompt", policy="streaming_llm", alteration=once_after_the_prompt),
)


def config_of(theirs: Kept) -> KVConfig:
    """The policy with as much evicted."""
    if theirs.policy == FULL:
        return KVConfig()
    if theirs.policy == "streaming_llm":
        sinks = StreamingLlm.model_fields["sinks"].default
        window = len(theirs.kept[0][0]) - sinks
        return KVConfig.model_validate({"eviction": {"policy": theirs.policy, "window": window}})
    return KVConfig.model_validate({"eviction": {"policy": theirs.policy, "evicted_fraction": theirs.share}})


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One text. `alike`: by layer and KV head, the tokens that both keep over those that either does (Jaccard)."""

    kept: float
    alike: Sequence[float]
    nll: float


def compared(model: Any, row: Row, theirs: Kept) -> Compared:
    """Our policy on the same tokens."""
    layers = model.config.num_hidden_layers
    kept = [len(layer[0]) for layer in theirs.kept] or [CONTEXT] * layers
    runner = AsKvpress(
        model=model, config=config_of(theirs), piece=None, rows=1, alteration=row.alteration, kept=kept
    )
    context = runner.read_prompt(theirs.tokens[:CONTEXT])
    ours = [layer.positions.tolist() for layer in context.layers]
    following = theirs.tokens[CONTEXT:]
    held = context.held_tokens
    rows = list(forced(runner, [context], [following]))
    return Compared(
        kept=held,
        alike=[
            jaccard(one, other)
            for layer, same in zip(ours, theirs.kept, strict=False)
            for one, other in zip(layer, same, strict=True)
        ],
        nll=-fmean(float(logprobs[0, token]) for logprobs, token in zip(rows, following, strict=True)),
    )


def jaccard(one: Sequence[int], other: Sequence[int]) -> float:
    """Shared over all."""
    return len({*one} & {*other}) / len({*one} | {*other})


def line(row: Row, theirs: Sequence[Kept], ours: Sequence[Compared]) -> str:
    """A row of the table, over the texts of one share."""
    alike = [value for one in ours for value in one.alike] or [1.0]
    kept = [len(heads[0]) for one in theirs for heads in one.kept] or [CONTEXT]
    return (
        f"| {row.name} | {theirs[0].share:.1f} | {fmean(one.kept for one in ours):.1f} | {fmean(kept):.1f} |"
        f" {fmean(alike):.4f} | {min(alike):.3f} | {fmean(one.nll for one in ours):.4f} |"
        f" {fmean(one.nll for one in theirs):.4f} |"
    )


def table(model: Any, recorded: Sequence[Kept]) -> Iterator[str]:
    """The table of docs/methods.md, row by row."""
    yield (
        "| method | evicted | kept per layer, ours | kvpress | alike, mean | least | NLL, ours | kvpress |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    for row in ROWS:
        for share in sorted({one.share for one in recorded if one.policy == row.policy}):
            theirs = [one for one in recorded if (one.policy, one.share) == (row.policy, share)]
            yield line(row, theirs, [compared(model, row, one) for one in theirs])


def load(file: Path) -> list[Kept]:
    """What `kvpress_kept` wrote."""
    rows: list[Mapping[str, Any]] = [
        json.loads(text) for text in file.read_text(encoding="utf-8").splitlines()
    ]
    return [Kept(**row) for row in rows]


def main(source: str, file: Path) -> None:
    """Print the table as it grows."""
    torch.set_num_threads(1)
    model = load_model(source, dtype=torch.float32, device="cpu")
    for text in table(model, load(file)):
        print(text, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
