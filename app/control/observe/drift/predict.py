"""Predicts each running instance from its profile: observations are compared with these predictions."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.control.domain.snapshot import Correction
from solvers.planning.judge.readings import JudgedGpu, Reader, Resident, slow_down, watts
from solvers.planning.problem import Problem, Profile


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction for an instance: among its neighbours, at its clock, by its profile without correction."""

    key: str  # model/variant/gpuType
    profile: int  # changes when the profile does
    node: str
    gpu: int  # its index
    batch: int
    sm_percent: float
    exec_ms: float
    memory_gib: float
    power_w: float  # above idle, busy
    idle_w: float  # of the GPU
    neighbours: frozenset[str]  # other instances on the GPU
    neighbour_jobs: int
    slo_ms: float
    percentile: float
    rate_per_second: float

    @property
    def alone(self) -> bool:
        """True if nothing else runs on the GPU."""
        return not self.neighbours and not self.neighbour_jobs

    @property
    def shape(self) -> str:
        """The batch, the SM% rounded to tens and whether it has neighbours: a profile may be wrong for some shapes."""
        return f"{self.batch}@{round(self.sm_percent / 10) * 10}{'' if self.alone else '+'}"


NOTHING = Correction()


def predict_running(problem: Problem, corrections: Mapping[str, Correction]) -> dict[str, Prediction]:
    """Returns predictions by instance for the problem's state. The problem's profiles are the corrected ones."""
    if problem.state is None:
        return {}
    reader = Reader(problem)
    gpus: dict[tuple[str, int], JudgedGpu] = {}
    for instance in problem.state.running:
        node = problem.nodes.get(instance.node)
        service = problem.services.get(instance.service)
        if node is None or service is None:
            continue
        gpu = gpus.setdefault(instance.place, JudgedGpu(node, problem.gpu_types[node.gpu_type], instance.gpu))
        gpu.residents.append(reader.resident(instance, service, node))
    for placed in problem.state.jobs:
        node = problem.nodes.get(placed.node)
        if node is not None:
            gpu = gpus.setdefault(placed.place, JudgedGpu(node, problem.gpu_types[node.gpu_type], placed.gpu))
            gpu.jobs.append(reader.job(placed, node))
    found = {}
    marks: dict[str, int] = {}
    for gpu in gpus.values():
        slow_down(gpu, problem.policy)
        for resident in gpu.residents:
            prediction = _predict(resident, gpu, corrections, marks)
            if prediction is not None:
                found[resident.instance.id] = prediction
    return found


def _predict(
    resident: Resident, gpu: JudgedGpu, corrections: Mapping[str, Correction], marks: dict[str, int]
) -> Prediction | None:
    profile, service, instance = resident.profile, resident.service, resident.instance
    if profile is None or service is None or resident.exec_ms is None:
        return None
    key = "/".join(profile.key)
    applied = corrections.get(key, NOTHING)
    if key not in marks:
        marks[key] = _mark(profile, applied)
    return Prediction(
        key=key,
        profile=marks[key],
        node=instance.node,
        gpu=instance.gpu,
        batch=instance.batch,
        sm_percent=instance.sm_percent,
        exec_ms=resident.exec_ms / applied.latency_factor,
        memory_gib=profile.memory_gib[instance.batch] / applied.memory_factor,
        power_w=watts(resident, gpu) / applied.power_factor,
        idle_w=gpu.type.idle_w,
        neighbours=frozenset(neighbour.instance.id for neighbour in gpu.residents if neighbour is not resident),
        neighbour_jobs=len(gpu.jobs),
        slo_ms=service.slo_ms,
        percentile=service.percentile,
        rate_per_second=instance.rate_per_second,
    )


def _mark(profile: Profile, applied: Correction) -> int:
    """Returns a hash of the profile as declared; rounded, because corrections were multiplied in and divided out."""
    latency = {
        batch: [(sm, f"{value / applied.latency_factor:.6g}") for sm, value in curve]
        for batch, curve in sorted(profile.latency_ms.items())
    }
    memory = {batch: f"{gib / applied.memory_factor:.6g}" for batch, gib in sorted(profile.memory_gib.items())}
    demand = profile.demand
    power = [(sm, f"{value / applied.power_factor:.6g}") for sm, value in demand.power_w]
    return zlib.crc32(repr((latency, memory, replace(demand, power_w=()), power)).encode())
