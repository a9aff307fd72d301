"""A calibration and the model it was made for: written once, and read by the engine, which refuses any other's."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file

from gatekeeper.calibrations import METADATA, path_of, read_calibration
from gatekeeper.domain.calibration import Calibration, command
from gatekeeper.domain.kv_config import KvQuant, Quantization
from gatekeeper.domain.kv_storage import kvquant_outliers
from workers.engines.reference.nuq import NuqLayer, nuq_layers, steady_rotary

SAMPLED: Final = 1024
"""So many elements of each weight, evenly spaced, tell models of the same name apart."""


def weights_fingerprint(model: Any) -> str:
    """A SHA-256 of every parameter's name and shape, and of a sample of its elements, rounded to bfloat16.

    Rounded, since an arm may compute in 16 bits what was calibrated in 32.
    """
    digest = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        flat = weight.detach().flatten()
        sample = flat[:: max(flat.numel() // SAMPLED, 1)].bfloat16().cpu().view(torch.int16)
        digest.update(f"{name} {list(weight.shape)}\0".encode() + sample.numpy().tobytes())
    return digest.hexdigest()


def keep(root: Path, calibration: Calibration, fitted: Mapping[str, torch.Tensor]) -> Path:
    """Store a calibration in a data directory, whole or not at all."""
    path = path_of(root, calibration.id)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(f".{os.getpid()}")
    save_file(dict(fitted), scratch, metadata={METADATA: calibration.model_dump_json()})
    scratch.replace(path)
    return path


def load_layers(root: Path, quantization: Quantization, model: Any, *, name: str) -> Sequence[NuqLayer]:
    """What was calibrated for each layer of a loaded model; nothing for schemes that need no calibration.

    Raises ValueError naming the command that makes it.
    """
    if not isinstance(quantization, KvQuant):
        return ()
    path = path_of(root, quantization.calibration or "none")
    advice = f"run `{command(quantization, name)}`"
    if not path.is_file():
        raise ValueError(f"there is no calibration {quantization.calibration} in {path.parent}; {advice}")
    known = read_calibration(path)
    if known is None or known.id != quantization.calibration:
        raise ValueError(f"{path} is not calibration {quantization.calibration} of this version; {advice}")
    if known.weights != weights_fingerprint(model):
        raise ValueError(f"calibration {known.id} was made for other weights of {name}; {advice}")
    fitted = load_file(path, device=str(model.device))
    heads, width = fitted["key_middle"].shape[1:]
    outliers = kvquant_outliers(quantization, width=width, kv_heads=heads)
    return nuq_layers(fitted, steady_rotary(model), bits=quantization.bits, outliers=outliers)
