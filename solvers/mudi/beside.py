"""Trainings beside the services of a GPU: their parts of the spare SMs, and the services' slope (Mudi, M3, M7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from solvers.planning.judge.readings import value_at
from solvers.planning.problem import Curve, Job, JobProfile


@dataclass(frozen=True, slots=True)
class SlopedService:
    """A service that runs on a GPU already, as far as trainings beside it are concerned."""

    sm_percent: int
    exec_ms: Curve  # of its batch over SM%, alone
    pressure: float  # on its neighbours
    sensitivity: float


@dataclass(frozen=True, slots=True)
class SharedDevice:
    """A GPU with its services, which leave SMs to trainings."""

    services: tuple[SlopedService, ...]
    training_percent: int  # that the services leave to trainings


def profiles(gpu_type: str, jobs: Sequence[Job]) -> list[JobProfile] | None:
    """Returns each job's profile on GPUs of a type, or None if a job was never measured on it."""
    found = [job.profiles.get(gpu_type) for job in jobs]
    return [profile for profile in found if profile] if all(found) else None


def parts(training_percent: int, measured: Sequence[JobProfile]) -> list[int]:
    """Splits the spare SM% evenly (M7); no job gets more than it was measured at."""
    even = training_percent // max(1, len(measured))
    return [min(even, profile.units_per_second[-1][0]) for profile in measured]


def slope(gpu: SharedDevice, measured: Sequence[JobProfile]) -> float:
    """Returns the steepest |d exec / d SM%| of the GPU's services at their SM%, slowed by all these neighbours (M3).

    That is the time a service would lose with its next SM%; it is small where a service has SMs to spare."""
    shares = parts(gpu.training_percent, measured)
    total = sum(value_at(profile.demand.whole_pressure, share) for profile, share in zip(measured, shares, strict=True))
    total += sum(service.pressure for service in gpu.services)
    return max((_slope(service, total - service.pressure) for service in gpu.services), default=0.0)


def _slope(service: SlopedService, pressure: float) -> float:
    """Returns the slope for one service; at a corner of its curve, the slope on the side of fewer SMs."""
    at = next((place for place, (share, _) in enumerate(service.exec_ms) if share >= service.sm_percent), None)
    if at is None or len(service.exec_ms) < 2:
        return 0.0  # beyond the measured points the curve is flat
    (start, low), (end, high) = service.exec_ms[max(at, 1) - 1], service.exec_ms[max(at, 1)]
    return abs(high - low) / (end - start) * (1 + service.sensitivity * pressure)
