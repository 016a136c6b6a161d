"""What Prometheus has seen of a cluster, for people and as data: loads of workloads and the use of GPUs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cli.output import TableText, gib, number
from clusters.estate import Estate
from clusters.gpu_use import UseInterval, WorkloadUse
from clusters.measured import MeasuredSeries, WorkloadSeries
from clusters.metrics.measuring import PrometheusReading

LOAD_HEADINGS = ("SERVER", "A SECOND", "PEAK", "SERVING", "LATENCY", "FIRST TOKEN", "A TOKEN")
MOST_QUARTERS = 0.95  # that keep the times shown


def write_loads(estate: Estate, reading: PrometheusReading) -> TableText:
    """Returns a row for each workload that was seen."""
    rows: list[tuple[str, ...]] = []
    for workload in estate.workloads:
        load, use = reading.loads.workloads.get(workload.name), reading.uses.get(workload.name)
        if load or use:
            rows.append((str(workload.name), *_load_cells(load), *_use_cells(use)))
    return TableText(("WORKLOAD", *LOAD_HEADINGS, "GPUS BUSY", "MEMORY"), rows)


def _load_cells(load: WorkloadSeries | None) -> tuple[str, ...]:
    if load is None:
        return ("",) * len(LOAD_HEADINGS)
    rates = _known(load.rates_per_second)
    return (
        load.server,
        number(_round(sum(rates) / len(rates))) if rates else "",
        number(_round(max(_known(load.peaks_per_second), default=None))),
        number(_round(max(_known(load.ready_replicas), default=None))),
        *(_kept(values) for values in (load.latency_ms, load.first_token_ms, load.token_ms)),
    )


def _use_cells(use: WorkloadUse | None) -> tuple[str, str]:
    if use is None:
        return "", ""
    busy = f"{spell_interval(use.activity, 2)} of {use.gpus}" if use.activity else ""
    memory = use.memory_peak_gib
    return busy, gib(round(memory.high, 1)) + (" shared" if memory.low != memory.high else "") if memory else ""


def spell_interval(found: UseInterval, places: int) -> str:
    """Returns an interval, or one number where both ends are shown alike."""
    low, high = (number(round(value, places)) for value in (found.low, found.high))
    return low if low == high else f"{low}..{high}"


def _kept(values: MeasuredSeries) -> str:
    """Returns the time that was kept in nearly all quarters of an hour."""
    known = sorted(_known(values))
    if not known:
        return ""
    kept = known[min(len(known) - 1, int(MOST_QUARTERS * len(known)))]
    return f"{number(_round(kept))} ms" if math.isfinite(kept) else "above all buckets"


def _finite(values: MeasuredSeries) -> MeasuredSeries:
    """Returns the values as JSON can say them."""
    return tuple(None if value is None or math.isinf(value) else value for value in values)


def _known(values: MeasuredSeries) -> list[float]:
    return [value for value in values if value is not None]


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


def reading_data(reading: PrometheusReading) -> dict[str, Any]:
    """Returns everything that was measured as JSON's types."""
    loads = reading.loads
    return {
        "start": loads.start, "stepSeconds": loads.step_seconds, "steps": loads.steps,
        "loads": [
            {
                "workload": str(name), "server": load.server, "ratesPerSecond": list(load.rates_per_second),
                "peaksPerSecond": list(load.peaks_per_second), "readyReplicas": list(load.ready_replicas),
                "latencyMs": list(_finite(load.latency_ms)), "firstTokenMs": list(_finite(load.first_token_ms)),
                "tokenMs": list(_finite(load.token_ms)), "inputTokens": list(load.input_tokens),
                "outputTokens": list(load.output_tokens),
            }
            for name, load in loads.workloads.items()
        ],
        "gpus": [
            {
                "device": gpu.device, "node": gpu.node, "holders": [str(name) for name in gpu.holders],
                "pods": gpu.pods, "memoryPeakGib": gpu.memory_peak_gib, "activityMean": gpu.activity_mean,
                "activityP95": gpu.activity_p95, "activityMetric": gpu.activity_metric,
            }
            for gpu in reading.gpus
        ],
        "uses": [
            {
                "workload": str(name), "gpus": use.gpus, "gpusBusy": _pair(use.activity),
                "memoryPeakGib": _pair(use.memory_peak_gib),
            }
            for name, use in reading.uses.items()
        ],
    }  # fmt: skip


def _pair(found: UseInterval | None) -> Sequence[float] | None:
    return None if found is None else [found.low, found.high]
