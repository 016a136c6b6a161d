"""What GPUs did, by the metrics of dcgm-exporter; of a GPU that pods share, each pod's part is an interval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from clusters.estate import Estate, GpuPod, UnknownFigure, WorkloadName
from clusters.gpu_use import MeasuredGpu, UseInterval, WorkloadUse
from clusters.metrics.prometheus import MetricSample

# From 4.9 on, dcgm-exporter counts memory in bytes and activity as a ratio, and a name ends in its unit.
MEMORY = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED_BYTES")
# The first that a GPU has. Only it counts SMs: the others say that something ran, on however few.
ACTIVITIES = (
    ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE_RATIO"),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE_RATIO"),
    ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"),
)
SCALES = {"DCGM_FI_DEV_FB_USED": 1 / 1024, "DCGM_FI_DEV_FB_USED_BYTES": 2.0**-30, "DCGM_FI_DEV_GPU_UTIL": 0.01}
NODE_LABELS = ("node", "Hostname", "hostname", "exported_node")
SUBJECT = "GPUs"
MOST_MEMORY_GIB = 1e6  # of a GPU
ROUNDING = 1e-6  # of what Prometheus computes

Ask = Callable[[str], list[MetricSample]]


@dataclass(slots=True)
class GpuSeries:
    """All that the series of one device have; the pods are those that hold it now."""

    node: str = ""
    pods: dict[tuple[str, str], GpuPod] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)  # of these pods
    earlier: dict[str, float] = field(default_factory=dict)  # of pods that are gone, or of none


def read_gpus(estate: Estate, ask: Ask, window: str) -> tuple[tuple[MeasuredGpu, ...], list[UnknownFigure]]:
    """Returns each GPU that dcgm-exporter knows, and sentences on what is missing of them."""
    pods = {(pod.namespace, pod.name): pod for pod in estate.pods if pod.node}
    devices: dict[str, GpuSeries] = defaultdict(GpuSeries)
    absurd: dict[str, None] = {}
    for name in MEMORY:
        absurd |= _gather(devices, pods, ask(f"max_over_time({name}[{window}])"), "memory", SCALES.get(name, 1.0))
    for rank, names in enumerate(ACTIVITIES):
        for name in names:
            scale = SCALES.get(name, 1.0)
            absurd |= _gather(devices, pods, ask(f"avg_over_time({name}[{window}])"), f"mean{rank}", scale)
            absurd |= _gather(devices, pods, ask(f"quantile_over_time(0.95, {name}[{window}])"), f"p95{rank}", scale)
    found = tuple(_read_measured(device, devices[device]) for device in sorted(devices))
    reason = "dcgm-exporter says what no GPU can do, which is left out"
    refused = [UnknownFigure(f"GPU {device}", reason, "see its series") for device in absurd]
    return found, [*refused, *_missing(estate, found)]


def _gather(
    devices: dict[str, GpuSeries],
    pods: Mapping[tuple[str, str], GpuPod],
    samples: Iterable[MetricSample],
    figure: str,
    scale: float,
) -> dict[str, None]:
    """Adds a figure of each device to its series, and returns the devices for which it cannot be."""
    absurd: dict[str, None] = {}
    most = MOST_MEMORY_GIB if figure == "memory" else 1 + ROUNDING
    for labels, value in samples:
        device = ":".join(filter(None, (labels.get("UUID") or labels.get("uuid"), labels.get("GPU_I_ID"))))
        if not device:
            continue
        series = devices[device]
        pod = _pod(labels, pods)
        if pod is not None:
            series.pods[pod.namespace, pod.name], series.node = pod, pod.node
        series.node = series.node or next((labels[key] for key in NODE_LABELS if key in labels), "")
        # Each pod of a shared GPU has a series of the same value.
        kept = series.earlier if pod is None else series.figures
        if 0 <= value * scale <= most:
            kept[figure] = max(kept.get(figure, 0.0), value * scale)
        else:
            absurd[device] = None
    return absurd


def _pod(labels: Mapping[str, str], pods: Mapping[tuple[str, str], GpuPod]) -> GpuPod | None:
    """Returns the pod that holds the GPU; its labels are `exported_` where those of the scrape name the exporter."""
    for prefix in ("", "exported_"):
        pod = pods.get((labels.get(f"{prefix}namespace", ""), labels.get(f"{prefix}pod", "")))
        if pod is not None:
            return pod
    return None


def _read_measured(device: str, series: GpuSeries) -> MeasuredGpu:
    figures = {**series.earlier, **series.figures}
    rank = next((rank for rank in range(len(ACTIVITIES)) if f"mean{rank}" in figures), None)
    return MeasuredGpu(
        device=device,
        node=series.node,
        holders=tuple(sorted({pod.workload for pod in series.pods.values()})),
        pods=len(series.pods),
        memory_peak_gib=figures.get("memory"),
        activity_mean=None if rank is None else figures[f"mean{rank}"],
        activity_p95=None if rank is None else figures.get(f"p95{rank}"),
        activity_metric="" if rank is None else ACTIVITIES[rank][0],
    )


def _missing(estate: Estate, found: Sequence[MeasuredGpu]) -> list[UnknownFigure]:
    total = sum(node.gpus for node in estate.nodes)
    if not total:
        return []
    if not found:
        return [UnknownFigure(SUBJECT, "Prometheus has no metrics of dcgm-exporter", "let Prometheus scrape it")]
    unknown = []
    if len(found) < total:
        reason = f"dcgm-exporter's metrics are of {len(found)} GPUs, and the nodes have {total}"
        unknown.append(UnknownFigure(SUBJECT, reason, "see on which nodes it does not run"))
    if not any(gpu.holders for gpu in found) and any(pod.gpus for pod in estate.pods):
        remedy = "run dcgm-exporter with --kubernetes, and see its labels `pod` and `exported_pod`"
        unknown.append(UnknownFigure(SUBJECT, "no series of dcgm-exporter names a pod that holds a GPU now", remedy))
    if all(gpu.memory_peak_gib is None for gpu in found):
        unknown.append(UnknownFigure(SUBJECT, f"{MEMORY[0]} is missing", "add it to dcgm-exporter's counters"))
    metrics = {gpu.activity_metric for gpu in found}
    if metrics == {""}:
        remedy = f"let dcgm-exporter export {ACTIVITIES[0][0]}"
        unknown.append(UnknownFigure(SUBJECT, "no metric says how active they are", remedy))
        return unknown
    for name in sorted(metrics - {"", ACTIVITIES[0][0]}):
        reason = f"{name} says that something ran, not on how many SMs"
        unknown.append(UnknownFigure(SUBJECT, reason, f"let dcgm-exporter export {ACTIVITIES[0][0]}"))
    return unknown


def uses_of(estate: Estate, gpus: Iterable[MeasuredGpu]) -> dict[WorkloadName, WorkloadUse]:
    """Returns what each workload uses: exactly where it holds GPUs alone, else between nothing and all of them."""
    held: dict[WorkloadName, list[MeasuredGpu]] = defaultdict(list)
    for gpu in gpus:
        for name in gpu.holders:
            held[name].append(gpu)
    return {each.name: _use(held[each.name]) for each in estate.workloads if held.get(each.name)}


def _use(gpus: Sequence[MeasuredGpu]) -> WorkloadUse:
    active = [(gpu.activity_mean, len(gpu.holders) == 1) for gpu in gpus if gpu.activity_mean is not None]
    full = [(gpu.memory_peak_gib, len(gpu.holders) == 1) for gpu in gpus if gpu.memory_peak_gib is not None]
    activity = memory = None
    if active:
        activity = UseInterval(sum(value for value, alone in active if alone), sum(value for value, _ in active))
    if full:
        own = max((value for value, alone in full if alone), default=0.0)
        memory = UseInterval(own, max(value for value, _ in full))
    return WorkloadUse(len(gpus), activity, memory)
