"""What was measured of workloads: series in equal steps, with gaps, and the latency that each is to keep.

A reader of metrics fills these types, and `clusters.savings` reads them. Where a step may be read in two ways, give
what promises less: the most replicas that were ready in it, the longest lengths, the worst latency. What no plan can
exceed is the other way round, so it has the fewest replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from clusters.estate import WorkloadName

# One value a step; None is a gap. An empty series was never measured.
MeasuredSeries: TypeAlias = tuple[float | None, ...]

USUAL_PERCENTILE = 99.0


@dataclass(frozen=True, slots=True)
class LatencyPromise:
    """What a workload is to keep: so many percent of its requests within each of these times; None: no promise."""

    latency_ms: float | None
    source: str  # `annotation of shop/Deployment/ranker`, or the file's name
    percentile: float = USUAL_PERCENTILE
    first_token_ms: float | None = None
    token_ms: float | None = None  # for each token after the first

    def __post_init__(self) -> None:
        given = [value for value in (self.latency_ms, self.first_token_ms, self.token_ms) if value is not None]
        if not given or not all(0 < value < float("inf") for value in given):
            raise ValueError(f"times of {given} ms cannot be kept")
        if not 0 < self.percentile < 100:
            raise ValueError(f"percentile {self.percentile} is outside 0..100")


@dataclass(frozen=True, slots=True)
class WorkloadSeries:
    """What one workload did, all its replicas together; every series that is not empty has all steps."""

    rates_per_second: MeasuredSeries  # requests finished, on average over the step
    ready_replicas: MeasuredSeries  # the most that were ready in the step
    # At the promise's percentile, else at the usual one, and at most so: of a histogram the bucket's upper bound,
    # infinity above all bounds.
    latency_ms: MeasuredSeries = ()
    input_tokens: MeasuredSeries = ()  # of a request, on average
    output_tokens: MeasuredSeries = ()
    server: str = ""  # whose counters these are: a model server's, or Istio's
    peaks_per_second: MeasuredSeries = ()  # the highest rate of two minutes in the step
    first_token_ms: MeasuredSeries = ()  # as the latency
    token_ms: MeasuredSeries = ()  # for each token after the first
    fewest_replicas: MeasuredSeries = ()  # that were ready at once in the step; empty: they did not change within one


@dataclass(frozen=True, slots=True)
class MeasuredLoads:
    """What was measured of all workloads in one range; a workload that is missing was not measured."""

    start: float  # Unix seconds, when the first step begins
    step_seconds: int
    steps: int
    source: str  # `Prometheus at http://...`
    workloads: Mapping[WorkloadName, WorkloadSeries]
    # by node: GPUs that pods held which nothing scales, as of jobs and notebooks; all nodes, or those that are known
    passing_gpus: Mapping[str, MeasuredSeries] = field(default_factory=dict)
    # by node with GPUs, the share of the step for which it stood, of those that are gone as well; empty: unknown
    standing_nodes: Mapping[str, MeasuredSeries] = field(default_factory=dict)
    current: frozenset[WorkloadName] = frozenset()  # whose newest sample is as new as a change of replicas needs
    unread: Mapping[WorkloadName, str] = field(default_factory=dict)  # whose load was not answered for, and why

    def __post_init__(self) -> None:
        if self.step_seconds <= 0 or self.steps <= 0:
            raise ValueError(f"{self.steps} steps of {self.step_seconds} s are no range")
        for name, found in self.workloads.items():
            for series in (
                found.rates_per_second, found.ready_replicas, found.latency_ms,
                found.input_tokens, found.output_tokens, found.peaks_per_second, found.first_token_ms,
                found.token_ms, found.fewest_replicas,
            ):  # fmt: skip
                if series and len(series) != self.steps:
                    raise ValueError(f"a series of {name} has {len(series)} steps of {self.steps}")
        for node, held in (*self.passing_gpus.items(), *self.standing_nodes.items()):
            if len(held) != self.steps:
                raise ValueError(f"the series of node {node} has {len(held)} steps of {self.steps}")
