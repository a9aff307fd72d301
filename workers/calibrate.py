"""Calibrate a model for a scheme that needs it: `python -m workers.calibrate NAME --source DIR --bits 3`.

`gatekeeper calibrate` starts this on a machine with a worker's environment. It computes on the worker's kind of device
and leaves the calibration in the data directory, where changes find it; what is there already is not made again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gatekeeper.calibrations import path_of, read_calibration
from gatekeeper.domain.calibration import Calibration
from gatekeeper.domain.errors import GatekeeperError, UnreadableInput
from gatekeeper.domain.kv_config import KvQuant
from gatekeeper.domain.kv_storage import kvquant_outliers
from gatekeeper.files import read_text
from gatekeeper.settings import Settings
from workers.devices import reserve

if TYPE_CHECKING:
    import torch

CONTEXT_TOKENS: Final = 512
"""Texts are read in pieces of at most so many tokens, each a sequence of its own."""
MOST_TOKENS: Final = 8192
FEWEST_TOKENS: Final = 1024
"""Fewer would leave too little of each channel to tell its outliers from the rest."""
SHORTEST_PIECE: Final = 32
LIMIT_BYTES: Final = 64_000_000
"""Of one file of texts, of which only the first `MOST_TOKENS` count."""
WAIT_SECONDS: Final = 60.0
REFUSED: Final = 4


def read_texts(path: Path | None) -> list[str]:
    """The operator's texts, or the bundled ones, none of which a suite measures on. Raises UnreadableInput."""
    if path is None:
        folder = files("workers.engines.reference") / "calibration_texts"
        entries = sorted((e for e in folder.iterdir() if e.name.endswith(".txt")), key=lambda e: e.name)
        return [entry.read_text(encoding="utf-8") for entry in entries]
    found = sorted(path.glob("*")) if path.is_dir() else [path]
    texts = [text for each in found for text in _texts_of(each)]
    if not texts:
        raise UnreadableInput(f"texts: {path} has none; allowed: a .jsonl or .txt file, or a folder of them")
    return texts


def _texts_of(path: Path) -> Iterator[str]:
    """The texts of one file; of JSON lines, each line's `text`."""
    if path.suffix not in (".txt", ".jsonl"):
        return
    try:
        content = read_text(path, limit_bytes=LIMIT_BYTES)
    except UnreadableInput as error:
        raise UnreadableInput(f"texts: {error.detail}") from error
    if path.suffix == ".txt":
        yield content
    else:
        for number, line in enumerate(content.splitlines(), start=1):
            try:
                text = json.loads(line)["text"]
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise UnreadableInput(f"texts: {path} line {number} is no object with a text") from error
            if not isinstance(text, str):
                raise UnreadableInput(f"texts: {path} line {number}: text is not a string")
            yield text


def cut(tokenized: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Pieces of texts, one text after the other, up to as many tokens as are used. Raises UnreadableInput."""
    pieces: list[Sequence[int]] = []
    left = MOST_TOKENS
    for text in tokenized:
        for start in range(0, len(text), CONTEXT_TOKENS):
            piece = text[start : min(start + CONTEXT_TOKENS, start + left)]
            if len(piece) >= SHORTEST_PIECE:
                pieces.append(piece)
                left -= len(piece)
    if MOST_TOKENS - left < FEWEST_TOKENS:
        raise UnreadableInput(
            f"texts: {MOST_TOKENS - left} tokens in pieces that can be used; allowed: at least {FEWEST_TOKENS}"
        )
    return pieces


def calibrate(options: argparse.Namespace, texts: Sequence[str], root: Path, device: str) -> Path:
    """Make the calibration unless it is there; return where it is. Loads torch."""
    import torch
    from transformers import AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    from workers.engines.reference import calibrated
    from workers.engines.reference.loading import load_model

    disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(options.source, revision=options.revision)
    pieces = cut([tokenizer(text)["input_ids"] for text in texts])
    model = load_model(options.source, revision=options.revision, dtype=torch.float32, device=device)
    about = Calibration(
        bits=options.bits, outlier_fraction=options.outlier_fraction, source=options.source,
        revision=options.revision, weights=calibrated.weights_fingerprint(model), texts=_fingerprint(texts),
        tokens=sum(map(len, pieces)), context_tokens=CONTEXT_TOKENS,
    )  # fmt: skip
    path = path_of(root, about.id)
    if read_calibration(path) == about:
        path.touch()
        print(f"calibration {about.id} is there already: {path}")
        return path
    print(f"reading {about.tokens} tokens in {len(pieces)} pieces", file=sys.stderr, flush=True)
    path = calibrated.keep(root, about, _fitted(model, pieces, options))
    print(f"calibration {about.id} of {options.name}: {path}")
    return path


def _fitted(
    model: Any, pieces: Sequence[Sequence[int]], options: argparse.Namespace
) -> dict[str, torch.Tensor]:
    """Ranges and levels of all layers, from what the model caches of the pieces."""
    from workers.engines.reference import calibration
    from workers.engines.reference.rotary_trial import tried_rotary

    cached = calibration.observe(model, tried_rotary(model, method="kvquant"), pieces)
    heads, width = cached[0].keys.shape[1:]
    scheme = KvQuant(scheme="kvquant", bits=options.bits, outlier_fraction=options.outlier_fraction)
    return calibration.fit(
        cached, bits=options.bits, outlier_fraction=options.outlier_fraction,
        outliers=kvquant_outliers(scheme, width=width, kv_heads=heads),
    )  # fmt: skip


def _fingerprint(texts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m workers.calibrate", description=__doc__)
    parser.add_argument("name", help="the model's name in the registry, for messages")
    parser.add_argument("--source", required=True, help="its directory or hub id")
    parser.add_argument("--revision")
    parser.add_argument("--bits", type=int, choices=(2, 3, 4), required=True)
    parser.add_argument("--outlier-fraction", type=float, default=0.01)
    parser.add_argument("--texts", type=Path, help="a .jsonl or .txt file, or a folder of them")
    return parser.parse_args()


def main() -> int:
    """Read the texts, wait for a device, calibrate."""
    options, settings = parse(), Settings()
    try:
        texts = read_texts(options.texts)
        with reserve(settings.device, settings.root / "locks", wait_seconds=WAIT_SECONDS) as gpu:
            if gpu is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # before torch looks for devices
            calibrate(options, texts, settings.root, settings.device)
    except UnreadableInput as error:
        print(f"refused: {error.detail}", file=sys.stderr)
        return REFUSED
    except (GatekeeperError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
