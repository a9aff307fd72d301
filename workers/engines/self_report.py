"""vLLM's own account of its KV cache, from inside the process that holds it: one line of JSON in its log.

Metrics and log lines repeat the configuration. Only the worker process knows what the attention layers really hold:
the type and the memory of the cache tensors, the scales that the kernels multiply with, the window of each layer. vLLM
loads logits processors there, so this is one that changes no logits. Only vLLM's own processes import it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vllm.v1.sample.logits_processor.interface import LogitsProcessor as V1LogitsProcessor
from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsProcessor as V2LogitsProcessor

from workers.engines.vllm_effective import SELF_REPORT

if TYPE_CHECKING:
    import torch
    from vllm import SamplingParams
    from vllm.v1.sample.logits_processor.interface import BatchUpdate

SECTIONS = ("model_config", "attention_config", "scheduler_config", "cache_config")
"""Parts of vLLM's configuration, the ones that decide a name that several have last."""


class SelfReport(V1LogitsProcessor, V2LogitsProcessor):
    """What vLLM loads. It reports when the first request arrives: then model and cache are in place."""

    def __init__(self, vllm_config: Any, *runner: Any) -> None:
        self._config = vllm_config
        self._reported = False

    def is_argmax_invariant(self) -> bool:
        """True: logits stay as they are."""
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """V1: the batch has changed."""
        self._report()

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """V2: a request enters a slot; it needs nothing from here."""
        self._report()
        return False

    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        """Leave the logits as they are."""
        return logits

    def _report(self) -> None:
        if self._reported:
            return
        try:
            layers = cached_layers(self._config)
            account = account_of(self._config, layers) if layers else None
        except Exception as error:  # noqa: BLE001 - whatever a later vLLM has changed, it must not stop serving
            account = {"error": repr(error)}
        if account is not None:
            self._reported = True
            print(f"{SELF_REPORT}{json.dumps(account)}", flush=True)


def cached_layers(config: Any) -> dict[str, Any]:
    """The attention layers whose cache has been allocated, by name."""
    known: Mapping[str, Any] = config.compilation_config.static_forward_context
    return {name: layer for name, layer in known.items() if any(True for _ in tensors_of(layer))}


def account_of(config: Any, layers: Mapping[str, Any]) -> dict[str, Any]:
    """Layers grouped by what they hold, the memory of all cache tensors, and the configuration's plain values."""
    kinds: dict[tuple[str, str, int | None], dict[str, Any]] = defaultdict(dict)
    storages: dict[int, int] = {}
    for name, layer in layers.items():
        types = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors_of(layer)}
        window = getattr(layer, "sliding_window", None)
        kinds[str(getattr(layer, "kv_cache_dtype", None)), "+".join(sorted(types)), window][name] = layer
        for tensor in tensors_of(layer):  # layers may share memory
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return {
        "layers": [
            {"count": len(alike), "kv_cache_dtype": dtype, "stored_as": stored, "sliding_window": window}
            | {"indices": indices_of(alike)}
            | scales_of(list(alike.values()))
            for (dtype, stored, window), alike in kinds.items()
        ],
        "cache_bytes": sum(storages.values()),
        "attention_backends": sorted({backend_of(layer) for layer in layers.values()}),
        "config": dict(plain_values(config)),
    }


def indices_of(names: Iterable[str]) -> list[int] | None:
    """The numbers of layers named such as `model.layers.3.self_attn.attn`; None where one has no number of its own."""
    found = [[int(part) for part in name.split(".") if part.isdecimal()] for name in names]
    return sorted(parts[0] for parts in found) if all(len(parts) == 1 for parts in found) else None


def tensors_of(layer: Any) -> Iterator[Any]:
    """The cache tensors of a layer that have elements."""
    cache: Any = getattr(layer, "kv_cache", None)
    for tensor in cache if isinstance(cache, list | tuple) else [cache]:
        if hasattr(tensor, "untyped_storage") and tensor.numel():
            yield tensor


def backend_of(layer: Any) -> str:
    """The name of the attention backend that a layer really uses."""
    backend: Any = getattr(layer, "attn_backend", None)
    return str(backend.get_name()) if hasattr(backend, "get_name") else "unknown"


def scales_of(layers: list[Any]) -> dict[str, Any]:
    """Smallest and largest scale of keys and values, and in how many layers they are 1.0.

    A layer has its scales as tensors and once more as numbers on the host, and kernels read either; where one of the
    two is 1.0 throughout, the layer counts as having none.
    """
    tensors = [[*numbers(layer, "_k_scale"), *numbers(layer, "_v_scale")] for layer in layers]
    hosts = [[*numbers(layer, "_k_scale_float"), *numbers(layer, "_v_scale_float")] for layer in layers]
    found = [scale for scales in (*tensors, *hosts) for scale in scales]
    unit = [{1.0} in (set(tensor), set(host)) for tensor, host in zip(tensors, hosts, strict=True)]
    return {"scales": [min(found), max(found)] if found else None, "unit_scale_layers": sum(unit)}


def numbers(layer: Any, name: str) -> list[float]:
    """An attribute as numbers: one, or one per head, or none."""
    scale: Any = getattr(layer, name, None)
    if hasattr(scale, "flatten"):
        return [float(value) for value in scale.detach().float().flatten().tolist()]
    return [] if scale is None else [float(scale)]


def plain_values(config: Any) -> Iterator[tuple[str, str | int | float | bool | None]]:
    """Names and values of the configuration that are numbers, texts, switches or types."""
    for section in SECTIONS:
        for name, value in vars(getattr(config, section, None) or object).items():
            if isinstance(value, str | int | float | bool) and not name.startswith("_"):
                yield name, value
            elif str(value).startswith("torch."):
                yield name, str(value).removeprefix("torch.")
    transfer = getattr(config, "kv_transfer_config", None)
    yield "kv_connector", getattr(transfer, "kv_connector", None)
