"""What is wrong with the layers that a configuration skips, whatever the engine: vLLM takes any number in silence."""

from __future__ import annotations

from collections.abc import Iterator

from gatekeeper.domain.errors import FieldProblem
from gatekeeper.domain.kv_budget import largest_fraction
from gatekeeper.domain.kv_config import Budgeted, KVConfig, skipped_layers
from gatekeeper.domain.kv_memory import ModelShape


def layer_problems(config: KVConfig, *, arm: str, shape: ModelShape | None) -> Iterator[FieldProblem]:
    """Layers that the model does not have, nothing left, and shares that the other layers cannot give up."""
    if shape is None:
        return
    for axis, part in (("quantization", config.quantization), ("eviction", config.eviction)):
        skipped, field = skipped_layers(part), f"{arm}.{axis}.skip_layers"
        if any(layer >= shape.layers for layer in skipped):
            problem = f"the model has {shape.layers} layers"
            yield FieldProblem(field=field, problem=problem, allowed=f"0 to {shape.layers - 1}")
        elif len(skipped) == shape.layers:
            yield FieldProblem(field=field, problem="no layer is left", allowed="absent, or fewer layers")
    eviction = config.eviction
    if isinstance(eviction, Budgeted) and eviction.skip_layers and eviction.evicted_fraction is not None:
        largest = largest_fraction(eviction, shape.layers)
        if eviction.evicted_fraction >= largest:
            yield FieldProblem(
                field=f"{arm}.eviction.evicted_fraction",
                problem=f"a share over all layers, and {len(eviction.skip_layers)} of {shape.layers} give up none",
                allowed=f"less than {largest:.3g}",
            )
