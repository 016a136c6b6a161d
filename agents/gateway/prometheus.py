"""The sidecar's figures in Prometheus' words."""

from __future__ import annotations

from collections.abc import Iterator

from agents.contract import LATENCY_EDGES_MS
from agents.gateway.sidecar import Sidecar
from agents.gateway.wire import Counted


def metrics(sidecar: Sidecar) -> str:
    """The whole page. The sum of a histogram is not kept: buckets answer what is asked of latencies."""
    return "\n".join(_lines(sidecar)) + "\n"


def _lines(sidecar: Sidecar) -> Iterator[str]:
    counts, condition = sidecar.counts(), sidecar.condition()
    yield from _one("gpuwright_gateway_in_force", "gauge", "HAProxy does what is declared", int(condition.in_force))
    yield from _one("gpuwright_gateway_haproxy_processes", "gauge", "old ones included", condition.workers)
    yield from _one(
        "gpuwright_gateway_convergences_total", "counter", "times HAProxy was gone over", condition.convergences
    )
    yield from _one("gpuwright_gateway_failures_total", "counter", "of these, in vain", condition.failures)
    yield from _one("gpuwright_gateway_log_lines_total", "counter", "requests that HAProxy told of", counts.lines)
    yield from _one("gpuwright_gateway_lost_log_lines_total", "counter", "not read in time", counts.lost_lines)
    yield from _one("gpuwright_gateway_refused_log_lines_total", "counter", "not understood", counts.refused_lines)
    unknown = sidecar.tallies.unknown
    yield from _one("gpuwright_gateway_unknown_service_total", "counter", "requests for no service", unknown)
    yield "# TYPE gpuwright_gateway_copy_ready gauge"
    states = [(source, sidecar.in_force(source)) for source in sidecar.sources()]
    routed = [(source, state) for source, said in states if said for state in said.routes]
    for source, state in routed:
        yield f'gpuwright_gateway_copy_ready{{source="{source}",copy="{_quoted(state.copy)}"}} {int(state.ready)}'
    yield "# TYPE gpuwright_gateway_copy_open_requests gauge"
    for source, state in routed:
        labels = f'source="{source}",copy="{_quoted(state.copy)}"'
        yield f"gpuwright_gateway_copy_open_requests{{{labels}}} {state.open_requests}"
    for name, kind in (("requests", "counter"), ("errors", "counter")):
        yield f"# TYPE gpuwright_gateway_copy_{name}_total {kind}"
        for counted in counts.counted:
            if counted.copy:
                labels = f'service="{counted.service}",source="{counted.source}",copy="{_quoted(counted.copy)}"'
                yield f"gpuwright_gateway_copy_{name}_total{{{labels}}} {getattr(counted, name)}"
        yield f"# TYPE gpuwright_gateway_service_{name}_total {kind}"
        for counted in counts.counted:
            if not counted.copy:
                value = getattr(counted, name)
                yield f'gpuwright_gateway_service_{name}_total{{service="{counted.service}"}} {value}'
    yield "# HELP gpuwright_gateway_service_latency_seconds as the gateway saw it, of what was answered"
    yield "# TYPE gpuwright_gateway_service_latency_seconds histogram"
    for counted in counts.counted:
        if not counted.copy:
            yield from _histogram(counted)


def _histogram(counted: Counted) -> Iterator[str]:
    name, total = "gpuwright_gateway_service_latency_seconds", 0
    for edge_ms, count in zip(LATENCY_EDGES_MS, counted.latency_counts, strict=False):
        total += count
        yield f'{name}_bucket{{service="{counted.service}",le="{edge_ms / 1000:.7g}"}} {total}'
    total = sum(counted.latency_counts)
    yield f'{name}_bucket{{service="{counted.service}",le="+Inf"}} {total}'
    yield f'{name}_count{{service="{counted.service}"}} {total}'


def _one(name: str, kind: str, help_: str, value: int) -> Iterator[str]:
    yield f"# HELP {name} {help_}"
    yield f"# TYPE {name} {kind}"
    yield f"{name} {value}"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
