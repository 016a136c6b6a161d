"""What a workload would need of GPUs that it shares, as an interval: from what DCGM, its rates and its latency show.

SMs of kernels are not seen one by one: their mean bounds how much slower a request is on fewer SMs. It is slowed down
least where all kernels have the same width, and most where some fill the GPU and the others hardly need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from statistics import median

from clusters.estate import WorkloadName
from clusters.gpu_use import MeasuredGpu, UseInterval
from clusters.measured import MeasuredSeries, WorkloadSeries
from clusters.metrics.gpu_metrics import ACTIVITIES
from clusters.sharing.rooms import Sharer

SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)  # of a GPU's SMs that a replica may have
BATCHES = (1, 2, 4, 8, 16, 32)
MOST_BUSY = 0.76  # of a replica's time: more leaves nothing for a load that is not even
JUDGED_TIMES = 1.05  # as long as measured, that a request counts
LEAST_TIMES = 1.9  # of one service, that the SLO allows: nearly each request may find another under way
# Of 99 % of requests, as of a queue that serves each alike: time in times of one service is START + QUEUE x use / (1 -
# use), and use falls with the batch that waits. Where hardly anybody waits, it is the service behind another.
QUEUE_START, QUEUE = 1.5, 2.9
ALONE_USE = 0.01  # of a replica's time: below, 99 % of requests do not wait


@dataclass(frozen=True, slots=True)
class RequestWork:
    """What one request takes of a GPU that it has for itself."""

    seconds: float
    sm_share: float  # on average while it is under way, waits for the host with it


@dataclass(frozen=True, slots=True)
class KernelGuess:
    """What meters do not show, as it may be."""

    time_times: float  # of a request's time: a histogram says no more than the bound of a bucket above it
    mixture: float  # of kernels: 0, all have the same width; 1, they need the whole GPU or hardly any of it
    batch_base: float  # of a request's time, for each more in its batch, whatever SMs it takes
    batch_slope: float  # and by its share of SMs: what fills a GPU takes twice as long for two
    neighbours: float  # times that it takes beside others

    def slow_down(self, work: RequestWork, share: float) -> float:
        """Returns how many times as long a request takes with this share of the SMs."""
        even, mixed = max(1.0, work.sm_share / share), 1 - work.sm_share + work.sm_share / share
        return (1 - self.mixture) * even + self.mixture * mixed

    def batch_times(self, work: RequestWork, batch: int) -> float:
        return 1 + min(1.0, self.batch_base + self.batch_slope * work.sm_share) * (batch - 1)


def count_gpus(rate_per_second: float, slo_seconds: float, least: int, work: RequestWork, guess: KernelGuess) -> float:
    """Returns the fewest GPUs, in parts, that serve the load; infinite where no share of one keeps the SLO."""
    best = inf
    for batch in BATCHES:
        alone = JUDGED_TIMES * work.seconds * guess.neighbours * guess.batch_times(work, batch)
        if alone * LEAST_TIMES > slo_seconds:
            break
        for share in SHARES:
            seconds = alone * guess.slow_down(work, share)
            use = find_use(slo_seconds / seconds, batch)
            if use > 0:
                replicas = max(least, ceil(rate_per_second * seconds / (JUDGED_TIMES * batch * use)))
                best = min(best, replicas * share)
    return best


def find_use(times: float, batch: int) -> float:
    """Returns how busy a replica may be whose requests may take so many times as long as one service."""
    over = times - QUEUE_START
    return min(MOST_BUSY, over / (over + QUEUE / batch)) if times >= LEAST_TIMES else 0.0


def find_service_seconds(latency_seconds: float, rate_per_second: float) -> float:
    """Returns how long a request takes by itself, of a latency that 99 % keep at this rate of a replica."""
    low, high = 0.0, latency_seconds
    for _ in range(25):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * _latency_times(rate_per_second * middle) < latency_seconds else (
            low, middle,
        )  # fmt: skip
    return high


def _latency_times(use: float) -> float:
    if use >= 1:
        return inf
    return 1.0 if use <= ALONE_USE else max(2 - ALONE_USE / use, QUEUE_START + QUEUE * use / (1 - use))


QUIET_STEPS = 20  # with the least load: in them a request hardly waits
WIDE_FACTOR = 2.0  # between the ends of what GPUs did for a workload: then nothing is likely
LEAST = KernelGuess(time_times=0.67, mixture=0.0, batch_base=0.03, batch_slope=0.25, neighbours=1.0)
LIKELY = KernelGuess(time_times=1.0, mixture=0.4, batch_base=0.12, batch_slope=0.9, neighbours=1.06)
MOST = KernelGuess(time_times=1.0, mixture=0.8, batch_base=0.25, batch_slope=1.0, neighbours=1.12)
CACHING_SERVERS = ("vllm", "sglang", "tgi")  # they take all memory that they find
CACHED_SHARE, NEEDED_SHARE = 0.1, 0.6  # of measured memory that is needed at least
SM_METRIC = ACTIVITIES[0][0]  # the others say that something ran, not on how many SMs


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
    """What GPUs did for one workload, on average, and the memory of a replica; None: not measured."""

    active_gpus: UseInterval | None
    memory_gib: UseInterval | None
    missing: str


def find_demands(
    sharers: Sequence[Sharer], series: Mapping[WorkloadName, WorkloadSeries], gpus: Iterable[MeasuredGpu]
) -> list[ShareDemand]:
    """Returns the demand of each sharer of a kind of nodes."""
    seconds = {each.workload: _find_service_seconds(series[each.workload]) for each in sharers}
    works = _find_works(sharers, series, gpus, seconds)
    return [_demand(each, series[each.workload], works[each.workload], seconds[each.workload]) for each in sharers]


def peak_rate(series: WorkloadSeries) -> float:
    return max(_known(series.rates_per_second) + _known(series.peaks_per_second), default=0.0)


def _demand(sharer: Sharer, series: WorkloadSeries, work: GpuWork, seconds: float) -> ShareDemand:
    held = sharer.gpus_per_replica * max(sharer.replicas, sharer.need.peak_replicas)
    memory = work.memory_gib or UseInterval(0.0, float("inf"))
    rate = _mean_rate(series)
    slo = (sharer.need.promise.latency_ms or 0.0) / 1000
    missing = work.missing or ("" if seconds and slo else "no latency of it was measured")
    if not seconds or not slo or not rate:
        return ShareDemand(sharer.workload, UseInterval(0.0, held), None, memory, missing)

    def count(active_gpus: float, guess: KernelGuess) -> float:
        request = _describe_request(seconds * guess.time_times, active_gpus / rate)
        # With the GPUs that it holds now it can go on as it does.
        return min(held, count_gpus(peak_rate(series), slo, sharer.least, request, guess))

    active = work.active_gpus or UseInterval(0.0, seconds * rate)
    low, middle, high = (
        count(active.low, LEAST),
        count((active.low + active.high) / 2, LIKELY),
        count(active.high, MOST),
    )
    interval = UseInterval(min(low, middle), max(middle, high))
    likely = None if missing else middle
    return ShareDemand(sharer.workload, interval, likely, memory, missing)


def _find_service_seconds(series: WorkloadSeries) -> float:
    """Returns how long a request takes by itself, as quiet steps show; 0 where that was not measured."""
    measured = sorted(
        (rate / max(1.0, ready or 0.0), latency / 1000)
        for latency, rate, ready in zip(series.latency_ms, series.rates_per_second, series.ready_replicas, strict=False)
        if latency is not None and latency < float("inf") and rate
    )
    found = [find_service_seconds(latency, rate) for rate, latency in measured[:QUIET_STEPS]]
    return median(found) if found else 0.0


def _describe_request(seconds: float, sm_seconds: float) -> RequestWork:
    """Returns what a request takes; it takes at least as long as on all SMs at once."""
    longest = max(seconds, sm_seconds)
    return RequestWork(longest, sm_seconds / longest)


def _find_works(
    sharers: Sequence[Sharer], series: Mapping[WorkloadName, WorkloadSeries], gpus: Iterable[MeasuredGpu],
    seconds: Mapping[WorkloadName, float],
) -> dict[WorkloadName, GpuWork]:  # fmt: skip
    """Divides what GPUs did among the workloads that hold them.

    Of a GPU with one holder all is that workload's. Workloads linked by GPUs that they share have their sum, and each
    of it by the time for which its requests are under way. Of a GPU that others hold, too, they did nothing or all.
    """
    by_name = {each.workload: each for each in sharers}
    works: dict[WorkloadName, GpuWork] = {}
    groups = _group(gpus, by_name.keys())
    for name in by_name:
        members, devices = next((group for group in groups if name in group[0]), ((name,), []))
        works[name] = _work(
            [by_name[each] for each in members if each in by_name], by_name[name], series, devices, seconds
        )
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
    devices: Sequence[MeasuredGpu], seconds: Mapping[WorkloadName, float],
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
    own = _weigh(members, series, seconds)
    own_activity = sum(gpu.activity_mean or 0.0 for gpu in active if own.keys() >= set(gpu.holders))
    all_activity = sum(gpu.activity_mean or 0.0 for gpu in active)
    scale = len(devices) / len(active)
    if len(holders) > 1:
        scale *= own[sharer.workload] / (sum(own.values()) or 1.0)
    else:
        scale *= sharer.need.mean_ready / sharer.replicas
    work, missing = UseInterval(own_activity * scale, all_activity * scale), ""
    vague = next((gpu.activity_metric for gpu in active if gpu.activity_metric != SM_METRIC), "")
    if vague:
        work, missing = UseInterval(0.0, work.high), f"{vague} does not say on how many SMs"
    elif not work.low < work.high <= WIDE_FACTOR * work.low and work.low != work.high:
        missing = "others, whose work is not known, hold its GPUs, too"
    return GpuWork(work, memory, missing)


def _weigh(
    members: Sequence[Sharer], series: Mapping[WorkloadName, WorkloadSeries], seconds: Mapping[WorkloadName, float]
) -> dict[WorkloadName, float]:
    """Returns how many requests of each are under way, on average; where one's latency is not known, what they hold."""
    under_way = {each.workload: _mean_rate(series[each.workload]) * seconds[each.workload] for each in members}
    if all(under_way.values()):
        return under_way
    return {each.workload: each.gpus_per_replica * each.need.mean_ready for each in members}


def _mean_rate(series: WorkloadSeries) -> float:
    known = _known(series.rates_per_second)
    return sum(known) / len(known) if known else 0.0


def _known(values: MeasuredSeries) -> list[float]:
    return [value for value in values if value is not None]
