"""Which tokens stay in the cache, and which of them a query sees.

A policy belongs to one layer of one sequence. After every step it may name the tokens to keep; positions are those
that the tokens had in the text, which rotary embedding has already turned into the keys, so a kept key stays right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import torch

SNAPKV_KERNEL: Final = 5
"""Width of the pooling over neighbouring tokens (Li et al. 2024, SnapKV)."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a layer has just computed.

    `queries`: [query heads, new tokens, channels]; `keys`, `values`: [KV heads, held tokens, channels]; `positions`:
    [KV heads, held tokens]; `weights`: attention weights summed over the query heads of a KV head, [KV heads, new
    tokens, held tokens], only where the policy asks for them; `seen`: tokens of the sequence so far.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    positions: torch.Tensor
    weights: torch.Tensor | None
    seen: int
    scaling: float

    @property
    def places(self) -> torch.Tensor:
        """Where in the cache each held token is, [KV heads, held tokens]."""
        return torch.arange(self.positions.shape[-1], device=self.positions.device).expand_as(self.positions)


Budget: TypeAlias = Callable[[int], int]
"""Tokens of a prompt -> how many of them stay."""


class Policy(Protocol):
    """What decides about one layer's tokens."""

    needs_weights: bool
    """Whether attention has to be computed eagerly, so that its weights can be seen."""
    keys_per_query: int | None
    """How many keys each query attends to, its highest scoring ones; None: all. Takes eager attention too."""

    def sees(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor | None:
        """Beyond causality, which of the keys each query sees, by positions: [KV heads, queries, keys]; None: all."""
        ...

    def after_step(self, step: Step) -> torch.Tensor | None:
        """Indices of the tokens to keep, ascending, [KV heads, kept], or None for all."""
        ...

    def after_prompt(self) -> torch.Tensor | None:
        """The same, once the whole prompt has been computed, in however many pieces."""
        ...


class KeepAll:
    """Full cache."""

    needs_weights = False
    keys_per_query: int | None = None

    def sees(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor | None:
        """All."""
        return None

    def after_step(self, step: Step) -> torch.Tensor | None:
        """All."""
        return None

    def after_prompt(self) -> torch.Tensor | None:
        """All."""
        return None


@dataclass(kw_only=True)
class Window(KeepAll):
    """The first `sinks` tokens and the last `window`, the query's own among them (Xiao et al. 2024, StreamingLLM).

    Without sinks it is a sliding window. Every query sees only these, in the prompt too, so memory stays bounded
    however long the sequence gets, and pieces of a prompt give what the whole gives. They are counted among the tokens
    that are held, which without another policy before it are the first and the last of the text. Rotary positions are
    those of the text, where StreamingLLM itself counts them within the cache.
    """

    sinks: int
    window: int

    def sees(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor | None:
        """Sinks and window, relative to each query, whose own place is among the last."""
        places = torch.arange(keys.shape[-1], device=keys.device)
        own = places[-queries.shape[-1] :]
        near = places[None, :] > own[:, None] - self.window
        return (near | (places < self.sinks)).expand(keys.shape[0], -1, -1)

    def after_step(self, step: Step) -> torch.Tensor | None:
        """What the newest query saw."""
        return self.cut(step.places)

    def cut(self, held: torch.Tensor) -> torch.Tensor | None:
        """Sinks and window of what is held, [KV heads, tokens] in order; None: all of it."""
        if held.shape[-1] <= self.sinks + self.window:
            return None
        return torch.cat((held[:, : self.sinks], held[:, -self.window :]), dim=-1)


@dataclass(kw_only=True)
class HeavyHitters(KeepAll):
    """Half of the budget for the newest tokens, half for those that gathered most attention (Zhang et al. 2023, H2O).

    Attention is summed over all queries so far and over the query heads of a KV head. The prompt attends to all of
    itself; then the cache is cut to the budget and stays there: each new token drives one out.
    """

    budget: Budget
    needs_weights = True
    _gathered: torch.Tensor | None = None
    _kept_tokens: int | None = None

    def after_step(self, step: Step) -> torch.Tensor | None:
        """Add up; while decoding, hold the budget."""
        assert step.weights is not None  # asked for
        new = step.weights.sum(-2)
        if self._gathered is not None:
            new[:, : self._gathered.shape[-1]] += self._gathered
        self._gathered = new
        return None if self._kept_tokens is None else self._cut(self._kept_tokens)

    def after_prompt(self) -> torch.Tensor | None:
        """Cut to the budget."""
        assert self._gathered is not None
        self._kept_tokens = self.budget(self._gathered.shape[-1])
        return self._cut(self._kept_tokens)

    def _cut(self, size: int) -> torch.Tensor | None:
        assert self._gathered is not None
        held = self._gathered.shape[-1]
        if held <= size:
            return None
        recent = max(size // 2, 1)
        scores = self._gathered.clone()
        scores[:, held - recent :] = math.inf
        kept = _best(scores, size)
        self._gathered = self._gathered.gather(-1, kept)
        return kept


class Score(Protocol):
    """How much a prompt's tokens are worth."""

    def __call__(self, prompt: Prompt) -> torch.Tensor:
        """[KV heads, tokens], higher stays."""
        ...


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A whole prompt in one layer: its keys and values, and the queries of its last tokens, or of all."""

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    scaling: float


@dataclass(kw_only=True)
class Selector(KeepAll):
    """Compresses the prompt's cache once, when all of it has been computed; what is decoded later stays.

    `observed`: how many of the prompt's queries, its last ones, the score looks at; None: all.
    """

    budget: Budget
    score: Score
    observed: int | None
    _prompt: Prompt | None = None
    _is_over: bool = False

    def after_step(self, step: Step) -> torch.Tensor | None:
        """Remember the last queries."""
        if not self._is_over:
            earlier = () if self._prompt is None else (self._prompt.queries,)
            queries = torch.cat((*earlier, step.queries), dim=-2)
            if self.observed is not None:
                queries = queries[:, -self.observed :]
            self._prompt = Prompt(queries=queries, keys=step.keys, values=step.values, scaling=step.scaling)
        return None

    def after_prompt(self) -> torch.Tensor | None:
        """The best tokens, per KV head."""
        assert self._prompt is not None
        prompt, self._prompt, self._is_over = self._prompt, None, True
        held = prompt.keys.shape[-2]
        size = self.budget(held)
        return None if size >= held else _best(self.score(prompt), size)


def _best(scores: torch.Tensor, size: int) -> torch.Tensor:
    """The `size` best of each row, in ascending order; of equal ones the earlier."""
    order = scores.argsort(dim=-1, descending=True, stable=True)
    return order[:, :size].sort(dim=-1).values


def observed_attention(prompt: Prompt) -> torch.Tensor:
    """Attention weights of the last queries over the prompt, causal: [KV heads, heads of each, queries, tokens]."""
    heads, held = prompt.keys.shape[0], prompt.keys.shape[-2]
    queries = prompt.queries.unflatten(0, (heads, -1))
    scores = queries @ prompt.keys.unsqueeze(1).transpose(-1, -2) * prompt.scaling
    count = queries.shape[-2]
    places = torch.arange(held, device=scores.device)
    return scores.masked_fill(places > places[-count:, None], -math.inf).softmax(-1)


def snapkv(prompt: Prompt) -> torch.Tensor:
    """Mean attention of the observation window, pooled over neighbours; the window itself stays (SnapKV).

    Neighbours that are not there, before the text and in the window, count as zeros, as in the authors' code.
    No attention weight exceeds 1, so the window scores more, and the newest of it most: that is what is left of the
    window under a budget that is smaller still.
    """
    heads, window = prompt.keys.shape[0], prompt.queries.shape[-2]
    newest = torch.arange(2.0, window + 2.0, device=prompt.keys.device).expand(heads, -1)
    weights = observed_attention(prompt).mean((1, 2))[:, :-window]
    if not weights.shape[-1]:
        return newest
    pooled = torch.nn.functional.avg_pool1d(weights, SNAPKV_KERNEL, stride=1, padding=SNAPKV_KERNEL // 2)
    return torch.cat((pooled, newest), dim=-1)


def tova(prompt: Prompt) -> torch.Tensor:
    """Attention of the last token, averaged over all heads, the same for each (Oren et al. 2024, TOVA)."""
    weights = observed_attention(prompt)[:, :, -1].mean((0, 1))
    return weights.expand(prompt.keys.shape[0], -1)


def knorm(prompt: Prompt) -> torch.Tensor:
    """Keys of small norm draw attention (Devoto et al. 2024)."""
    return -prompt.keys.norm(dim=-1)


def keydiff(prompt: Prompt) -> torch.Tensor:
    """Keys unlike the mean direction of all keys stay (Park et al. 2025, KeyDiff)."""
    directions = torch.nn.functional.normalize(prompt.keys, dim=-1)
    return -torch.nn.functional.cosine_similarity(prompt.keys, directions.mean(-2, keepdim=True), dim=-1)


@dataclass(kw_only=True)
class InTurn:
    """One policy for the prompt, which compresses it, and from then on a window over what that has left."""

    prompt: HeavyHitters | Selector
    decode: Window
    keys_per_query: int | None = None
    needs_weights: bool = field(init=False)
    _is_over: bool = False
    _held: torch.Tensor | None = None

    def __post_init__(self) -> None:
        self.needs_weights = self.prompt.needs_weights

    def sees(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor | None:
        """The prompt as its policy lets it; then sinks and window."""
        return (self.decode if self._is_over else self.prompt).sees(queries, keys)

    def after_step(self, step: Step) -> torch.Tensor | None:
        """What the policy whose turn it is keeps."""
        if self._is_over:
            return self.decode.after_step(step)
        self._held = step.places
        return self.prompt.after_step(step)

    def after_prompt(self) -> torch.Tensor | None:
        """What the first policy chooses, as far as it is within the bound of the second."""
        assert self._held is not None  # there was a prompt
        chosen = self.prompt.after_prompt()
        held, self._held = self._held, None
        self._is_over, self.needs_weights = True, self.decode.needs_weights
        cut = self.decode.cut(held if chosen is None else chosen)
        return chosen if cut is None else cut


@dataclass(kw_only=True)
class TopK(KeepAll):
    """Each query of each head attends to its highest scoring keys; nothing is freed."""

    keys_per_query: int | None
    needs_weights = True
