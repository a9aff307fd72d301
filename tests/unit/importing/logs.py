"""lm-eval output directories: real ones, and made-up ones in the same form."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "data" / "lm_eval"
BF16, FP8, GENERATED = DATA / "bf16", DATA / "fp8_e5m2", DATA / "generated"
STAMP = "2026-11-30T12-00-00.000001"
Json = dict[str, Any]


def sample(number: int, **values: Any) -> Json:
    """One item; `values` are what its metrics came to, or replace another key."""
    given = {
        "metrics": [name for name in values if name not in ("doc_hash", "prompt_hash", "filter", "target")]
    }
    fixed = {
        "doc_id": number,
        "doc": {"question": f"{number}?"},
        "target": "yes",
        "filtered_resps": ["yes"],
        "filter": "none",
        "doc_hash": f"{number:064x}",
        "prompt_hash": f"prompt {number}",
        "target_hash": f"target {number}",
    }
    return fixed | given | values


def answers(right: Sequence[bool], metric: str = "exact_match", **more: Any) -> list[Json]:
    """One item per answer."""
    return [sample(number, **{metric: float(answer)}, **more) for number, answer in enumerate(right)]


def write(
    folder: Path, task: str, samples: Sequence[Json], *, stamp: str = STAMP, results: Json | None = None
) -> Path:
    """Write one task's samples, and its results file unless `results` is empty; return the output directory."""
    inside = folder / "model"
    inside.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(entry) + "\n" for entry in samples)
    (inside / f"samples_{task}_{stamp}.jsonl").write_text(lines, encoding="utf-8")
    known = {
        "model_name": "m",
        "versions": {task: 1.0},
        "n-shot": {task: 0},
        "higher_is_better": {task: {"exact_match": True}},
    }
    if results is None or results:
        path = inside / f"results_{stamp}.json"
        path.write_text(json.dumps(known | (results or {})), encoding="utf-8")
    return folder


def copied(source: Path, folder: Path, *, change: Callable[[Json], None]) -> Path:
    """A real output with every sample changed."""
    shutil.copytree(source, folder)
    for path in folder.rglob("samples_*.jsonl"):
        documents = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for document in documents:
            change(document)
        path.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
    return folder
