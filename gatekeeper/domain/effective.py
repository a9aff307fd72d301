"""Does the engine run with what was asked for? Requested and effective configuration, compared."""

from __future__ import annotations

from dataclasses import dataclass

from gatekeeper.domain.kv_config import NoEviction, SlidingWindow
from gatekeeper.domain.measurement import EffectiveConfig
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.vllm_flags import cache_dtype

BYTES_TOLERANCE = 0.02
"""Relative: pools are whole blocks, so memory / tokens exceeds the formula by up to about one block in fifty."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """One setting: what was asked for, what the engine says, and whether that agrees.

    `agrees` is None where the engine offers no observable for it.
    """

    setting: str
    requested: str
    effective: str | None
    agrees: bool | None

    @property
    def sentence(self) -> str:
        """Both values in one phrase."""
        return f"{self.setting}: requested {self.requested}, effective {self.effective or 'not reported'}"


def compare(plan: ArmPlan, effective: EffectiveConfig) -> tuple[Observation, ...]:
    """Hold the effective configuration of a launched arm against its plan."""
    config = plan.config
    observations = [
        _dtype(plan, effective),
        _bytes(plan, effective),
        _switch("prefix_caching", config.reuse.prefix_caching, effective.prefix_caching),
        _window(plan, effective),
        _number("block_size", config.scheduling.block_size, effective.block_size),
        _number("max_model_len", plan.max_model_len, effective.max_model_len),
    ]
    unobservable = {
        "chunked_prefill": config.scheduling.chunked_prefill,
        "max_num_batched_tokens": config.scheduling.max_num_batched_tokens,
        "offload_gib": config.reuse.offload_gib,
    } | dict(config.engine_args)
    observations += [
        Observation(setting=name, requested=str(value), effective=None, agrees=None)
        for name, value in unobservable.items()
        if value is not None
    ]
    return tuple(observation for observation in observations if observation is not None)


def mismatches(observations: tuple[Observation, ...]) -> tuple[Observation, ...]:
    """The settings that the engine did not apply."""
    return tuple(observation for observation in observations if observation.agrees is False)


def _dtype(plan: ArmPlan, effective: EffectiveConfig) -> Observation:
    requested = cache_dtype(plan.config.quantization)
    sixteen_bit = ("auto", "bfloat16", "float16")
    seen = effective.cache_dtype
    agrees = seen in sixteen_bit if requested == "auto" else seen == requested
    return Observation(
        setting="cache_dtype",
        requested="16-bit" if requested == "auto" else str(requested),
        effective=seen,
        agrees=agrees,
    )


def _bytes(plan: ArmPlan, effective: EffectiveConfig) -> Observation | None:
    predicted, measured = plan.predicted_kv_bytes_per_token, effective.kv_bytes_per_token
    if predicted is None or not isinstance(plan.config.eviction, NoEviction):
        return None
    agrees = None if measured is None else abs(measured / predicted - 1) <= BYTES_TOLERANCE
    shown = None if measured is None else f"{measured:,.0f} bytes"
    return Observation(
        setting="kv_bytes_per_token", requested=f"{predicted:,.0f} bytes", effective=shown, agrees=agrees
    )


def _switch(setting: str, requested: bool | None, seen: bool | None) -> Observation | None:
    if requested is None:
        return None
    return Observation(
        setting=setting,
        requested="on" if requested else "off",
        effective=None if seen is None else ("on" if seen else "off"),
        agrees=None if seen is None else seen == requested,
    )


def _number(setting: str, requested: int | None, seen: int | None) -> Observation | None:
    if requested is None:
        return None
    return Observation(
        setting=setting,
        requested=str(requested),
        effective=None if seen is None else str(seen),
        agrees=None if seen is None else seen == requested,
    )


def _window(plan: ArmPlan, effective: EffectiveConfig) -> Observation | None:
    match plan.config.eviction:
        case SlidingWindow(window=window):
            return _number("sliding_window", window, effective.sliding_window)
        case _:
            return None
