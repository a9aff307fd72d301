"""The KV configuration: three independent axes (quantization, eviction, reuse) plus scheduling.

Every field is closed and typed. `None` always means "the engine's own default", never "off".
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, assert_never

from pydantic import BeforeValidator, Field

from gatekeeper.domain.base import Closed, NonNegativeInt, Number, PositiveInt, SkippedLayers
from gatekeeper.domain.eviction import Evicting, Eviction, NoEviction, PerLayer, eviction_label

# --- quantization ----------------------------------------------------------------------------------------------------


class NoQuantization(Closed):
    """Keys and values stay in the model's 16-bit type."""

    scheme: Literal["none"] = "none"


class Quantized(Closed):
    """A scheme. `skip_layers`: those whose keys and values stay in 16 bits, as vLLM's flag of that name has it."""

    skip_layers: SkippedLayers = None


class Fp8(Quantized):
    """8-bit floats. `scales`: 1.0 everywhere, read from the checkpoint, or calibrated beforehand."""

    scheme: Literal["fp8_e4m3", "fp8_e5m2"]
    scales: Literal["unit", "checkpoint", "calibrated"] = "unit"


class Int8(Quantized):
    """8-bit integers, one scale per token and head."""

    scheme: Literal["int8"]


class Int4(Quantized):
    """4-bit integers. `group_size`: channels that share a scale; absent means one scale per token and head."""

    scheme: Literal["int4"]
    group_size: PositiveInt | None = None


class Nvfp4(Quantized):
    """4-bit floats with an FP8 scale per 16 values."""

    scheme: Literal["nvfp4"]


class TurboQuant(Quantized):
    """Rotated vector quantization, named as vLLM names its variants."""

    scheme: Literal["turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"]


class Nf4(Quantized):
    """4-bit normal floats with one absolute maximum per block (Dettmers et al. 2023, QLoRA)."""

    scheme: Literal["nf4"]
    block_size: PositiveInt = 64


class Kivi(Quantized):
    """Keys per channel, values per token, the newest tokens in full precision (Liu et al. 2024, KIVI)."""

    scheme: Literal["kivi"]
    bits: Literal[2, 4]
    group_size: PositiveInt = 32
    residual_length: NonNegativeInt = 128


OutlierFraction = Annotated[Number, Field(ge=0.0, lt=0.5)]
CalibrationId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class KvQuant(Quantized):
    """Non-uniform per-channel keys before rotation, with sparse outliers (Hooper et al. 2024, KVQuant).

    `calibration`: the id of one that was made for the model; absent: the newest that there is, which a plan then names.
    """

    scheme: Literal["kvquant"]
    bits: Literal[2, 3, 4]
    outlier_fraction: OutlierFraction = 0.01
    calibration: CalibrationId | None = None


GgmlType = Literal["q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]


class GgmlBlocks(Quantized):
    """llama.cpp's formats, in which blocks of 32 elements share a 16-bit scale.

    `values`: the format of values where it is not that of keys.
    """

    scheme: GgmlType
    values: GgmlType | None = None


Quantization = Annotated[
    NoQuantization | Fp8 | Int8 | Int4 | Nvfp4 | TurboQuant | Nf4 | Kivi | KvQuant | GgmlBlocks,
    Field(discriminator="scheme"),
]


def skipped_layers(part: Quantization | Eviction) -> frozenset[int]:
    """The layers that a scheme or a policy leaves as they are; one for each group of layers has no word for that."""
    match part:
        case NoQuantization() | NoEviction() | PerLayer():
            return frozenset()
        case Quantized(skip_layers=layers) | Evicting(skip_layers=layers):
            return frozenset(layers or ())
        case _:
            assert_never(part)


# --- reuse and scheduling --------------------------------------------------------------------------------------------


class Reuse(Closed):
    """Sharing of cached tokens between requests."""

    prefix_caching: bool | None = None
    offload_gib: Annotated[Number, Field(gt=0)] | None = None


class Scheduling(Closed):
    """How the engine batches. Absent values are the engine's."""

    chunked_prefill: bool | None = None
    max_num_batched_tokens: PositiveInt | None = None
    max_num_seqs: PositiveInt | None = None
    block_size: PositiveInt | None = None
    max_model_len: PositiveInt | None = None
    gpu_memory_utilization: Annotated[Number, Field(gt=0.0, le=1.0)] | None = None


def _is_plain(value: object) -> object:
    """One problem in place of one for each type that a value is not."""
    if isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"got {value!r:.80}; allowed: text, a finite number, true or false")


EngineArgument = Annotated[str | int | float | bool, BeforeValidator(_is_plain)]


class KVConfig(Closed):
    """One arm's KV configuration. `engine_args` is passed through as flags if the operator allows their names."""

    quantization: Quantization = NoQuantization()
    eviction: Eviction = NoEviction()
    reuse: Reuse = Reuse()
    scheduling: Scheduling = Scheduling()
    engine_args: dict[str, EngineArgument] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        """A short name made of what is not default, such as `fp8_e4m3 + sliding_window(1024)`."""
        return " + ".join(self._parts()) or "16-bit full cache"

    def label_against(self, baseline: KVConfig) -> str:
        """A short name made of what differs from `baseline`."""
        known = baseline._parts()
        own = [part for part in self._parts() if part not in known]
        if self.reuse.prefix_caching is False and baseline.reuse.prefix_caching is not False:
            own.append("no prefix caching")
        return " + ".join(own) or self.label

    def _parts(self) -> list[str]:
        parts = []
        if self.quantization.scheme != "none":
            parts.append(f"{scheme_name(self.quantization)}{_skipping(self.quantization)}")
        if self.eviction.policy != "none":
            parts.append(eviction_label(self.eviction) + _skipping(self.eviction))
        if self.reuse.prefix_caching:
            parts.append("prefix caching")
        if self.reuse.offload_gib:
            parts.append(f"offload {self.reuse.offload_gib:g} GiB")
        parts += [f"{key}={value}" for key, value in self.scheduling.model_dump(exclude_none=True).items()]
        parts += [f"{key}={value}" for key, value in self.engine_args.items()]
        return parts


def scheme_name(quantization: Quantization) -> str:
    """A scheme with what is not usual of it: `none`, `kivi-2`, `q8_0/q4_0`, `fp8_e4m3 (checkpoint scales)`."""
    bits = getattr(quantization, "bits", None)
    scales = getattr(quantization, "scales", "unit")
    values = getattr(quantization, "values", None)
    return (
        quantization.scheme
        + (f"-{bits}" if bits else "")
        + (f"/{values}" if values else "")
        + (f" ({scales} scales)" if scales != "unit" else "")
    )


def _skipping(part: Quantization | Eviction) -> str:
    layers = sorted(skipped_layers(part))
    return f" without layers {', '.join(map(str, layers))}" if layers else ""
