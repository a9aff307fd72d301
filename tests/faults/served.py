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


def since(text: str, at_boot: str) -> str:
    """The metrics of an engine that runs already, as if it had started then: its counters count from there."""
    before = dict(_counters(at_boot))
    lines = []
    for line in text.splitlines():
        series, _, value = line.rpartition(" ")
        lines.append(f"{series} {float(value) - before[series]}" if series in before else line)
    return "\n".join([*lines, ""])


def _counters(text: str) -> Iterator[tuple[str, float]]:
    """Series with its labels, as written, and value; of a histogram its sum and its count."""
    for line in text.splitlines():
        series, _, value = line.rpartition(" ")
        if not line.startswith("#") and series.partition("{")[0].endswith(("_total", "_sum", "_count")):
            yield series, float(value)
