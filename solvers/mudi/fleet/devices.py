"""One GPU as Mudi's local coordinator sees it: its services at the smallest SM%, and training on the rest (M5, M7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from solvers.mudi.beside import SharedDevice, SlopedService, parts, profiles, slope, value
from solvers.mudi.fleet.shapes import MudiResident, fitted
from solvers.planning.problem import GpuType, Instance, Job, JobProfile, Place, PlacedJob, Problem

SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class DeviceShares:
    """The instances and jobs on a GPU, with their SM%."""

    seats: tuple[Instance, ...]
    jobs: tuple[PlacedJob, ...] = ()


@dataclass(slots=True)
class MudiDevice:
    """A GPU with services, and the jobs that have come to it so far."""

    problem: Problem
    place: Place
    residents: list[MudiResident]
    jobs: list[Job] = field(default_factory=list)
    shares: DeviceShares | None = None  # None: the services do not fit together

    @property
    def type(self) -> GpuType:
        return self.problem.type_at(self.place)

    def settle(self) -> None:
        """Finds the SM% of the services alone; those that do not fit keep the shapes they have."""
        self.shares = self.with_jobs(())
        if self.shares is None:
            self.shares = DeviceShares(tuple(resident.seat for resident in self.residents))

    def with_jobs(self, jobs: Sequence[Job]) -> DeviceShares | None:
        """Returns the shares with exactly these jobs, or None if a limit or an SLO would break.

        The services' SM% are found for the pressure of jobs with what is spare before; as the services then get more,
        the jobs get less and press less.
        """
        found = [job.profiles.get(self.type.name) for job in jobs]
        measured = [profile for profile in found if profile]
        if len(measured) < len(jobs) or len(jobs) > self.problem.policy.jobs_per_gpu or not self.residents:
            return None
        free_gib = self.type.memory_gib - sum(profile.memory_gib for profile in measured)
        alone = self._seats(0.0, free_gib)
        if alone is None:
            return None
        if not jobs:
            return DeviceShares(tuple(alone)) if self._watts_fit(alone, (), ()) else None
        wide = parts(self._as_gpu(alone), measured)
        pressure = sum(value(profile.demand.pressure, share) for profile, share in zip(measured, wide, strict=True))
        seats = self._seats(pressure, free_gib)
        if seats is None:
            return None
        narrow = parts(self._as_gpu(seats), measured)
        least = [profile.units_per_second[0][0] for profile in measured]
        if any(share < low for share, low in zip(narrow, least, strict=True)) or not self._watts_fit(
            seats, measured, narrow
        ):
            return None
        if len(seats) + len(jobs) > self.problem.policy.clients_per_gpu:
            return None
        placed = [
            PlacedJob(job.name, *self.place, share, profile.memory_gib)
            for job, profile, share in zip(jobs, measured, narrow, strict=True)
        ]
        return DeviceShares(tuple(seats), tuple(placed))

    def slope_with(self, shares: DeviceShares, jobs: Sequence[Job]) -> float:
        """Returns the steepest slope of its services at these shares: Mudi's measure of a GPU for a job (M3)."""
        gpu = self._as_gpu(shares.seats)
        return slope(gpu, jobs) if profiles(gpu, jobs) is not None else inf

    def _seats(self, pressure: float, free_gib: float) -> list[Instance] | None:
        return fitted(self.problem, self.residents, pressure, free_gib)

    def _as_gpu(self, seats: Sequence[Instance]) -> SharedDevice:
        services = tuple(
            SlopedService(
                seat.sm_percent,
                tuple(resident.profile.latency_ms[seat.batch]),
                value(resident.profile.demand.pressure, seat.sm_percent),
                resident.profile.demand.sensitivity,
            )
            for seat, resident in zip(seats, self.residents, strict=True)
        )
        return SharedDevice(self.type.name, services)

    def _watts_fit(self, seats: Sequence[Instance], measured: Sequence[JobProfile], shares: Sequence[int]) -> bool:
        watts = self.type.idle_w
        for seat, resident in zip(seats, self.residents, strict=True):
            watts += value(resident.profile.demand.power_w, seat.sm_percent)
        for profile, share in zip(measured, shares, strict=True):
            watts += value(profile.demand.power_w, share)
        return watts <= self.type.max_w * (1 + SLACK)
