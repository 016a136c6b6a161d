"""OpenTelemetry spans of requests and cycles, if a collector is set; otherwise OpenTelemetry is not even imported."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from app.http import answers
from app.settings import Settings

if TYPE_CHECKING:
    from app.http.visit import Visit


class Tracing:
    """Sends spans to an OTLP/HTTP collector, in the background; a dead one costs nothing."""

    def __init__(self, endpoint: str) -> None:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        url = endpoint.rstrip("/")
        exporter = OTLPSpanExporter(endpoint=url if url.endswith("/v1/traces") else f"{url}/v1/traces", timeout=5)
        # Our own provider, not the global one: only what we name is sent.
        self._provider = TracerProvider(resource=Resource.create({"service.name": "gpuwright"}))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("gpuwright")
        self._propagator = TraceContextTextMapPropagator()
        self._trace = trace

    @contextmanager
    def span(self, visit: Visit, traceparent: str | None) -> Iterator[None]:
        """Opens the span of a request, in the caller's trace if it sent a W3C traceparent."""
        carrier: dict[str, object] = {"traceparent": traceparent} if traceparent else {}
        context = self._propagator.extract(carrier)
        with self._tracer.start_as_current_span(
            visit.method, context=context, kind=self._trace.SpanKind.SERVER
        ) as span:
            visit.trace_id = self.current_id()
            try:
                yield
            finally:
                span.update_name(f"{visit.method} {visit.route}")
                span.set_attributes(
                    {
                        "http.request.method": visit.method,
                        "http.route": visit.route,
                        "http.response.status_code": visit.status,
                        "url.path": answers.instance_of(visit.scope),
                        "gpuwright.request_id": visit.request_id,
                    }
                )
                if visit.status >= 500:
                    span.set_status(self._trace.StatusCode.ERROR)

    def part(self, name: str) -> AbstractContextManager[object]:
        """Opens a span inside the current span, or a new trace."""
        return self._tracer.start_as_current_span(name)

    def current_id(self) -> str:
        """Returns the id of the current trace if it is sent, as a caller may ask that its trace is not."""
        context = self._trace.get_current_span().get_span_context()
        return f"{context.trace_id:032x}" if context.trace_flags.sampled else ""

    def note(self, values: Mapping[str, str | int | float | bool]) -> None:
        """Adds attributes to the current span."""
        self._trace.get_current_span().set_attributes(values)

    def close(self) -> None:
        """Sends the remaining spans."""
        self._provider.shutdown()


def configure(settings: Settings) -> Tracing | None:
    """Returns the tracing if an endpoint is set."""
    endpoint = settings.otlp_endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    return Tracing(endpoint) if endpoint else None
