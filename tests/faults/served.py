"""What an engine's `/metrics` say, read without the product's own readers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

CACHE_CONFIG: Final = "vllm:cache_config_info"
PREFIX_HITS: Final = "vllm:prefix_cache_hits_total"
PREEMPTIONS: Final = "vllm:num_preemptions_total"


def labels(text: str, metric: str) -> Mapping[str, str]:
    """The labels of the metric's first sample, none if it is not served."""
    return next((sample.labels for sample in _samples(text, metric)), {})


def value(text: str, metric: str) -> float:
    """The sum of the metric's samples, 0 if it is not served."""
    return sum(sample.value for sample in _samples(text, metric))


def _samples(text: str, metric: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        yield from (sample for sample in family.samples if sample.name == metric)
