"""The model at work: prompts computed into caches, then token by token, several sequences at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.cache_utils import Cache

from gatekeeper.domain.kv_config import KVConfig
from workers.engines.reference.layers import BatchLayer, SequenceLayer
from workers.engines.reference.nuq import NuqLayer
from workers.engines.reference.prefix_cache import PrefixCache
from workers.engines.reference.rotary_trial import tried_rotary
from workers.engines.reference.schemes import Geometry, make_layer, needs_rotary


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How tokens are chosen. `forced`: the first tokens are these, whatever the model thinks."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    forced: Sequence[int] = ()
    stop_ids: frozenset[int] = frozenset()
    min_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """A token, its log-probability in nats, its rank, and the most probable tokens at its place, best first."""

    token: int
    logprob: float
    rank: int
    top: Sequence[tuple[int, float]] = ()


@dataclass(kw_only=True)
class Context:
    """A sequence under way: its cache layers and the raw log-probabilities of the next token, [vocabulary].

    `pieces`: in how many the prompt was computed; `prompt_scores`: its tokens from the second on, where asked for;
    `reused_tokens`: those that came from the prefix cache, None: it was not looked into.
    """

    layers: Sequence[SequenceLayer]
    next_logprobs: torch.Tensor
    pieces: int
    prompt_scores: Sequence[Scored] = ()
    reused_tokens: int | None = None

    @property
    def seen_tokens(self) -> int:
        """Tokens so far, kept or not."""
        return self.layers[0].seen

    @property
    def held_tokens(self) -> float:
        """Tokens in the cache, the mean over layers."""
        return sum(layer.held_tokens for layer in self.layers) / len(self.layers)

    @property
    def nbytes(self) -> int:
        """Bytes that the cache stores."""
        return sum(layer.nbytes for layer in self.layers)


@dataclass(kw_only=True)
class Runner:
    """A model with a KV configuration.

    `piece`: at most so many tokens of a prompt at once; None: the whole prompt. `rows`: sequences that decode together.
    The matrices always have that many rows, so that what a sequence computes does not depend on the others.
    `nuq`: with KVQuant, what was calibrated for each layer.
    """

    model: Any
    config: KVConfig
    piece: int | None
    rows: int
    nuq: Sequence[NuqLayer] = ()
    geometry: Geometry = field(init=False)

    def __post_init__(self) -> None:
        shape, method = self.model.config, needs_rotary(self.config)
        self.geometry = Geometry(
            layers=shape.num_hidden_layers,
            head_dim=getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads,
            rotary=None if method is None else tried_rotary(self.model, method=method),
            nuq=self.nuq,
        )

    def new_layers(self) -> list[SequenceLayer]:
        """An empty cache."""
        count = self.geometry.layers
        return [make_layer(self.config, self.geometry, index=index) for index in range(count)]

    @torch.inference_mode()
    def read_prompt(
        self,
        prompt: Sequence[int],
        *,
        top: int | None = None,
        prefixes: PrefixCache | None = None,
        salt: str = "",
    ) -> Context:
        """Compute a prompt into a new cache. `top`: score its own tokens too, with so many alternatives.

        `prefixes`: where its beginning is looked for under `salt`, unless it is scored, and where its blocks are kept.
        """
        layers, scores, pieces = self.new_layers(), list[Scored](), 0
        reused = None if prefixes is None or top is not None else prefixes.restore(prompt, salt, layers)
        begin = reused or 0
        if prefixes is not None:
            for layer in layers:
                layer.record()
        logits = torch.empty(0)
        for start, stop in self._pieces(begin, len(prompt), None if prefixes is None else prefixes.piece):
            tokens = prompt[start:stop]
            logits = self._forward([layers], [tokens], keep=0 if top is not None else 1)[0]
            pieces += 1
            if top is not None:
                following = prompt[start + 1 : stop + 1]
                scores += scored(logits[: len(following)].log_softmax(-1), following, top)
        if prefixes is not None:
            prefixes.keep(prompt, salt, [layer.recorded() for layer in layers], start=begin)
        for layer in layers:
            layer.end_prompt()
        return Context(
            layers=layers, next_logprobs=logits[-1].log_softmax(-1), pieces=pieces, prompt_scores=scores,
            reused_tokens=reused,
        )  # fmt: skip

    def _pieces(self, begin: int, end: int, block: int | None) -> Iterator[tuple[int, int]]:
        """From where to where a prompt is computed at once: no piece reaches over a multiple of `block`."""
        while begin < end:
            stop = min(begin + (self.piece or end), end)
            if block is not None:
                stop = min(stop, (begin // block + 1) * block)
            yield begin, stop
            begin = stop

    @torch.inference_mode()
    def advance(self, contexts: Sequence[Context], tokens: Sequence[int]) -> None:
        """Put one more token into each of at most `rows` sequences."""
        padded = [[token] for token in tokens] + [[0]] * (self.rows - len(tokens))
        logits = self._forward([context.layers for context in contexts], padded, keep=1)
        for context, row in zip(contexts, logits, strict=False):
            context.next_logprobs = row[-1].log_softmax(-1)

    def _forward(
        self, caches: Sequence[Sequence[SequenceLayer]], tokens: Sequence[Sequence[int]], *, keep: int
    ) -> torch.Tensor:
        """Logits in float32, [rows, tokens or the last `keep`, vocabulary].

        Positions are those in the text, whatever was evicted.
        """
        device, count = self.model.device, len(tokens[0])
        starts = [cache[0].seen for cache in caches] + [0] * (len(tokens) - len(caches))
        batched = [BatchLayer(same) for same in zip(*caches, strict=True)]
        answer = self.model(
            input_ids=torch.tensor([list(row) for row in tokens], device=device),
            position_ids=torch.tensor(starts, device=device)[:, None] + torch.arange(count, device=device),
            past_key_values=Cache(layers=batched), use_cache=True, kv_layers=batched, logits_to_keep=keep,
        )  # fmt: skip
        logits: torch.Tensor = answer.logits.float()
        return logits


def scored(logprobs: torch.Tensor, tokens: Sequence[int], top: int) -> list[Scored]:
    """Look tokens up in [tokens, vocabulary], each with the `top` most probable."""
    index = torch.tensor(list(tokens), dtype=torch.long, device=logprobs.device)[:, None]
    chosen = logprobs.gather(-1, index)
    ranks = (logprobs > chosen).sum(-1) + 1
    best = logprobs.topk(top, dim=-1)
    pairs = [
        list(zip(ids, values, strict=True))
        for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return [
        Scored(token=token, logprob=float(chosen[row, 0]), rank=int(ranks[row]), top=pairs[row])
        for row, token in enumerate(tokens)
    ]


def choose(logprobs: torch.Tensor, sampling: Sampling, number: int, generator: torch.Generator) -> int:
    """Token `number` of the answer: the forced one, the most probable one, or a sampled one."""
    if number < len(sampling.forced):
        return sampling.forced[number]
    if number < sampling.min_tokens and sampling.stop_ids:
        logprobs = logprobs.clone()
        logprobs[list(sampling.stop_ids)] = -torch.inf
    if sampling.temperature == 0:
        return int(logprobs.argmax())
    logits = logprobs / sampling.temperature
    if sampling.top_k > 0:
        logits = logits.masked_fill(logits < logits.topk(sampling.top_k).values[-1], -torch.inf)
    ordered, order = logits.softmax(-1).sort(descending=True)
    ordered[ordered.cumsum(-1) - ordered > sampling.top_p] = 0.0
    return int(order[torch.multinomial(ordered, 1, generator=generator)])
