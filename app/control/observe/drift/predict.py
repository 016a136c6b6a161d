"""Predicts each running instance from its profile: observations are compared with these predictions."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log

from app.control.observe.drift.beliefs import Places
from solvers.planning.judge.readings import JudgedGpu, Reader, Resident, slow_down, value_at, watts
from solvers.planning.pressures import slow_by
from solvers.planning.problem import Problem, Profile, ProfileKey


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction for an instance: among its neighbours, at its clock, by its profile without correction."""

    key: str  # model/variant/gpuType
    profile: int  # changes when the profile does
    node: str
    gpu: int  # its index
    batch: int
    sm_percent: float
    batch_timeout_ms: float
    exec_ms: float
    memory_gib: float
    power_w: float  # above idle, busy
    idle_w: float  # of the GPU
    neighbours: frozenset[str]  # other instances on the GPU
    neighbour_jobs: int
    impacts: tuple[tuple[str, float], ...]  # model/variant or job of neighbours -> how much they slow it down, declared
    slo_ms: float
    percentile: float
    rate_per_second: float


def predict_running(problem: Problem) -> dict[str, Prediction]:
    """Returns predictions by instance for the problem's state. The problem's profiles are the declared ones."""
    if problem.state is None:
        return {}
    reader = Reader(problem)
    gpus: dict[tuple[str, int], JudgedGpu] = {}
    for instance in problem.state.running:
        node = problem.nodes.get(instance.node)
        service = problem.services.get(instance.service)
        if node is None or service is None:
            continue
        gpu = gpus.setdefault(instance.place, JudgedGpu(node, problem.type_at(instance.place), instance.gpu))
        gpu.residents.append(reader.resident(instance, service, node))
    for placed in problem.state.jobs:
        node = problem.nodes.get(placed.node)
        if node is not None:
            gpu = gpus.setdefault(placed.place, JudgedGpu(node, problem.type_at(placed.place), placed.gpu))
            gpu.jobs.append(reader.job(placed, node))
    found = {}
    hashes: dict[str, int] = {}
    for gpu in gpus.values():
        slow_down(gpu, problem.policy)
        for resident in gpu.residents:
            prediction = _predict(resident, gpu, hashes)
            if prediction is not None:
                found[resident.instance.id] = prediction
    return found


def profile_places(problem: Problem, means: Mapping[ProfileKey, Profile]) -> dict[str, Places]:
    """Returns, by profile, the points of each batch, each with the logarithm of its planned time over its mean."""
    return {
        "/".join(key): {
            batch: {sm: log(planned / value_at(means[key].latency_ms[batch], sm)) for sm, planned in curve}
            for batch, curve in profile.latency_ms.items()
        }
        for key, profile in problem.profiles.items()
    }


def _predict(resident: Resident, gpu: JudgedGpu, hashes: dict[str, int]) -> Prediction | None:
    profile, service, instance = resident.profile, resident.service, resident.instance
    if profile is None or service is None or resident.exec_ms is None:
        return None
    key = "/".join(profile.key)
    if key not in hashes:
        hashes[key] = _hash_of(profile)
    return Prediction(
        key=key,
        profile=hashes[key],
        node=instance.node,
        gpu=instance.gpu,
        batch=instance.batch,
        sm_percent=instance.sm_percent,
        batch_timeout_ms=instance.batch_timeout_ms,
        exec_ms=resident.exec_ms,
        memory_gib=profile.memory_gib[instance.batch],
        power_w=watts(resident, gpu),
        idle_w=gpu.type.idle_w,
        neighbours=frozenset(neighbour.instance.id for neighbour in gpu.residents if neighbour is not resident),
        neighbour_jobs=len(gpu.jobs),
        impacts=_impacts(resident, gpu),
        slo_ms=service.slo_ms,
        percentile=service.percentile,
        rate_per_second=instance.rate_per_second,
    )


def _impacts(resident: Resident, gpu: JudgedGpu) -> tuple[tuple[str, float], ...]:
    """Returns how much each kind of neighbour slows the instance down, as declared."""
    found: dict[str, float] = {}
    sensitivity = resident.demand.sensitivity
    for neighbour in gpu.residents:
        if neighbour is not resident and neighbour.service is not None:
            name = f"{neighbour.service.model}/{neighbour.instance.variant}"
            found[name] = found.get(name, 0.0) + slow_by(sensitivity, neighbour.pressure)
    for job in gpu.jobs:
        name = f"job {job.placed.job}"
        found[name] = found.get(name, 0.0) + slow_by(sensitivity, job.pressure)
    return tuple(sorted(found.items()))


def _hash_of(profile: Profile) -> int:
    """Returns a hash of the profile as declared."""
    curves = sorted(profile.latency_ms.items())
    latency = {batch: [(sm, f"{value:.6g}") for sm, value in curve] for batch, curve in curves}
    memory = {batch: f"{gib:.6g}" for batch, gib in sorted(profile.memory_gib.items())}
    demand = profile.demand
    power = [(sm, f"{value:.6g}") for sm, value in demand.power_w]
    return zlib.crc32(repr((latency, memory, replace(demand, power_w=()), power)).encode())
