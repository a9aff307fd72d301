"""Why an FP8 cache costs more on processors with AMX: what their matrix unit loses of small sums, emulated.

vLLM's CPU kernels keep FP8 values as they are when they widen them to bfloat16: 2^-120 times their true value for e4m3,
2^-112 for e5m2, the factor being left to the end (`csrc/cpu/cpu_attn_amx.hpp` and `cpu_attn_fp8.hpp` of vLLM). AMX's
TDPBF16PS takes numbers below 2^-126 for zero, in its operands and in every partial sum (Intel's manual, "DAZ" and
"FTZ"). So partial sums below 2^-6 of e4m3, and below 2^-14 of e5m2, come to nothing; those are what tokens with little
attention add. Kernels for AVX-512 alone compute in 32 bits and lose nothing of it.

    python benchmarks/amx_fp8.py --documents 8 --context 512

Transformers in 32 bits, the cache truncated as vLLM writes it, attention as TDPBF16PS computes it: tiles of 32
elements, even and odd ones summed apart. Figures are of the 128 tokens after the context.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import torch
from emulated_cache import ROUNDINGS
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from gatekeeper.domain.fidelity import token_kl
from gatekeeper.embedded.bundled_model import directory
from gatekeeper.settings import Settings
from workers.suites.documents import bundled_texts, cut

TILE: Final = 32
"""Elements of bfloat16 in a row of a tile."""
DECODED: Final = 128
TOP: Final = 20
ATTENTION: Final = "amx"
"""The name by which transformers finds the kernel."""


@dataclass(kw_only=True)
class Kernel:
    """An attention function over a cache rounded as `cache`; partial sums below `smallest` come to nothing."""

    cache: str
    smallest: float

    def attend(
        self, _module: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, _mask: Any, **named: Any
    ) -> tuple[torch.Tensor, None]:
        """`q`: [1, heads, tokens, channels], `k` and `v` with fewer heads; the output has tokens before heads."""
        queries = q[0].bfloat16().float()
        keys, values = (ROUNDINGS[self.cache](x[0]).float() for x in (k, v))
        keys, values = (x.repeat_interleave(len(queries) // len(x), 0) for x in (keys, values))
        scores = self.product(queries, keys.transpose(1, 2)) * named["scaling"]
        seen = torch.ones(scores.shape[1:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -math.inf)
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        output = self.product(weights.bfloat16().float(), values) / weights.sum(-1, keepdim=True)
        return output.transpose(0, 1)[None].contiguous(), None

    def product(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """`a`: [heads, m, k], `b`: [heads, k, n]."""
        if not self.smallest:
            return a @ b
        whole = torch.zeros(a.shape[0], a.shape[1], b.shape[2])
        for start in range(0, a.shape[2], TILE):
            tile = torch.zeros_like(whole)
            for parity in (0, 1):
                part = torch.zeros_like(whole)
                for place in range(start + parity, min(start + TILE, a.shape[2]), 2):
                    part.addcmul_(a[:, :, place : place + 1], b[:, place : place + 1])
                    self.flush(part)
                tile += part
            whole = self.flush(whole + self.flush(tile))
        return whole

    def flush(self, sums: torch.Tensor) -> torch.Tensor:
        """Too small is zero, in place."""
        return sums.masked_fill_(sums.abs() < self.smallest, 0.0)


BASELINE: Final = Kernel(cache="bf16", smallest=0.0)
KERNELS: Final = {
    "e4m3, 32-bit sums": Kernel(cache="fp8_e4m3", smallest=0.0),
    "e4m3, AMX": Kernel(cache="fp8_e4m3", smallest=2.0**-6),
    "e5m2, 32-bit sums": Kernel(cache="fp8_e5m2", smallest=0.0),
    "e5m2, AMX": Kernel(cache="fp8_e5m2", smallest=2.0**-14),
}


def divergence(baseline: torch.Tensor, candidate: torch.Tensor) -> float:
    """Mean KL in nats between log-probabilities [tokens, vocabulary], from the top 20 of both."""
    return fmean(token_kl(_top(p), _top(q)) for p, q in zip(baseline, candidate, strict=True))


def _top(logprobs: torch.Tensor) -> dict[int, float | None]:
    best = logprobs.topk(TOP)
    return dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A model whose attention is the kernel that it is asked to answer with."""

    model: Any

    @classmethod
    def of(cls, source: Path) -> Bench:
        """Load a model in 32 bits."""
        AttentionMaskInterface.register(ATTENTION, ALL_MASK_ATTENTION_FUNCTIONS["eager"])
        AttentionInterface.register(ATTENTION, BASELINE.attend)
        model = AutoModelForCausalLM.from_pretrained(
            source, dtype=torch.float32, attn_implementation=ATTENTION
        )
        return cls(model=model)

    def logprobs(self, kernel: Kernel, tokens: list[int], *, start: int) -> torch.Tensor:
        """Of the tokens from `start` on, [tokens, vocabulary]."""
        AttentionInterface.register(ATTENTION, kernel.attend)
        with torch.inference_mode():
            logits = self.model(torch.tensor([tokens]), use_cache=False).logits[0, start - 1 : -1]
        return torch.log_softmax(logits, -1)


def measure(
    bench: Bench, source: Path, *, documents: int, context: int
) -> dict[str, list[tuple[float, float]]]:
    """By kernel, divergence and share of equal first choices of each document."""
    tokenizer = AutoTokenizer.from_pretrained(source)
    texts = [(name, tokenizer(text, add_special_tokens=False)["input_ids"]) for name, text in bundled_texts()]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in KERNELS}
    for number in range(documents):
        document = cut(texts, number, context_tokens=context, decode_tokens=DECODED)
        tokens = [*document.prompt, *document.reference]
        before = bench.logprobs(BASELINE, tokens, start=context)
        for name, kernel in KERNELS.items():
            after = bench.logprobs(kernel, tokens, start=context)
            agreed = (before.argmax(-1) == after.argmax(-1)).double().mean().item()
            found[name].append((divergence(before, after), agreed))
    return found


def main() -> None:
    """Print a line per kernel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--documents", type=int, default=8)
    parser.add_argument("--context", type=int, default=512)
    asked = parser.parse_args()
    source = directory(Settings().root)
    found = measure(Bench.of(source), source, documents=asked.documents, context=asked.context)
    print("| kernel | KL, nats/token | top-1 agreement, % |\n| --- | --- | --- |")
    for name, figures in found.items():
        kls, agreements = zip(*figures, strict=True)
        print(f"| {name} | {fmean(kls):.4f} | {100 * fmean(agreements):.1f} |")


if __name__ == "__main__":
    main()
