"""Reads what runs from a State in a file, for solving it offline."""

from __future__ import annotations

from collections.abc import Mapping

from app.control.domain.specs import Spec, moment
from solvers.planning.problem import GpuType, Instance, Node, PlacedJob, RunningState


def read_state(spec: Spec, nodes: Mapping[str, Node], gpu_types: Mapping[str, GpuType]) -> RunningState:
    """Returns the instances and jobs that a State lists."""
    return RunningState(
        now=moment(spec.get("now")),
        running=tuple(_instance(entry, nodes, gpu_types) for entry in spec.get("running", ())),
        jobs=tuple(_job(entry) for entry in spec.get("jobs", ())),
    )


def _instance(entry: Spec, nodes: Mapping[str, Node], gpu_types: Mapping[str, GpuType]) -> Instance:
    clock, (gpu, gpus) = entry.get("clockMhz"), _gpus(entry)
    return Instance(
        id=entry.get("id", ""),
        service=entry["service"],
        node=entry["node"],
        gpu=gpu,
        variant=entry["variant"],
        batch=entry["batch"],
        batch_timeout_ms=entry.get("batchTimeoutMs", 0.0),
        sm_percent=entry["smPercent"],
        memory_gib=entry["memoryGib"],
        clock_mhz=gpu_types[nodes[entry["node"]].gpu_type].top_clock_mhz if clock is None else clock,
        rate_per_second=entry.get("ratePerSecond", 0.0),
        gpus=gpus,
    )


def _job(entry: Spec) -> PlacedJob:
    gpu, gpus = _gpus(entry)
    return PlacedJob(entry["job"], entry["node"], gpu, entry["smPercent"], entry["memoryGib"], gpus=gpus)


def _gpus(entry: Spec) -> tuple[int, tuple[int, ...]]:
    """Returns the first GPU of what runs, and all of them where it has several."""
    gpus = tuple(sorted(entry.get("gpus", ())))
    return (gpus[0] if gpus else entry["gpu"]), gpus
