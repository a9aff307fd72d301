"""Which tokens NVIDIA's kvpress keeps of bundled texts, and the likelihood of what follows, for `against_kvpress`.

`python benchmarks/kvpress_kept.py MODEL FILE` runs in an environment of its own (README.md), so it imports nothing of
this project; it writes one line of JSON for each text, method and share.

Every press has its defaults. The model computes and stores in 32 bits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

TEXTS_FOLDER: Final = Path(__file__).resolve().parent.parent / "workers" / "suites" / "texts"
CONTEXT: Final = 512
DECODED: Final = 64
TEXTS: Final = 3
SHARES: Final = (0.5, 0.7)
FULL: Final = "none"
"""The policy that keeps everything."""
PRESSES: Final[Mapping[str, str]] = {
    "snapkv": "SnapKVPress",
    "pyramidkv": "PyramidKVPress",
    "tova": "TOVAPress",
    "expected_attention": "ExpectedAttentionPress",
    "knorm": "KnormPress",
    "keydiff": "KeyDiffPress",
    "streaming_llm": "StreamingLLMPress",
}
"""Our policy -> kvpress's class."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One text under one method. `kept`: [layers, KV heads, tokens], ascending; `nll`: in nats per decoded token."""

    policy: str
    share: float
    text: str
    tokens: Sequence[int]
    kept: Sequence[Sequence[Sequence[int]]]
    nll: float


def documents(tokenizer: Any) -> Iterator[tuple[str, list[int]]]:
    """Names and tokens of the first bundled texts that are long enough."""
    length, found = CONTEXT + DECODED, 0
    for path in sorted(TEXTS_FOLDER.glob("*.txt")):
        tokens = tokenizer(path.read_text(encoding="utf-8"))["input_ids"]
        if len(tokens) >= length and found < TEXTS:
            found += 1
            yield path.stem, tokens[:length]


def places(kept: torch.Tensor, keys: torch.Tensor) -> list[list[int]]:
    """Where keys that were kept, [heads, kept, channels], stood among all, [heads, tokens, channels].

    Rotated keys of one head are all different, in 32 bits.
    """
    same = (kept[:, :, None] == keys[:, None]).all(-1)
    assert bool((same.sum(-1) == 1).all())
    found: list[list[int]] = same.int().argmax(-1).sort(-1).values.tolist()
    return found


def watch(press: Any) -> list[list[list[int]]]:
    """What `press` will have kept, [layers, KV heads, tokens], filled as the layers compress."""
    compress: Callable[..., tuple[torch.Tensor, torch.Tensor]] = press.compress
    kept: list[list[list[int]]] = []

    def watched(
        module: Any, hidden: Any, keys: torch.Tensor, *others: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        found = compress(module, hidden, keys, *others)
        kept.append(places(found[0][0], keys[0]))
        return found

    press.compress = watched
    return kept


@torch.inference_mode()
def mean_nll(model: Any, tokens: Sequence[int], press: Any | None) -> float:
    """Of the tokens after the prompt, one by one, since layers may differ in length; positions are the text's."""
    cache, losses = DynamicCache(), list[float]()
    with nullcontext() if press is None else press(model):
        prompt = torch.tensor([tokens[:CONTEXT]])
        logits = model(input_ids=prompt, past_key_values=cache, logits_to_keep=1).logits
    for place in range(CONTEXT, len(tokens)):
        losses.append(-float(logits[0, -1].log_softmax(-1)[tokens[place]]))
        token, position = torch.tensor([[tokens[place]]]), torch.tensor([[place]])
        logits = model(input_ids=token, position_ids=position, past_key_values=cache).logits
    return sum(losses) / len(losses)


def measured(model: Any, texts: Mapping[str, list[int]]) -> Iterator[Kept]:
    """The full cache, then every method."""
    import kvpress

    for text, tokens in texts.items():
        nll = mean_nll(model, tokens, None)
        yield Kept(policy=FULL, share=0.0, text=text, tokens=tokens, kept=[], nll=nll)
    for policy, share, text in product(PRESSES, SHARES, texts):
        press = getattr(kvpress, PRESSES[policy])(compression_ratio=share)
        kept = watch(press)
        nll = mean_nll(model, texts[text], press)
        yield Kept(policy=policy, share=share, text=text, tokens=texts[text], kept=kept, nll=nll)


def main(source: str, file: Path) -> None:
    """Write what kvpress keeps, one line at a time."""
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    texts = dict(documents(AutoTokenizer.from_pretrained(source)))
    with file.open("w", encoding="utf-8", buffering=1) as lines:
        for row in measured(model, texts):
            print(json.dumps(asdict(row)), file=lines)
            print(row.policy, row.share, row.text, f"{row.nll:.4f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
