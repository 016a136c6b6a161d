"""What was measured of workloads: series in equal steps, with gaps, and the latency that each is to keep.

A reader of metrics fills these types, and `clusters.savings` reads them. Where a step may be read in two ways, give
what promises less: the most replicas that were ready in it, the longest lengths, the worst latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from clusters.estate import UnknownFigure, WorkloadName

# One value a step; None is a gap. An empty series was never measured.
MeasuredSeries: TypeAlias = tuple[float | None, ...]

USUAL_PERCENTILE = 99.0


@dataclass(frozen=True, slots=True)
class LatencyPromise:
    """What a workload is to keep: so many percent of its requests within this latency."""

    latency_ms: float
    source: str  # `annotation gpuwright.io/slo-p99-ms`, or the file's name
    percentile: float = USUAL_PERCENTILE

    def __post_init__(self) -> None:
        if not 0 < self.latency_ms < float("inf"):
            raise ValueError(f"a latency of {self.latency_ms} ms cannot be kept")
        if not 0 < self.percentile < 100:
            raise ValueError(f"percentile {self.percentile} is outside 0..100")


@dataclass(frozen=True, slots=True)
class WorkloadSeries:
    """What one workload did, all its replicas together; every series that is not empty has all steps."""

    rates_per_second: MeasuredSeries  # requests finished, on average over the step
    ready_replicas: MeasuredSeries  # the most that were ready in the step
    latency_ms: MeasuredSeries = ()  # at the promise's percentile, else at the usual one
    shares_within: MeasuredSeries = ()  # of requests within the promise, 0..1; where known, it counts, not the latency
    input_tokens: MeasuredSeries = ()  # of a request, on average
    output_tokens: MeasuredSeries = ()
    server: str = ""  # whose counters these are: a model server's, or Istio's
    peaks_per_second: MeasuredSeries = ()  # the highest rate of two minutes in the step
    first_token_ms: MeasuredSeries = ()  # as the latency
    token_ms: MeasuredSeries = ()  # for each token after the first


@dataclass(frozen=True, slots=True)
class MeasuredLoads:
    """What was measured of all workloads in one range; a workload that is missing was not measured."""

    start: float  # Unix seconds, when the first step begins
    step_seconds: int
    steps: int
    source: str  # `Prometheus at http://...`
    workloads: Mapping[WorkloadName, WorkloadSeries]
    unknown: tuple[UnknownFigure, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.step_seconds <= 0 or self.steps <= 0:
            raise ValueError(f"{self.steps} steps of {self.step_seconds} s are no range")
        for name, found in self.workloads.items():
            for series in (
                found.rates_per_second, found.ready_replicas, found.latency_ms, found.shares_within,
                found.input_tokens, found.output_tokens, found.peaks_per_second, found.first_token_ms,
                found.token_ms,
            ):  # fmt: skip
                if series and len(series) != self.steps:
                    raise ValueError(f"a series of {name} has {len(series)} steps of {self.steps}")
