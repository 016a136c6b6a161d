"""What a workload would need of GPUs that it shares, as an interval: from what DCGM, its rates and its latency show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from clusters.estate import WorkloadName
from clusters.gpu_metrics import ACTIVITIES
from clusters.gpu_use import MeasuredGpu, UseInterval
from clusters.measured import MeasuredSeries, WorkloadSeries
from clusters.sharing.rooms import Sharer

QUIET_SHARE = 0.05  # of the steps: in them a request hardly waits
QUEUE_FACTOR = 2.3  # of 99 % of requests: waiting time / service time = factor x use / (1 - use)
BATCH_WAITS = 2.2  # times of a batch within the SLO: a request may wait for one batch, and then for its own
NARROW_SHARE = 0.2  # of the SMs, that a request uses by itself: with more it is hardly faster
WIDE_FACTOR = 2.0  # between the ends of what GPUs did for a workload: then nothing is likely
LEAST_SLACK = 0.5  # an SLO that quiet steps hardly keep
SPREAD_FACTOR = 1.8  # of one workload's demand, on either side: batches and widths of kernels are not measured
CACHING_SERVERS = ("vllm", "sglang", "tgi")  # they take all memory that they find
CACHED_SHARE, NEEDED_SHARE = 0.1, 0.6  # of measured memory that is needed at least
COARSE_METRIC = ACTIVITIES[-1][0]  # says that something ran, not on how many SMs


@dataclass(frozen=True, slots=True)
class ShareDemand:
    """GPUs that a workload needs at its peak when it shares them, and the memory of each of its replicas."""

    workload: WorkloadName
    gpus: UseInterval
    likely_gpus: float | None  # None: nothing says where in the interval
    memory_gib: UseInterval
    missing: str  # what was not measured of it, and makes the interval wide; empty: nothing


@dataclass(frozen=True, slots=True)
class GpuWork:
    """The work of one workload on GPUs at its peak, and the memory of a replica; None: not measured."""

    gpus: UseInterval | None
    memory_gib: UseInterval | None
    missing: str


def find_demands(
    sharers: Sequence[Sharer], series: Mapping[WorkloadName, WorkloadSeries], gpus: Iterable[MeasuredGpu]
) -> list[ShareDemand]:
    """Returns the demand of each sharer of a kind of nodes."""
    works = _find_works(sharers, series, gpus)
    return [_demand(each, series[each.workload], works[each.workload]) for each in sharers]


def peak_rate(series: WorkloadSeries) -> float:
    return max(_known(series.rates_per_second) + _known(series.peaks_per_second), default=0.0)


def _demand(sharer: Sharer, series: WorkloadSeries, work: GpuWork) -> ShareDemand:
    held = sharer.gpus_per_replica * max(sharer.replicas, sharer.need.peak_replicas)
    memory = work.memory_gib or UseInterval(0.0, float("inf"))
    slack = _slack(sharer, series)
    missing = work.missing or ("" if slack else "no latency of it was measured")
    if work.gpus is None or not slack:
        return ShareDemand(sharer.workload, UseInterval(0.0, held), None, memory, missing)
    # With the GPUs that it holds now it can go on as it does.
    low, high = (
        min(
            held,
            amount * (1 + QUEUE_FACTOR / max(LEAST_SLACK, slack - 1))
            + sharer.least * NARROW_SHARE * BATCH_WAITS / slack,
        )
        for amount in (work.gpus.low, work.gpus.high)
    )
    likely, interval = (low + high) / 2, UseInterval(low / SPREAD_FACTOR, min(held, high * SPREAD_FACTOR))
    return ShareDemand(sharer.workload, interval, None if missing else likely, memory, missing)


def _slack(sharer: Sharer, series: WorkloadSeries) -> float:
    """Returns how many times as long as in quiet steps a request may take; 0 where that was not measured."""
    allowed = sharer.need.promise.latency_ms
    quiet = sorted(
        value
        for value, rate in zip(series.latency_ms, series.rates_per_second, strict=False)
        if value is not None and rate
    )
    return allowed / quiet[int(QUIET_SHARE * len(quiet))] if allowed and quiet else 0.0


def _find_works(
    sharers: Sequence[Sharer], series: Mapping[WorkloadName, WorkloadSeries], gpus: Iterable[MeasuredGpu]
) -> dict[WorkloadName, GpuWork]:
    """Divides what GPUs did among the workloads that hold them.

    Of a GPU with one holder all is that workload's. Workloads linked by GPUs that they share have their sum, and each
    what it holds of it. Of a GPU that others hold, too, they did nothing or all.
    """
    by_name = {each.workload: each for each in sharers}
    works: dict[WorkloadName, GpuWork] = {}
    groups = _group(gpus, by_name.keys())
    for name in by_name:
        members, devices = next((group for group in groups if name in group[0]), ((name,), []))
        works[name] = _work([by_name[each] for each in members if each in by_name], by_name[name], series, devices)
    return works


def _group(
    gpus: Iterable[MeasuredGpu], names: Iterable[WorkloadName]
) -> list[tuple[tuple[WorkloadName, ...], list[MeasuredGpu]]]:
    """Returns workloads that are linked by GPUs, with all of these."""
    wanted = set(names)
    groups: list[tuple[set[WorkloadName], list[MeasuredGpu]]] = []
    for gpu in gpus:
        linked = [group for group in groups if group[0] & set(gpu.holders)]
        if not linked and not wanted & set(gpu.holders):
            continue
        members = set(gpu.holders).union(*(own for own, _ in linked))
        merged = (members, [gpu, *(each for _, devices in linked for each in devices)])
        groups = [group for group in groups if group not in linked] + [merged]
    return [(tuple(sorted(members)), devices) for members, devices in groups]


def _work(
    members: Sequence[Sharer], sharer: Sharer, series: Mapping[WorkloadName, WorkloadSeries],
    devices: Sequence[MeasuredGpu],
) -> GpuWork:  # fmt: skip
    holders = {name for gpu in devices for name in gpu.holders}
    active = [gpu for gpu in devices if gpu.activity_mean is not None]
    full = [gpu.memory_peak_gib / gpu.pods for gpu in devices if gpu.memory_peak_gib is not None and gpu.pods]
    memory = None
    if full:
        least = CACHED_SHARE if series[sharer.workload].server in CACHING_SERVERS else NEEDED_SHARE
        memory = UseInterval(least * sum(full) / len(full), max(full))
    if not active:
        return GpuWork(None, memory, f"{'no activity' if full else 'nothing'} of its GPUs was measured")
    own = {each.workload: each.gpus_per_replica * each.need.mean_ready for each in members}
    own_activity = sum(gpu.activity_mean or 0.0 for gpu in active if own.keys() >= set(gpu.holders))
    all_activity = sum(gpu.activity_mean or 0.0 for gpu in active)
    scale = len(devices) / len(active) * _peak_factor(series[sharer.workload])
    if len(holders) > 1:
        scale *= own[sharer.workload] / (sum(own.values()) or 1.0)
    else:
        scale *= sharer.need.mean_ready / sharer.replicas
    work, missing = UseInterval(own_activity * scale, all_activity * scale), ""
    if any(gpu.activity_metric == COARSE_METRIC for gpu in active):
        work, missing = UseInterval(0.0, work.high), f"{COARSE_METRIC} does not say on how many SMs"
    elif not work.low < work.high <= WIDE_FACTOR * work.low and work.low != work.high:
        missing = "others, whose work is not known, hold its GPUs, too"
    return GpuWork(work, memory, missing)


def _peak_factor(series: WorkloadSeries) -> float:
    known = _known(series.rates_per_second)
    mean = sum(known) / len(known) if known else 0.0
    return peak_rate(series) / mean if mean else 1.0


def _known(values: MeasuredSeries) -> list[float]:
    return [value for value in values if value is not None]
