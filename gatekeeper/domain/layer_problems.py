"""What is wrong with the layers that a configuration names, whatever the engine: vLLM takes any number in silence."""

from __future__ import annotations

from collections.abc import Iterator

from gatekeeper.domain.errors import FieldProblem
from gatekeeper.domain.eviction import (
    Budgeted,
    Composed,
    NoEviction,
    PerLayer,
    SinglePolicy,
    layer_ranges,
)
from gatekeeper.domain.kv_budget import largest_fraction
from gatekeeper.domain.kv_config import KVConfig, skipped_layers
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
    match config.eviction:
        case Composed() as composed:
            yield from _of_share(composed.first, f"{arm}.eviction.prompt", shape.layers)
        case PerLayer() as per_layer:
            yield from _of_groups(per_layer, f"{arm}.eviction", shape.layers)
        case eviction:
            yield from _of_share(eviction, f"{arm}.eviction", shape.layers)


def _of_share(eviction: SinglePolicy, field: str, layers: int) -> Iterator[FieldProblem]:
    """A share that the layers which are not skipped cannot give up."""
    if isinstance(eviction, Budgeted) and eviction.skip_layers and eviction.evicted_fraction is not None:
        largest = largest_fraction(eviction, layers)
        if eviction.evicted_fraction >= largest:
            yield FieldProblem(
                field=f"{field}.evicted_fraction",
                problem=f"a share over all layers, and {len(eviction.skip_layers)} of {layers} give up none",
                allowed=f"less than {largest:.3g}",
            )


def _of_groups(eviction: PerLayer, field: str, layers: int) -> Iterator[FieldProblem]:
    """Layers that the model does not have, and a policy for the others where there are none."""
    for number, group in enumerate(eviction.groups):
        beyond = [layer for layer in group.layers if layer >= layers]
        if beyond:
            yield FieldProblem(
                field=f"{field}.groups.{number}.layers",
                problem=f"{layer_ranges(beyond)}: the model has {layers} layers",
                allowed=f"0 to {layers - 1}",
            )
    named = {layer for group in eviction.groups for layer in group.layers}
    if named >= set(range(layers)) and not isinstance(eviction.other, NoEviction):
        problem = "no other layer is left"
        yield FieldProblem(
            field=f"{field}.other", problem=problem, allowed="absent, or fewer layers in groups"
        )
