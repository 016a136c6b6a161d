"""Evaluates one set of jobs on one GPU: their parts of its SMs, their pace, and the limits they break."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from solvers.mudi.multiplexing.problem import MultiplexedGpu, MultiplexedJob, MultiplexedService
from solvers.planning.problem import Curve, Job, JobProfile

LET_GO = 1e-10  # above each limit: less than the judge tolerates, so that any order of adding passes it


@dataclass(frozen=True, slots=True)
class MissingRoom:
    """A limit that this set breaks, with the reason and the relaxation that would help, in words."""

    excess: float  # relative to the limit
    reason: str
    relaxation: str


def value(curve: Curve, sm_percent: int) -> float:
    """Reads a curve: linear between its points, flat beyond them."""
    start, low = curve[0]
    if sm_percent <= start:
        return low
    for end, high in curve[1:]:
        if sm_percent <= end:
            return low + (high - low) * (sm_percent - start) / (end - start)
        start, low = end, high
    return low


def profiles(gpu: MultiplexedGpu, jobs: Sequence[Job]) -> list[JobProfile] | None:
    """Returns each job's profile on this GPU, or None if a job was never measured on its type."""
    found = [job.profiles.get(gpu.gpu_type) for job in jobs]
    return [profile for profile in found if profile] if all(found) else None


def parts(gpu: MultiplexedGpu, measured: Sequence[JobProfile]) -> list[int]:
    """Splits the spare SM% evenly (M7); no job gets more than it was measured at."""
    even = gpu.spare_sm_percent // max(1, len(measured))
    return [min(even, profile.units_per_second[-1][0]) for profile in measured]


def lacks(gpu: MultiplexedGpu, jobs: Sequence[Job], jobs_per_gpu: int) -> list[MissingRoom]:
    """Returns every limit that exactly these jobs break on this GPU."""
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
        _lack("of pressure", total - service.pressure, service.bears, f"tolerated by {service.name}")
        for service in gpu.services
        if jobs and total - service.pressure > service.bears + LET_GO
    ]
    return found


def _lack(unit: str, needed: float, available: float, where: str) -> MissingRoom:
    excess = (needed - available) / max(abs(available), 1e-9)
    reason = f"{needed:.6g} {unit} needed, {available:.6g} available ({where})"
    return MissingRoom(excess, reason, f"{needed:.9g} {where}")


def paces(gpu: MultiplexedGpu, jobs: Sequence[Job]) -> list[float]:
    """Returns the steps a second of each of these jobs, which must fit."""
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
    """Returns the sum of 1 / stepsPerSecond of these jobs on this GPU, infinite if they do not fit."""
    if lacks(gpu, jobs, jobs_per_gpu):
        return float("inf")
    found = paces(gpu, jobs)
    return sum(1 / pace for pace in found) if all(pace > 0 for pace in found) else float("inf")


def placed(gpu: MultiplexedGpu, jobs: Sequence[Job]) -> list[MultiplexedJob]:
    """Returns these jobs with their parts of the GPU."""
    shares = parts(gpu, profiles(gpu, jobs) or [])
    return [MultiplexedJob(job.name, gpu.name, share) for job, share in zip(jobs, shares, strict=True)]


def slope(gpu: MultiplexedGpu, jobs: Sequence[Job]) -> float:
    """Returns the steepest |d exec / d SM%| of the GPU's services at their SM%, slowed by all these neighbours (M3).

    That is the time a service would lose with its next SM%; it is small where a service has SMs to spare."""
    measured = profiles(gpu, jobs) or []
    shares = parts(gpu, measured)
    total = sum(value(profile.demand.pressure, share) for profile, share in zip(measured, shares, strict=True))
    total += sum(service.pressure for service in gpu.services)
    return max((_slope(service, total - service.pressure, gpu.clock) for service in gpu.services), default=0.0)


def _slope(service: MultiplexedService, pressure: float, clock: float) -> float:
    """Returns the slope for one service; at a corner of its curve, the slope on the side of fewer SMs."""
    at = next((place for place, (share, _) in enumerate(service.exec_ms) if share >= service.sm_percent), None)
    if at is None or len(service.exec_ms) < 2:
        return 0.0  # beyond the measured points the curve is flat
    (start, low), (end, high) = service.exec_ms[max(at, 1) - 1], service.exec_ms[max(at, 1)]
    steepness = abs(high - low) / (end - start)
    slower: float = clock**-service.clock_exponent
    return steepness * (1 + service.sensitivity * pressure) * slower
