"""Does the engine run with what was asked for? Requested and effective configuration, compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from gatekeeper.domain.effective_eviction import of_kept_tokens, of_window
from gatekeeper.domain.eviction import NoEviction
from gatekeeper.domain.kv_config import Fp8, KVConfig, KvQuant, NoQuantization, TurboQuant, skipped_layers
from gatekeeper.domain.kv_memory import layers_in_16_bits
from gatekeeper.domain.measurement import EffectiveConfig
from gatekeeper.domain.observation import NOT_SAID, Observation, by_layer
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.vllm_flags import same_argument

BYTES_TOLERANCE = 0.02
"""Relative: pools are whole blocks, so memory / tokens exceeds the formula by up to about one block in fifty."""

SIXTEEN_BIT: Final = ("bfloat16", "float16")

POOL_IS_FIXED: Final = "on CPU the pool has a fixed size, whatever this says"
UNKNOWN_ARGUMENT: Final = "the engine reports no setting of this name"


def compare(plan: ArmPlan, effective: EffectiveConfig) -> tuple[Observation, ...]:
    """Hold the effective configuration of a launched arm against its plan: every setting that the plan makes."""
    return (
        _dtype(plan, effective),
        *_stored(plan.config, effective),
        *_skipped(plan, effective),
        *_bytes(plan, effective),
        *_scales(plan.config, effective),
        *_calibration(plan.config, effective),
        *of_window(plan.config, effective),
        *of_kept_tokens(plan.config, effective),
        *_fields(plan, effective),
        *_arguments(plan.config, effective),
    )


def mismatches(observations: Sequence[Observation]) -> tuple[Observation, ...]:
    """The settings that the engine did not apply."""
    return tuple(observation for observation in observations if observation.agrees is False)


def changed(baseline: Sequence[Observation], candidate: Sequence[Observation]) -> tuple[Observation, ...]:
    """The candidate's settings that the baseline does not make alike: what a run is about."""
    alike = {(row.setting, row.requested) for row in baseline}
    return tuple(row for row in candidate if (row.setting, row.requested) not in alike)


# --- the cache -------------------------------------------------------------------------------------------------------


def _dtype(plan: ArmPlan, effective: EffectiveConfig) -> Observation:
    """What the engine's configuration calls the cache. Silence is a mismatch: without this nothing is known."""
    requested, seen = plan.cache_dtype, effective.cache_dtype
    agrees = seen in ("auto", *SIXTEEN_BIT) if requested == "auto" else seen == requested
    shown = "16-bit" if requested == "auto" else requested
    return Observation(
        setting="cache_dtype", requested=shown, effective=seen, agrees=agrees,
        evidence=effective.evidence.get("cache_dtype"),
    )  # fmt: skip


def _stored(config: KVConfig, effective: EffectiveConfig) -> Iterator[Observation]:
    """The element type of the tensors that hold the cache, of every layer."""
    sixteen_bit = isinstance(config.quantization, NoQuantization)
    types = effective.stored_types
    quantized = [name for name in types if name not in SIXTEEN_BIT and not name.startswith("float32")]
    if sixteen_bit:
        agrees = all(name in SIXTEEN_BIT for name in types)
    elif skipped_layers(config.quantization) or isinstance(config.quantization, TurboQuant):
        # Which are skipped is `_skipped`'s to say; of TurboQuant the engine leaves the first and last as they are.
        agrees = bool(quantized)
    else:
        agrees = len(quantized) == len(types)
    yield Observation(
        setting="stored_type",
        requested="16-bit" if sixteen_bit else "quantized",
        effective=by_layer(types) or None,
        agrees=agrees if types else None,
        evidence=effective.evidence.get("stored_types"),
        reason="" if types else NOT_SAID,
    )


def _skipped(plan: ArmPlan, effective: EffectiveConfig) -> Iterator[Observation]:
    """The layers that stay in 16 bits, by the tensors that they have."""
    quantization, shape, seen = plan.config.quantization, plan.model.shape, effective.sixteen_bit_layers
    asked = skipped_layers(quantization)
    if not asked:
        return
    expected = sorted(asked if shape is None else layers_in_16_bits(shape, quantization))
    yield Observation(
        setting="quantization.skip_layers",
        requested=", ".join(map(str, expected)),
        effective=None if seen is None else ", ".join(map(str, seen)) or "none",
        agrees=None if seen is None else list(seen) == expected,
        evidence=effective.evidence.get("sixteen_bit_layers"),
        reason=NOT_SAID if seen is None else "",
    )


def _bytes(plan: ArmPlan, effective: EffectiveConfig) -> Iterator[Observation]:
    predicted, measured = plan.predicted_kv_bytes_per_token, effective.kv_bytes_per_token
    if plan.pool_blocks is not None and effective.kv_tensor_bytes is None:
        measured = None  # the memory that was set aside is not what a pool of given blocks takes
    if predicted is None or not isinstance(plan.config.eviction, NoEviction):
        return
    memory = "kv_cache_bytes" if effective.kv_tensor_bytes is None else "kv_tensor_bytes"
    yield Observation(
        setting="kv_bytes_per_token",
        requested=f"{predicted:,.0f} bytes",
        effective=None if measured is None else f"{measured:,.0f} bytes",
        agrees=None if measured is None else abs(measured / predicted - 1) <= BYTES_TOLERANCE,
        evidence=None if measured is None else effective.evidence.get(memory),
        reason=NOT_SAID if measured is None else "",
    )


def _scales(config: KVConfig, effective: EffectiveConfig) -> Iterator[Observation]:
    """FP8 scales. Scales from the checkpoint that cannot be verified count as not applied.

    Engines fall back to 1.0 in silence where a checkpoint has no scales or they are not loaded, so that silence is what
    the fault looks like.
    """
    if not isinstance(config.quantization, Fp8):
        return
    requested, unit, scaled = (
        config.quantization.scales,
        effective.unit_scale_layers,
        effective.scaled_layers,
    )
    warned = effective.scale_warning is not None
    if unit is None or scaled is None:
        seen, is_scaled = ("1.0, as the engine warns" if warned else None), False
        is_unit: bool | None = True if warned else None
        evidence = effective.evidence.get("scale_warning")
    else:
        seen, is_unit, is_scaled = _scale_phrase(effective), scaled == 0, unit == 0 and not warned
        evidence = effective.evidence.get("unit_scale_layers")
    yield Observation(
        setting="quantization.scales",
        requested="unit (1.0)" if requested == "unit" else requested,
        effective=seen,
        agrees=is_unit if requested == "unit" else is_scaled,
        evidence=evidence,
        reason="" if seen else NOT_SAID,
    )


def _scale_phrase(effective: EffectiveConfig) -> str:
    unit, scaled = effective.unit_scale_layers or 0, effective.scaled_layers or 0
    if not scaled:
        return f"1.0 in all {unit} layers"
    spread = f"{effective.smallest_scale:.3g} to {effective.largest_scale:.3g}"
    warned = f", but it warns: {effective.scale_warning}" if effective.scale_warning and not unit else ""
    return f"{spread}, 1.0 in {unit} of {unit + scaled} layers" if unit else f"{spread}{warned}"


def _calibration(config: KVConfig, effective: EffectiveConfig) -> Iterator[Observation]:
    """The calibration that the plan names. An engine that does not name one has none."""
    if isinstance(config.quantization, KvQuant):
        yield Observation(
            setting="quantization.calibration",
            requested=str(config.quantization.calibration),
            effective=effective.calibration,
            agrees=effective.calibration == config.quantization.calibration,
            evidence=effective.evidence.get("calibration"),
        )


# --- reuse, scheduling and passed-through arguments ------------------------------------------------------------------


def _fields(plan: ArmPlan, effective: EffectiveConfig) -> Iterator[Observation]:
    reuse, scheduling = plan.config.reuse, plan.config.scheduling
    requested: dict[str, Any] = {
        "prefix_caching": reuse.prefix_caching,
        "offload_gib": reuse.offload_gib,
        "chunked_prefill": scheduling.chunked_prefill,
        "max_num_batched_tokens": scheduling.max_num_batched_tokens,
        "max_num_seqs": plan.max_num_seqs,
        "block_size": scheduling.block_size,
        "max_model_len": plan.max_model_len,
        "gpu_memory_utilization": scheduling.gpu_memory_utilization,
    }
    for name, value in requested.items():
        if value is None:
            continue
        seen = getattr(effective, name)
        idle = name == "gpu_memory_utilization" and plan.device == "cpu"
        yield Observation(
            setting=name,
            requested=_shown(value),
            effective=None if seen is None else _shown(seen),
            agrees=None if seen is None or idle else seen == value,
            evidence=effective.evidence.get(name),
            reason=POOL_IS_FIXED if idle else NOT_SAID if seen is None else "",
        )


def _shown(value: Any) -> str:
    match value:
        case bool():
            return "on" if value else "off"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def _arguments(config: KVConfig, effective: EffectiveConfig) -> Iterator[Observation]:
    for name, value in config.engine_args.items():
        known = name.replace("-", "_")
        seen = effective.arguments.get(known)
        yield Observation(
            setting=name,
            requested=str(value),
            effective=seen,
            agrees=None if seen is None else same_argument(known, value, seen),
            evidence=effective.evidence.get(known),
            reason=UNKNOWN_ARGUMENT if seen is None else "",
        )
