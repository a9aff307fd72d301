"""The KV configuration: three independent axes (quantization, eviction, reuse) plus scheduling.

Every field is closed and typed. `None` always means "the engine's own default", never "off".
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gatekeeper.domain.base import Closed, Fraction, NonNegativeInt, PositiveInt

# --- quantization ----------------------------------------------------------------------------------------------------


class NoQuantization(Closed):
    """Keys and values stay in the model's 16-bit type."""

    scheme: Literal["none"] = "none"


class Fp8(Closed):
    """8-bit floats. `scales`: 1.0 everywhere, read from the checkpoint, or calibrated beforehand."""

    scheme: Literal["fp8_e4m3", "fp8_e5m2"]
    scales: Literal["unit", "checkpoint", "calibrated"] = "unit"


class Int8(Closed):
    """8-bit integers, one scale per token and head."""

    scheme: Literal["int8"]


class Int4(Closed):
    """4-bit integers. `group_size`: channels that share a scale; absent means one scale per token and head."""

    scheme: Literal["int4"]
    group_size: PositiveInt | None = None


class Nvfp4(Closed):
    """4-bit floats with an FP8 scale per 16 values."""

    scheme: Literal["nvfp4"]


class TurboQuant(Closed):
    """Rotated vector quantization, named as vLLM names its variants."""

    scheme: Literal["turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"]


class Nf4(Closed):
    """4-bit normal floats with one absolute maximum per block (Dettmers et al. 2023, QLoRA)."""

    scheme: Literal["nf4"]
    block_size: PositiveInt = 64


class Kivi(Closed):
    """Keys per channel, values per token, the newest tokens in full precision (Liu et al. 2024, KIVI)."""

    scheme: Literal["kivi"]
    bits: Literal[2, 4]
    group_size: PositiveInt = 32
    residual_length: NonNegativeInt = 128


OutlierFraction = Annotated[float, Field(ge=0.0, lt=0.5)]
CalibrationId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class KvQuant(Closed):
    """Non-uniform per-channel keys before rotation, with sparse outliers (Hooper et al. 2024, KVQuant).

    `calibration`: the id of one that was made for the model; absent: the newest that there is, which a plan then names.
    """

    scheme: Literal["kvquant"]
    bits: Literal[2, 3, 4]
    outlier_fraction: OutlierFraction = 0.01
    calibration: CalibrationId | None = None


GgmlType = Literal["q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]


class GgmlBlocks(Closed):
    """llama.cpp's formats, in which blocks of 32 elements share a 16-bit scale.

    `values`: the format of values where it is not that of keys.
    """

    scheme: GgmlType
    values: GgmlType | None = None


Quantization = Annotated[
    NoQuantization | Fp8 | Int8 | Int4 | Nvfp4 | TurboQuant | Nf4 | Kivi | KvQuant | GgmlBlocks,
    Field(discriminator="scheme"),
]

# --- eviction --------------------------------------------------------------------------------------------------------


class NoEviction(Closed):
    """Every token stays in the cache."""

    policy: Literal["none"] = "none"


class SlidingWindow(Closed):
    """Each token attends to the last `window` tokens only."""

    policy: Literal["sliding_window"]
    window: PositiveInt


class StreamingLlm(Closed):
    """The first `sinks` tokens and the last `window` tokens stay (Xiao et al. 2024, StreamingLLM)."""

    policy: Literal["streaming_llm"]
    sinks: NonNegativeInt = 4
    window: PositiveInt


class TopK(Closed):
    """Each query attends to its `k` highest-scoring keys; nothing is freed."""

    policy: Literal["topk"]
    k: PositiveInt


class Budgeted(Closed):
    """A policy with one budget: the share of tokens evicted, or the number of tokens kept."""

    evicted_fraction: Fraction | None = None
    budget_tokens: PositiveInt | None = None

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        if (self.evicted_fraction is None) == (self.budget_tokens is None):
            raise ValueError("exactly one of evicted_fraction and budget_tokens is needed")
        return self


class HeavyHitter(Budgeted):
    """Accumulated attention decides who stays, beside a recent window (Zhang et al. 2023, H2O)."""

    policy: Literal["h2o"]


class SnapKv(Budgeted):
    """The attention of the last `observation_window` prompt tokens decides (Li et al. 2024, SnapKV)."""

    policy: Literal["snapkv"]
    observation_window: PositiveInt = 64


class PyramidKv(Budgeted):
    """As SnapKV in each layer, with budgets that fall from the lowest to the highest (Cai et al. 2024, PyramidKV)."""

    policy: Literal["pyramidkv"]
    observation_window: PositiveInt = 64


class ExpectedAttention(Budgeted):
    """The attention that the next `future_tokens` queries can be expected to pay decides (Devoto et al. 2025)."""

    policy: Literal["expected_attention"]
    future_tokens: PositiveInt = 512


class PrefillSelector(Budgeted):
    """Other selectors that compress the prompt's cache once, named as in the literature."""

    policy: Literal["tova", "knorm", "keydiff"]


Eviction = Annotated[
    NoEviction
    | SlidingWindow
    | StreamingLlm
    | TopK
    | HeavyHitter
    | SnapKv
    | PyramidKv
    | ExpectedAttention
    | PrefillSelector,
    Field(discriminator="policy"),
]

# --- reuse and scheduling --------------------------------------------------------------------------------------------


class Reuse(Closed):
    """Sharing of cached tokens between requests."""

    prefix_caching: bool | None = None
    offload_gib: Annotated[float, Field(gt=0)] | None = None


class Scheduling(Closed):
    """How the engine batches. Absent values are the engine's."""

    chunked_prefill: bool | None = None
    max_num_batched_tokens: PositiveInt | None = None
    max_num_seqs: PositiveInt | None = None
    block_size: PositiveInt | None = None
    max_model_len: PositiveInt | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0.0, le=1.0)] | None = None


EngineArgument = str | int | float | bool


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
        own = [part for part in self._parts() if part not in baseline._parts()]
        if self.reuse.prefix_caching is False and baseline.reuse.prefix_caching is not False:
            own.append("no prefix caching")
        return " + ".join(own) or self.label

    def _parts(self) -> list[str]:
        parts = []
        if self.quantization.scheme != "none":
            bits = getattr(self.quantization, "bits", None)
            scales = getattr(self.quantization, "scales", "unit")
            values = getattr(self.quantization, "values", None)
            parts.append(
                self.quantization.scheme
                + (f"-{bits}" if bits else "")
                + (f"/{values}" if values else "")
                + (f" ({scales} scales)" if scales != "unit" else "")
            )
        if self.eviction.policy != "none":
            parameters = self.eviction.model_dump(exclude={"policy"}, exclude_none=True)
            parts.append(f"{self.eviction.policy}({', '.join(str(value) for value in parameters.values())})")
        if self.reuse.prefix_caching:
            parts.append("prefix caching")
        if self.reuse.offload_gib:
            parts.append(f"offload {self.reuse.offload_gib:g} GiB")
        parts += [f"{key}={value}" for key, value in self.scheduling.model_dump(exclude_none=True).items()]
        parts += [f"{key}={value}" for key, value in self.engine_args.items()]
        return parts
