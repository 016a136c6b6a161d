"""Exposes the sidecar's figures as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator

from agents.contract.fields import LATENCY_EDGES_MS
from agents.gateway.sidecar import Sidecar
from agents.gateway.wire import CountedRequests
from agents.prometheus.writing import Family, format_families, format_labels, make_buckets, single

EDGES = [f"{edge_ms / 1000:.7g}" for edge_ms in LATENCY_EDGES_MS]


def metrics(sidecar: Sidecar) -> str:
    """Returns the whole page. Histograms have no sum: buckets are enough for latencies."""
    return format_families((*_list_sidecar(sidecar), *_list_copies(sidecar), *_list_requests(sidecar.counts().counted)))


def _list_sidecar(sidecar: Sidecar) -> Iterator[Family]:
    counts, condition = sidecar.counts(), sidecar.condition()

    def family(name: str, kind: str, text: str, value: int) -> Family:
        return single(f"gpuwright_gateway_{name}", kind, value, text)

    yield family("in_force", "gauge", "1: HAProxy has everything declared in force.", int(condition.in_force))
    yield family("haproxy_processes", "gauge", "Old ones included.", condition.workers)
    yield family("convergences_total", "counter", "Times that HAProxy was configured.", condition.convergences)
    yield family("left_out_routes", "gauge", "Copies that are not routed; the log says why.", len(condition.left_out))
    yield family("failures_total", "counter", "Of these, those that failed.", condition.failures)
    yield family("log_lines_total", "counter", "Requests that HAProxy logged.", counts.lines)
    yield family("lost_log_lines_total", "counter", "Log lines that were not read in time.", counts.lost_lines)
    yield family("refused_log_lines_total", "counter", "Log lines that could not be parsed.", counts.refused_lines)
    yield family("unknown_service_total", "counter", "Requests for an unknown service.", sidecar.tallies.unknown)


def _list_copies(sidecar: Sidecar) -> Iterator[Family]:
    states = [(source, sidecar.in_force(source)) for source in sidecar.sources()]
    routed = [
        (format_labels(source=source, copy=state.copy), state)
        for source, declared in states
        if declared
        for state in declared.routes
    ]
    ready = [(labels, int(state.ready)) for labels, state in routed]
    yield Family("gpuwright_gateway_copy_ready", "gauge", "1: HAProxy sends it requests.", ready)
    limits = [(format_labels(service=service), most) for service, most in sidecar.relief.most_open.items()]
    yield Family(
        "gpuwright_gateway_service_overload_limit",
        "gauge",
        "Most requests open at once, while the service is overloaded.",
        limits,
    )
    requests = [(labels, state.open_requests) for labels, state in routed]
    yield Family("gpuwright_gateway_copy_open_requests", "gauge", "Requests open at it now.", requests)


def _list_requests(all_counted: tuple[CountedRequests, ...]) -> Iterator[Family]:
    copies = [
        (format_labels(service=counted.service, source=counted.source, copy=counted.copy), counted)
        for counted in all_counted
        if counted.copy
    ]
    services = [(format_labels(service=counted.service), counted) for counted in all_counted if not counted.copy]
    for what, totals in (("copy", copies), ("service", services)):
        requests = [(labels, counted.requests) for labels, counted in totals]
        yield Family(f"gpuwright_gateway_{what}_requests_total", "counter", "Requests logged.", requests)
        errors = [(labels, counted.errors) for labels, counted in totals]
        yield Family(f"gpuwright_gateway_{what}_errors_total", "counter", "Of these, those that failed.", errors)
    tokens = [(labels, counted.tokens) for labels, counted in services if counted.tokens]
    for name, text in (
        ("tokens_in", "Tokens of prompts, by the answers' usage."),
        ("tokens_out", "Tokens of answers."),
        ("paced", "Answers whose pace of tokens was measured."),
        ("pace_late", "Of these, slower than promised."),
    ):
        values = [(labels, getattr(totals, name)) for labels, totals in tokens]
        yield Family(f"gpuwright_gateway_service_{name}_total", "counter", text, values)
    yield Family(
        "gpuwright_gateway_service_latency_seconds",
        "histogram",
        "As the gateway measured it, of answered requests; of a language model to the first token.",
        [sample for labels, counted in services for sample in make_buckets(EDGES, counted.latency_counts, labels)],
    )
