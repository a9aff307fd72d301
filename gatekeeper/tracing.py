"""OpenTelemetry traces, where the environment names a collector; else nothing is imported and no span exists.

The SDK reads its own variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME`,
`OTEL_TRACES_SAMPLER`, …) as https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/ has them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PREFIX: Final = "gatekeeper."
"""Of every attribute that has no name in OpenTelemetry's conventions."""
HEADERS: Final = ("traceparent", "tracestate")
"""What names a trace in requests and messages (https://www.w3.org/TR/trace-context/)."""
_tracer: Any = None


def is_configured() -> bool:
    """Whether the environment names a collector and does not switch the SDK off."""
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return not is_off and any(os.environ.get(name, "").strip() for name in ENDPOINTS)


def start(service: str) -> Callable[[], None]:
    """Send this process's spans if a collector is named; return what sends the last ones and ends it.

    Call it in the process that works, not before a fork: a thread sends the spans.
    """
    if not is_configured():
        return _nothing
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return start_with(BatchSpanProcessor(OTLPSpanExporter()), service)


def start_with(processor: Any, service: str) -> Callable[[], None]:
    """The same with a span processor of the caller's."""
    global _tracer  # noqa: PLW0603 - a process has one, as it has one log
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(processor)
    _tracer = provider.get_tracer("gatekeeper")

    def end() -> None:
        global _tracer  # noqa: PLW0603 - see above
        _tracer = None
        provider.shutdown()

    return end


@contextmanager
def span(
    name: str, *, kind: str = "INTERNAL", carried: Mapping[str, str] | None = None, **attributes: object
) -> Iterator[Any]:
    """A span around the block or, as a decorator, the function; yields it, or None while off.

    It is below the present span, or below the one that `carried` names. An exception that leaves it makes it an error.
    """
    if _tracer is None:
        yield None
        return
    from opentelemetry.propagate import extract
    from opentelemetry.trace import SpanKind

    values: Any = {PREFIX + key: str(value) for key, value in attributes.items()}
    context = extract(carried) if carried else None
    with _tracer.start_as_current_span(
        name, context=context, kind=SpanKind[kind], attributes=values
    ) as present:
        yield present


def note(**attributes: object) -> None:
    """Add to the present span what became known inside it."""
    if _tracer is not None:
        from opentelemetry.trace import get_current_span

        get_current_span().set_attributes({PREFIX + key: str(value) for key, value in attributes.items()})


def carrier() -> dict[str, str]:
    """The present span as headers of a message, in W3C's form; empty while off."""
    headers: dict[str, str] = {}
    if _tracer is not None:
        from opentelemetry.propagate import inject

        inject(headers)
    return headers


def _nothing() -> None:
    """Nothing was started."""
