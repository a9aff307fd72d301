"""The service's own metrics for Prometheus, computed from the database when they are asked for.

So they are the same from every API process, and survive restarts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from sqlalchemy.orm import Session

from gatekeeper.domain.verdict import Verdict
from gatekeeper.storage import figures
from gatekeeper.storage.database import Sessions, transaction

BOUNDS: Final = (60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0)
"""Of a run's duration, in seconds."""


def exposition(sessions: Sessions, accept: str) -> tuple[bytes, str]:
    """The metrics in the format that `accept` names, and its media type. Raises ServiceUnavailable."""
    with transaction(sessions) as session:
        families = [*_queue(session), *_results(session), *_failures(session)]
    registry = CollectorRegistry()
    registry.register(_Fixed(families))
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


class _Fixed(Collector):
    """What was already collected."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """The families as they are."""
        yield from self._families


def _queue(session: Session) -> Iterator[Metric]:
    runs = GaugeMetricFamily("gatekeeper_runs_open", "Runs queued or running.", labels=["device", "state"])
    age = GaugeMetricFamily(
        "gatekeeper_run_oldest_seconds",
        "Since when the oldest queued or running run was queued.",
        labels=["device", "state"],
    )
    for device, state, count, seconds in figures.queue(session):
        runs.add_metric([device, state], count)
        age.add_metric([device, state], float(seconds))
    yield from (runs, age)


def _results(session: Session) -> Iterator[Metric]:
    verdicts = CounterMetricFamily("gatekeeper_verdicts", "Verdicts that runs came to.", labels=["verdict"])
    counted: dict[str, int] = dict(figures.verdicts(session))
    for verdict in Verdict:  # zeros too, so that a rate is known before the first
        verdicts.add_metric([str(verdict)], counted.get(str(verdict), 0))
    yield verdicts
    yield _durations(session)
    stages = GaugeMetricFamily(
        "gatekeeper_stage_seconds",
        "Duration of a stage of an arm, over the runs that finished within a day.",
        labels=["arm", "stage", "quantile"],
    )
    for arm, stage, _, quantiles in figures.stages(session):
        for quantile, seconds in zip(("0.5", "0.95"), quantiles, strict=True):
            stages.add_metric([arm, stage, quantile], float(seconds))
    yield stages


def _durations(session: Session) -> Metric:
    family = HistogramMetricFamily(
        "gatekeeper_run_duration_seconds", "From the first claim to the verdict.", labels=["verdict"]
    )
    found = figures.durations(session, BOUNDS)
    for verdict in dict.fromkeys(row[0] for row in found):
        in_bucket = {place: count for name, place, count, _ in found if name == verdict}
        total, buckets = 0, []
        for place, bound in enumerate((*BOUNDS, "+Inf")):
            total += in_bucket.get(place, 0)
            buckets.append((str(bound), total))
        seconds = sum(float(row[3]) for row in found if row[0] == verdict)
        family.add_metric([verdict], buckets=buckets, sum_value=seconds)
    return family


def _failures(session: Session) -> Iterator[Metric]:
    engines = CounterMetricFamily(
        "gatekeeper_engine_failures", "Arms whose engine failed.", labels=["role", "kind"]
    )
    for role, kind, count in figures.failures(session):
        engines.add_metric([role, kind], count)
    messages = GaugeMetricFamily(
        "gatekeeper_webhook_messages", "Messages of webhooks by what became of them.", labels=["state"]
    )
    for state, count in figures.deliveries(session):
        messages.add_metric([state], count)
    yield from (
        engines,
        messages,
        GaugeMetricFamily(
            "gatekeeper_lease_takeovers",
            "Leases of runs, as last submitted, that expired: workers that were given up.",
            value=figures.takeovers(session),
        ),
        GaugeMetricFamily(
            "gatekeeper_waivers_in_force", "Waivers in force.", value=figures.waivers_in_force(session)
        ),
    )
