"""One GPU as Mudi's local coordinator sees it: its services at the smallest SM%, and training on the rest (M5, M7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from solvers.mudi.beside import SharedDevice, SlopedService, parts, profiles, slope
from solvers.mudi.fleet.shapes import FittedServices, MudiResident, fit_services
from solvers.planning.fleet.offers import SpareRoom
from solvers.planning.judge.readings import value_at
from solvers.planning.problem import GpuType, Instance, Job, JobProfile, Place, PlacedJob, Problem


@dataclass(frozen=True, slots=True)
class DeviceShares:
    """The instances and jobs on a GPU, with their SM%."""

    seats: tuple[Instance, ...]
    jobs: tuple[PlacedJob, ...] = ()
    training_percent: int = 0  # that the instances leave to jobs
    fitted: FittedServices | None = None  # None: the instances have shapes that were not found so


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
        self.shares = self.share_with_jobs(())
        if self.shares is None:
            self.shares = DeviceShares(tuple(resident.seat for resident in self.residents))

    def share_with_jobs(self, jobs: Sequence[Job]) -> DeviceShares | None:
        """Returns the shares with exactly these jobs, or None if a limit or an SLO would break.

        The services' SM% are found for the pressure of jobs with what is spare before; as the services then get more,
        the jobs get less and press less.
        """
        measured, policy = profiles(self.type.name, jobs), self.problem.policy
        if measured is None or len(jobs) > policy.jobs_per_gpu or not self.residents:
            return None
        room = SpareRoom.idle(self.type).less(memory_gib=sum(profile.memory_gib for profile in measured))
        alone = fit_services(self.problem, self.residents, 0.0, room)
        if alone is None:
            return None
        if not jobs:
            return DeviceShares(alone.seats, fitted=alone) if self._have_watts(alone, (), ()) else None
        wide = parts(alone.room.sm_percent, measured)
        pairs = zip(measured, wide, strict=True)
        pressure = sum(value_at(profile.demand.whole_pressure, share) for profile, share in pairs)
        beside = fit_services(self.problem, self.residents, pressure, room)
        if beside is None or len(self.residents) + len(jobs) > policy.clients_per_gpu:
            return None
        spare = beside.room.sm_percent
        narrow = parts(spare, measured)
        least = [profile.units_per_second[0][0] for profile in measured]
        is_narrow = any(share < low for share, low in zip(narrow, least, strict=True))
        if is_narrow or not self._have_watts(beside, measured, narrow):
            return None
        placed = [
            PlacedJob(job.name, *self.place, share, profile.memory_gib)
            for job, profile, share in zip(jobs, measured, narrow, strict=True)
        ]
        return DeviceShares(beside.seats, tuple(placed), spare, beside)

    def _have_watts(self, services: FittedServices, measured: Sequence[JobProfile], shares: Sequence[int]) -> bool:
        """Returns whether the GPU may draw what its services and jobs with these SM% draw."""
        draws = [
            (line.profile.demand, seat.sm_percent) for line, seat in zip(self.residents, services.seats, strict=True)
        ]
        draws += [(profile.demand, share) for profile, share in zip(measured, shares, strict=True)]
        watts = sum(value_at(demand.power_w, sm_percent) for demand, sm_percent in draws)
        return not services.room.less(watts=watts).is_exceeded

    def slope_with(self, shares: DeviceShares, jobs: Sequence[Job]) -> float:
        """Returns the steepest slope of its services at these shares: Mudi's measure of a GPU for a job (M3)."""
        services = tuple(
            SlopedService(
                seat.sm_percent,
                tuple(resident.profile.latency_ms[seat.batch]),
                value_at(resident.profile.demand.whole_pressure, seat.sm_percent),
                resident.profile.demand.most_sensitivity,
            )
            for seat, resident in zip(shares.seats, self.residents, strict=True)
        )
        return slope(SharedDevice(services, shares.training_percent), profiles(self.type.name, jobs) or [])
