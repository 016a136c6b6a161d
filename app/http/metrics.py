"""Prometheus metrics of this process; the names and labels here are part of the interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client import exposition as text
from prometheus_client.openmetrics import exposition as openmetrics

OPEN_METRICS = "application/openmetrics-text"
disable_created_metrics()  # type: ignore[no-untyped-call]  # when each series began is of no use
REGISTRY = CollectorRegistry()
ProcessCollector(namespace="gpuwright", registry=REGISTRY)

REQUESTS = Counter(
    "gpuwright_requests",
    "Requests answered; the route is its template, or `(gate)` when the request was refused before routing.",
    ["method", "route", "status"],
    registry=REGISTRY,
)
REQUEST_SECONDS = Histogram(
    "gpuwright_request_seconds",
    "Time from the head of a request to the end of its answer, without long polls and watches.",
    ["route"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
    registry=REGISTRY,
)
IN_FLIGHT = Gauge("gpuwright_requests_in_flight", "Requests being answered.", registry=REGISTRY)
OPEN_LONG = Gauge("gpuwright_open_long_requests", "Watches and long polls that are open.", ["lane"], registry=REGISTRY)
REFUSED_BODIES = Counter(
    "gpuwright_refused_bodies", "Bodies refused before they reached a route.", ["reason"], registry=REGISTRY
)
RATE_LIMITED = Counter("gpuwright_rate_limited", "Requests answered 429.", ["lane"], registry=REGISTRY)
FAILED_AUTHENTICATIONS = Counter(
    "gpuwright_failed_authentications", "Requests without a valid token.", registry=REGISTRY
)
CONNECTIONS = Gauge("gpuwright_connections", "Open connections.", registry=REGISTRY)
CUT_CONNECTIONS = Counter(
    "gpuwright_cut_connections",
    "Connections that the server closed, by reason.",
    ["reason"],
    registry=REGISTRY,
)
BODY_BYTES = Gauge(
    "gpuwright_body_bytes", "Bytes of requests that the server holds, without those of nodes.", registry=REGISTRY
)
UNSENT_BYTES = Gauge(
    "gpuwright_unsent_answer_bytes", "Bytes of answers to tokens that clients have not taken.", registry=REGISTRY
)
POOL = Gauge("gpuwright_database_pool_connections", "Pooled connections.", ["state"], registry=REGISTRY)
RESERVED_POOL = Gauge(
    "gpuwright_database_reserved_pool_connections",
    "Pooled connections for reports, polls, tokens and housekeeping.",
    ["state"],
    registry=REGISTRY,
)

_METHODS = frozenset({"GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS"})
_requests: dict[tuple[str, str, int], Counter] = {}
_seconds: dict[str, Histogram] = {}


def count_answer(method: str, route: str, status: int, seconds: float | None, exemplar: Mapping[str, str]) -> None:
    """Counts an answer. Routes are templates, so the children stored here are few. The exemplar identifies it."""
    key = (method, route, status)
    counter = _requests.get(key)
    if counter is None:
        counter = REQUESTS.labels(method if method in _METHODS else "other", route, str(status))
        if method in _METHODS:
            _requests[key] = counter
    counter.inc()
    if seconds is not None:
        histogram = _seconds.get(route)
        if histogram is None:
            histogram = _seconds[route] = REQUEST_SECONDS.labels(route)
        histogram.observe(seconds, dict(exemplar))


def watch_pool(gauge: Gauge, size: Callable[[], int], in_use: Callable[[], int]) -> None:
    """Shows a database pool: `engine.pool.size` and `engine.pool.checkedout`."""
    gauge.labels("size").set_function(size)
    gauge.labels("in_use").set_function(in_use)


def render(accept: str = "") -> tuple[bytes, str]:
    """Returns the page that Prometheus scrapes, and its media type. Only OpenMetrics can carry exemplars."""
    # Not the client's `choose_encoder`: it fails at a version that is no number, and repeats it in the answer.
    if any(entry.split(";")[0].strip().lower() == OPEN_METRICS for entry in accept.split(",")):
        return openmetrics.generate_latest(REGISTRY), openmetrics.CONTENT_TYPE_LATEST  # type: ignore[no-untyped-call]
    return text.generate_latest(REGISTRY), text.CONTENT_TYPE_LATEST
