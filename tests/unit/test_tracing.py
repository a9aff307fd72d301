"""Traces: off unless a collector is named, whole across the queue, and sent as OTLP over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gatekeeper import tracing


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Every span that ends, in order."""
    exporter = InMemorySpanExporter()
    end = tracing.start_with(SimpleSpanProcessor(exporter), "tests")
    yield exporter
    end()


def test_without_a_collector_nothing_is_imported_and_no_span_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tracing.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    loaded = set(sys.modules)
    end = tracing.start("tests")
    with tracing.span("submit", run_id="r") as span:
        assert span is None
        assert tracing.carrier() == {}
        tracing.note(verdict="PASS")
    end()
    assert {name for name in set(sys.modules) - loaded if name.startswith("opentelemetry")} == set()


def test_the_sdks_own_switch_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    assert tracing.is_configured()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not tracing.is_configured()


def test_a_message_carries_the_trace_to_whoever_reads_it(spans: InMemorySpanExporter) -> None:
    with tracing.span("submit", run_id="r"):
        carried = tracing.carrier()
    with tracing.span("run", kind="CONSUMER", carried=carried), tracing.span("judge"):
        tracing.note(verdict="PASS")
    submit, judge, run = spans.get_finished_spans()
    assert run.parent is not None
    assert run.parent.span_id == submit.context.span_id
    assert {span.context.trace_id for span in (submit, judge, run)} == {submit.context.trace_id}
    assert dict(judge.attributes or {}) == {"gatekeeper.verdict": "PASS"}
    assert dict(submit.attributes or {}) == {"gatekeeper.run_id": "r"}


def test_what_fails_is_an_error_with_its_exception(spans: InMemorySpanExporter) -> None:
    def fail() -> None:
        with tracing.span("launch"):
            raise ValueError("no such device")

    with pytest.raises(ValueError, match="no such device"):
        fail()
    (launch,) = spans.get_finished_spans()
    assert not launch.status.is_ok
    assert [event.name for event in launch.events] == ["exception"]
