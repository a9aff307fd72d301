"""The reference engine's eviction policies beside NVIDIA's kvpress: which tokens stay, and what is lost by it.

`python benchmarks/against_kvpress.py MODEL FILE` runs what `kvpress_kept` has written into FILE once more on the
reference engine, with the same tokens and shares, and prints a table. Both compute and store in 32
bits. Where the two are known to differ, a further row has our policy changed to what kvpress does: where it then
agrees, the change is the whole difference.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final, TypeAlias

import torch
from kvpress_kept import CONTEXT, FULL, Kept
from methods import forced

from gatekeeper.domain.eviction import StreamingLlm
from gatekeeper.domain.kv_config import KVConfig
from workers.engines.reference.codecs import Cast
from workers.engines.reference.layers import SequenceLayer
from workers.engines.reference.loading import load_model
from workers.engines.reference.policies import KeepAll, Policy, Prompt, Selector, Step, tova
from workers.engines.reference.runner import Context, Runner
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
    """A row for one text. `alike`: by layer and KV head, the tokens that both keep over those that either does."""

    row: Row
    theirs: Kept
    kept: float
    alike: Sequence[float]
    nll: float


class Remembering(KeepAll):
    """Keeps the last step, which after a prompt in one piece is all that a selector is told."""

    step: Step

    def after_step(self, step: Step) -> torch.Tensor | None:
        """All stay."""
        self.step = step
        return None


def runner_of(model: Any, row: Row, theirs: Kept) -> AsKvpress:
    """Our policy, with what kvpress keeps in each layer at hand."""
    kept = [len(heads[0]) for heads in theirs.kept] or [CONTEXT] * model.config.num_hidden_layers
    return AsKvpress(
        model=model, config=config_of(theirs), piece=None, rows=1, alteration=row.alteration, kept=kept
    )


def compressed(runner: AsKvpress, tokens: Sequence[int], whole: Context) -> Context:
    """A prompt under a policy; a selector works on what was computed once, since its prompt sees all of itself."""
    layers = runner.new_layers()
    if not isinstance(layers[0].policy, Selector):
        context: Context = runner.read_prompt(tokens)
        return context
    for layer, full in zip(layers, whole.layers, strict=True):
        assert isinstance(full.policy, Remembering)
        step = full.policy.step
        layer.append(step.keys[None], step.values[None])
        layer.policy.after_step(step)
        layer.end_prompt()
    return Context(layers=layers, next_logprobs=whole.next_logprobs, pieces=whole.pieces)


@torch.inference_mode()
def compared(model: Any, recorded: Sequence[Kept]) -> Iterator[Compared]:
    """All rows for one text, those of a share decoded together; `recorded`: what kvpress did with it."""
    prompt, following = recorded[0].tokens[:CONTEXT], recorded[0].tokens[CONTEXT:]
    remembering = Row(name="", policy=FULL, alteration=lambda _policy, _kept: Remembering())
    everything = replace(recorded[0], policy=FULL, kept=[])
    whole = runner_of(model, remembering, everything).read_prompt(prompt)
    for share in sorted({theirs.share for theirs in recorded}):
        pairs = [
            (row, one) for row in ROWS for one in recorded if (one.policy, one.share) == (row.policy, share)
        ]
        contexts = [compressed(runner_of(model, *pair), prompt, whole) for pair in pairs]
        kept = [
            (context.held_tokens, likenesses(context, one))
            for context, (_, one) in zip(contexts, pairs, strict=True)
        ]
        decoder = Runner(model=model, config=KVConfig(), piece=None, rows=len(contexts))
        logprobs = torch.stack(list(forced(decoder, contexts, [following] * len(contexts))), dim=1)
        nlls = -logprobs[:, range(len(following)), following].mean(-1)
        for (row, one), (held, alike), nll in zip(pairs, kept, nlls.tolist(), strict=True):
            yield Compared(row=row, theirs=one, kept=held, alike=alike, nll=nll)


def likenesses(context: Context, theirs: Kept) -> list[float]:
    """By layer and KV head, of what is in the cache after the prompt."""
    return [
        jaccard(one, other)
        for layer, heads in zip(context.layers, theirs.kept, strict=False)
        for one, other in zip(layer.positions.tolist(), heads, strict=True)
    ]


def jaccard(one: Sequence[int], other: Sequence[int]) -> float:
    """Shared over all."""
    return len({*one} & {*other}) / len({*one} | {*other})


def line(found: Sequence[Compared]) -> str:
    """A row of the table, over all texts."""
    alike = [value for one in found for value in one.alike] or [1.0]
    theirs = [len(heads[0]) for one in found for heads in one.theirs.kept] or [CONTEXT]
    return (
        f"| {found[0].row.name} | {found[0].theirs.share:.1f} | {fmean(one.kept for one in found):.1f} |"
        f" {fmean(theirs):.1f} | {fmean(alike):.4f} | {min(alike):.3f} |"
        f" {fmean(one.nll for one in found):.4f} | {fmean(one.theirs.nll for one in found):.4f} |"
    )


def table(model: Any, recorded: Sequence[Kept]) -> Iterator[str]:
    """Header and rows."""
    yield (
        "| method | evicted | kept per layer, ours | kvpress | alike, mean | least | NLL, ours | kvpress |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    texts = dict.fromkeys(one.text for one in recorded)
    found = [
        each for text in texts for each in compared(model, [one for one in recorded if one.text == text])
    ]
    for row in ROWS:
        for share in sorted({each.theirs.share for each in found if each.row == row}):
            yield line([each for each in found if (each.row, each.theirs.share) == (row, share)])


def load(file: Path) -> list[Kept]:
    """What `kvpress_kept` wrote."""
    rows: list[Mapping[str, Any]] = [
        json.loads(text) for text in file.read_text(encoding="utf-8").splitlines()
    ]
    return [Kept(**row) for row in rows]


def main(source: str, file: Path) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    model = load_model(source, dtype=torch.float32, device="cpu")
    for text in table(model, load(file)):
        print(text, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
