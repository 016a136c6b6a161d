"""Spans reach a collector that speaks OTLP over HTTP; without one, nothing of OpenTelemetry is loaded."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.app.http.conftest import Start

Spans = list[ExportTraceServiceRequest]


class Collector(BaseHTTPRequestHandler):
    """Keeps what it is sent."""

    received: Spans = []  # noqa: RUF012

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert self.path == "/v1/traces"
        self.received.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def collector() -> Iterator[tuple[str, Spans]]:
    Collector.received = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}", Collector.received
        httpd.shutdown()
        thread.join()


@pytest.mark.slow
def test_a_request_is_a_span_of_its_callers_trace(start: Start, collector: tuple[str, Spans]) -> None:
    endpoint, received = collector
    server = start(settings={"otlp_endpoint": endpoint})
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    server.ask("GET", "/api/v1/services/x", traceparent=f"00-{trace}-{parent}-01", X_Request_Id="abc-1")
    server.ask("GET", "/api/v1/boom", traceparent="nonsense")
    page = server.ask("GET", "/metrics", Accept="application/openmetrics-text").body.decode()
    assert f'# {{request_id="abc-1",trace_id="{trace}"}} ' in page
    assert server.stop() == 0  # sends what is left
    spans = [
        span
        for request in received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    first, second, _ = spans
    values = {item.key: item.value for item in first.attributes}
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (trace, parent)
    assert first.name == "GET /api/v1/services/{name}"
    assert values["gpuwright.request_id"].string_value == "abc-1"
    assert values["http.response.status_code"].int_value == 404
    assert second.trace_id.hex() != trace
    assert second.status.code == 2


@pytest.mark.slow
def test_a_dead_collector_disturbs_no_request(start: Start) -> None:
    server = start(settings={"otlp_endpoint": "http://127.0.0.1:9"})
    assert server.ask("GET", "/api/v1/services").status == 200
    assert server.stop() == 0


def test_without_an_endpoint_nothing_of_it_is_imported() -> None:
    code = (
        "import sys; from app.http import tracing; from app.settings import Settings; "
        "assert tracing.configure(Settings()) is None; "
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    environment = {"PATH": "/usr/bin"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
