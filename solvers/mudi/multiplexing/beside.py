"""A GPU with one set of jobs on it: their parts, their pace, and what stands against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from solvers.mudi.multiplexing.problem import MultiplexedGpu, MultiplexedJob, MultiplexedService
from solvers.planning.problem import Curve, Job, JobProfile

LET_GO = 1e-10  # above each limit: less than the judge lets go, so that another order of adding is right, too


@dataclass(frozen=True, slots=True)
class MissingRoom:
    """A limit that this set breaks: what it takes, what there is, and what would help, in words."""

    excess: float  # relative to what there is
    reason: str
    relaxation: str


def value(curve: Curve, sm_percent: int) -> float:
    """Linear between points, flat beyond."""
    left, low = curve[0]
    if sm_percent <= left:
        return low
    for right, high in curve[1:]:
        if sm_percent <= right:
            return low + (high - low) * (sm_percent - left) / (right - left)
        left, low = right, high
    return low


def profiles(gpu: MultiplexedGpu, jobs: Sequence[Job]) -> list[JobProfile] | None:
    """Each job's profile on this GPU; None where one was never measured on its type."""
    found = [job.profiles.get(gpu.gpu_type) for job in jobs]
    return [profile for profile in found if profile] if all(found) else None


def parts(gpu: MultiplexedGpu, measured: Sequence[JobProfile]) -> list[int]:
    """The spare SM%, evenly (M7); nobody gets more than it was measured at."""
    even = gpu.spare_sm_percent // max(1, len(measured))
    return [min(even, profile.units_per_second[-1][0]) for profile in measured]


def lacks(gpu: MultiplexedGpu, jobs: Sequence[Job], jobs_per_gpu: int) -> list[MissingRoom]:
    """Everything that stands against exactly these jobs on this GPU."""
    measured = profiles(gpu, jobs)
    if measured is None:
        return [MissingRoom(float("inf"), f"no profile on {gpu.gpu_type}", f"a profile on {gpu.gpu_type}")]
    found = []
    if len(jobs) > jobs_per_gpu:
        found.append(_lack("jobs", len(jobs), jobs_per_gpu, "jobsPerGpu"))
    shares = parts(gpu, measured)
    least = max((profile.units_per_second[0][0] for profile in measured), default=0)
    even = gpu.spare_sm_percent // max(1, len(jobs))
    if even < least:
        found.append(_lack("SM%", least * len(jobs), gpu.spare_sm_percent, f"spare SM% on {gpu.name}"))
    memory_gib = sum(profile.memory_gib for profile in measured)
    if memory_gib > gpu.free_memory_gib * (1 + LET_GO):
        found.append(_lack("GiB", memory_gib, gpu.free_memory_gib, f"free GiB on {gpu.name}"))
    watts = sum(
        value(profile.demand.power_w, share) * gpu.clock**profile.demand.power_exponent
        for profile, share in zip(measured, shares, strict=True)
    )
    if watts > gpu.free_w * (1 + LET_GO):
        found.append(_lack("W", watts, gpu.free_w, f"free W on {gpu.name}"))
    added = sum(value(profile.demand.pressure, share) for profile, share in zip(measured, shares, strict=True))
    total = added + sum(service.pressure for service in gpu.services)
    found += [
        _lack("of pressure", total - service.pressure, service.bears, f"borne by {service.name}")
        for service in gpu.services
        if jobs and total - service.pressure > service.bears + LET_GO
    ]
    return found


def _lack(unit: str, needed: float, there: float, where: str) -> MissingRoom:
    excess = (needed - there) / max(abs(there), 1e-9)
    return MissingRoom(excess, f"{needed:.6g} {unit} needed, {there:.6g} there ({where})", f"{needed:.9g} {where}")


def paces(gpu: MultiplexedGpu, jobs: Sequence[Job]) -> list[float]:
    """Steps a second of each of these jobs; they must fit."""
    measured = profiles(gpu, jobs) or []
    shares = parts(gpu, measured)
    pressures = [value(profile.demand.pressure, share) for profile, share in zip(measured, shares, strict=True)]
    total = sum(pressures) + sum(service.pressure for service in gpu.services)
    return [
        value(profile.units_per_second, share)
        / (1 + profile.demand.sensitivity * (total - pressure))
        * gpu.clock**profile.demand.clock_exponent
        for profile, share, pressure in zip(measured, shares, pressures, strict=True)
    ]


def seconds(gpu: MultiplexedGpu, jobs: Sequence[Job], jobs_per_gpu: int) -> float:
    """The sum of 1 / stepsPerSecond of these jobs here; infinite where they do not fit."""
    if lacks(gpu, jobs, jobs_per_gpu):
        return float("inf")
    found = paces(gpu, jobs)
    return sum(1 / pace for pace in found) if all(pace > 0 for pace in found) else float("inf")


def placed(gpu: MultiplexedGpu, jobs: Sequence[Job]) -> list[MultiplexedJob]:
    """These jobs with their parts."""
    shares = parts(gpu, profiles(gpu, jobs) or [])
    return [MultiplexedJob(job.name, gpu.name, share) for job, share in zip(jobs, shares, strict=True)]


def slope(gpu: MultiplexedGpu, jobs: Sequence[Job]) -> float:
    """The steepest |d exec / d SM%| of the GPU's services at what they hold, slowed by all these neighbours (M3).

    It is what a service would lose with its next SM%: small where it has SMs to spare."""
    measured = profiles(gpu, jobs) or []
    shares = parts(gpu, measured)
    total = sum(value(profile.demand.pressure, share) for profile, share in zip(measured, shares, strict=True))
    total += sum(service.pressure for service in gpu.services)
    return max((_slope(service, total - service.pressure, gpu.clock) for service in gpu.services), default=0.0)


def _slope(service: MultiplexedService, pressure: float, clock: float) -> float:
    """At a corner of the curve: the side of fewer SMs."""
    at = next((place for place, (share, _) in enumerate(service.exec_ms) if share >= service.sm_percent), None)
    if at is None or len(service.exec_ms) < 2:
        return 0.0  # beyond what was measured the curve is flat
    (left, low), (right, high) = service.exec_ms[max(at, 1) - 1], service.exec_ms[max(at, 1)]
    steepness = abs(high - low) / (right - left)
    slower: float = clock**-service.clock_exponent
    return steepness * (1 + service.sensitivity * pressure) * slower
