"""What GPUs did while somebody looked at them, and what of it is a workload's."""

from __future__ import annotations

from dataclasses import dataclass

from clusters.estate import WorkloadName


@dataclass(frozen=True, slots=True)
class UseInterval:
    """A figure that is known up to an interval: a GPU's use by pods that share it is measured of the GPU alone."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class MeasuredGpu:
    """One GPU, or a MIG slice, over the time that was looked at. Activity is a share of that time, 0..1."""

    device: str  # its UUID, with the slice if it is one
    node: str
    holders: tuple[WorkloadName, ...]  # of pods that hold it now, each once
    pods: int  # of them
    memory_peak_gib: float | None
    activity_mean: float | None
    activity_p95: float | None
    activity_metric: str  # by which metric


@dataclass(frozen=True, slots=True)
class WorkloadUse:
    """What a workload uses of all GPUs that its pods hold, in whole GPUs, and the most memory of one of them."""

    gpus: int  # that were measured
    activity: UseInterval | None  # mean, in GPUs
    memory_peak_gib: UseInterval | None  # of the fullest GPU
