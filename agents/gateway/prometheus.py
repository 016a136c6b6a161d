"""The sidecar's figures in Prometheus' words."""

from __future__ import annotations

from collections.abc import Iterator

from agents.contract import LATENCY_EDGES_MS
from agents.gateway.sidecar import Sidecar
from agents.gateway.wire import CountedRequests
from agents.prometheus.exposition import Family, exposition, labelled


def metrics(sidecar: Sidecar) -> str:
    """The whole page. The sum of a histogram is not kept: buckets answer what is asked of latencies."""
    return exposition((*_of_sidecar(sidecar), *_of_copies(sidecar), *_of_requests(sidecar.counts().counted)))


def _of_sidecar(sidecar: Sidecar) -> Iterator[Family]:
    counts, condition = sidecar.counts(), sidecar.condition()

    def one(name: str, kind: str, text: str, value: int) -> Family:
        return Family(f"gpuwright_gateway_{name}", kind, text, [("", value)])

    yield one("in_force", "gauge", "1: HAProxy does what is declared.", int(condition.in_force))
    yield one("haproxy_processes", "gauge", "Old ones included.", condition.workers)
    yield one("convergences_total", "counter", "Times HAProxy was gone over.", condition.convergences)
    yield one("failures_total", "counter", "Of these, in vain.", condition.failures)
    yield one("log_lines_total", "counter", "Requests that HAProxy told of.", counts.lines)
    yield one("lost_log_lines_total", "counter", "Not read in time.", counts.lost_lines)
    yield one("refused_log_lines_total", "counter", "Not understood.", counts.refused_lines)
    yield one("unknown_service_total", "counter", "Requests for no service.", sidecar.tallies.unknown)


def _of_copies(sidecar: Sidecar) -> Iterator[Family]:
    states = [(source, sidecar.in_force(source)) for source in sidecar.sources()]
    routed = [
        (labelled(source=source, copy=state.copy), state) for source, said in states if said for state in said.routes
    ]
    ready = [(labels, int(state.ready)) for labels, state in routed]
    yield Family("gpuwright_gateway_copy_ready", "gauge", "1: HAProxy sends it requests.", ready)
    limits = [(labelled(service=service), most) for service, most in sidecar.relief.most_open.items()]
    yield Family(
        "gpuwright_gateway_service_overload_limit", "gauge", "Requests open at once, while more comes than is answered "
        "in time.", limits,
    )  # fmt: skip
    requests = [(labels, state.open_requests) for labels, state in routed]
    yield Family("gpuwright_gateway_copy_open_requests", "gauge", "Requests on their way to it.", requests)


def _of_requests(all_counted: tuple[CountedRequests, ...]) -> Iterator[Family]:
    copies = [(labelled(service=one.service, source=one.source, copy=one.copy), one) for one in all_counted if one.copy]
    services = [(labelled(service=one.service), one) for one in all_counted if not one.copy]
    for what, told in (("copy", copies), ("service", services)):
        requests = [(labels, one.requests) for labels, one in told]
        yield Family(f"gpuwright_gateway_{what}_requests_total", "counter", "Requests told of.", requests)
        errors = [(labels, one.errors) for labels, one in told]
        yield Family(f"gpuwright_gateway_{what}_errors_total", "counter", "Of these, those that failed.", errors)
    yield Family(
        "gpuwright_gateway_service_latency_seconds",
        "histogram",
        "As the gateway saw it, of what was answered.",
        [sample for _, one in services for sample in _histogram(one)],
    )


def _histogram(counted: CountedRequests) -> Iterator[tuple[str, int]]:
    total = 0
    for edge_ms, count in zip(LATENCY_EDGES_MS, counted.latency_counts, strict=False):
        total += count
        yield "_bucket" + labelled(service=counted.service, le=f"{edge_ms / 1000:.7g}"), total
    total = sum(counted.latency_counts)
    yield "_bucket" + labelled(service=counted.service, le="+Inf"), total
    yield "_count" + labelled(service=counted.service), total
