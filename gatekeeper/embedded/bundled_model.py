"""The model that `python -m workers.models build` makes: where it is and what shape it has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.plan import Model

NAME: Final = "smollm2-135m"
FINISHED: Final = "gatekeeper-finished"
"""The file that a complete build leaves; `workers.models` writes it."""
SHAPE: Final = ModelShape(
    layers=30, attention_heads=9, kv_heads=3, head_dim=64, max_context=8192, parameters=134_515_008
)


def directory(root: Path) -> Path:
    """Where it is, or will be."""
    return root / "models" / NAME


def is_built(root: Path) -> bool:
    """True if it is complete."""
    return (directory(root) / FINISHED).is_file()


def bundled_model(root: Path) -> Model:
    """Its entry in the registry. The shape comes from its own config once it is built."""
    shape = SHAPE
    if is_built(root):
        config = json.loads((directory(root) / "config.json").read_text(encoding="utf-8"))
        shape = ModelShape.from_hf_config(config)
    return Model(name=NAME, source=str(directory(root)), shape=shape)
