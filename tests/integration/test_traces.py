"""Spans as a collector and a worker get them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import pytest
from celery.contrib.testing.worker import start_worker
from fastapi import FastAPI
from fastapi.testclient import TestClient
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gatekeeper import tracing
from gatekeeper.api.traced import Traced
from gatekeeper.queue import TASK, Doorbell, make_celery, trace_of
from tests.integration.services.seeds import make_settings


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ExportTraceServiceRequest]]:
    """What an OTLP collector on loopback is sent."""
    received: list[ExportTraceServiceRequest] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        yield received
        server.shutdown()


def test_a_request_is_sent_to_the_collector_under_its_route(
    collector: list[ExportTraceServiceRequest],
) -> None:
    end = tracing.start("gatekeeper-api")
    app = FastAPI()
    app.add_middleware(Traced)

    @app.get("/runs/{run_id}")
    def read(run_id: str) -> str:
        with tracing.span("inner"):
            return run_id

    client = TestClient(app)
    client.get("/runs/7", headers={"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})
    client.get("/healthz")
    end()
    (resource,) = (resource for request in collector for resource in request.resource_spans)
    spans = {span.name: span for scope in resource.scope_spans for span in scope.spans}
    assert spans.keys() == {"GET /runs/{run_id}", "inner"}
    request = spans["GET /runs/{run_id}"]
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == ("a" * 32, "b" * 16)
    assert spans["inner"].parent_span_id == request.span_id
    attributes = {entry.key: entry.value for entry in request.attributes}
    assert attributes["http.response.status_code"].int_value == 200
    assert {
        entry.value.string_value for entry in resource.resource.attributes if entry.key == "service.name"
    } == {"gatekeeper-api"}


def test_a_worker_is_told_the_trace_that_a_ring_belongs_to(
    collector: list[ExportTraceServiceRequest], tmp_path: Path
) -> None:
    celery = make_celery(make_settings(None, tmp_path))
    told: list[dict[str, str]] = []
    answered = threading.Event()

    @celery.task(name=TASK, bind=True)  # type: ignore[untyped-decorator]  # celery has no types
    def execute(task: object, _run_id: str) -> None:
        told.append(trace_of(task.request))  # type: ignore[attr-defined]
        answered.set()

    end = tracing.start("tests")
    doorbell = Doorbell(celery)
    with tracing.span("submit"):
        doorbell.ring(uuid4(), "cpu")
    end()
    with start_worker(celery, pool="solo", perform_ping_check=False, shutdown_timeout=30):
        assert answered.wait(30)
    doorbell.close()
    ring = next(
        span
        for request in collector
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
        if span.name == "ring"
    )
    assert [headers.keys() for headers in told] == [{"traceparent"}]
    assert told[0]["traceparent"].startswith(f"00-{ring.trace_id.hex()}-{ring.span_id.hex()}-")
