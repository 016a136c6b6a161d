"""A fleet whose GPUs follow a physics of their own; profiles are only somebody's belief about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulation.fleet_truth import UNKNOWN_MS, FleetTruth, SimulatedResident
from simulation.truth.fitting import KnownFigures, LoadKey
from simulation.truth.physics import Physics, RunningLoad
from solvers.planning.problem import Problem, ProfileKey


@dataclass(frozen=True)
class PhysicalTruth(FleetTruth):
    """A declared fleet on a physics. A model's declaration names it, and sets its scale once."""

    physics: Physics = field(default_factory=lambda: Physics(0))

    @classmethod
    def of(cls, declared: FleetTruth, physics: Physics) -> PhysicalTruth:
        """Returns the fleet on this physics, which learns of models that it does not know."""
        learn(physics, declared.problem)
        return cls(declared.problem, declared.start_seconds, physics)

    def exec_ms(
        self,
        key: ProfileKey,
        batch: float,
        sm_percent: float,
        neighbours: Sequence[SimulatedResident],
        clock_mhz: float = 0.0,
    ) -> float:
        """Returns the time of one batch while all neighbours are busy."""
        if key not in self.physics:
            return UNKNOWN_MS
        group = [RunningLoad(key, batch, sm_percent), *_running(neighbours)]
        return self.physics.together(group, clock_mhz).times_ms[0]

    def batches_ms(
        self,
        key: ProfileKey,
        batch: float,
        sm_percent: float,
        neighbours: Sequence[SimulatedResident],
        clock_mhz: float,
        random: np.random.Generator,
        count: int,
    ) -> NDArray[np.float64] | None:
        if key not in self.physics:
            return None
        mine = RunningLoad(key, batch, sm_percent)
        return self.physics.sample_ms(mine, _running(neighbours), clock_mhz, random, count)

    def units_per_second(
        self,
        job: str,
        gpu_type: str,
        sm_percent: float,
        neighbours: Sequence[SimulatedResident],
        clock_mhz: float,
    ) -> float:
        key = job_key(job, gpu_type)
        if key not in self.physics:
            return 0.0
        mine = RunningLoad(key, 1.0, sm_percent)
        beside = _running(neighbours)
        alone = self.physics.together([mine], clock_mhz).times_ms[0]
        together = self.physics.together([mine, *beside], clock_mhz).times_ms[0] if beside else alone
        busy = sum(other.busy for other in beside) / len(beside) if beside else 0.0
        return 1000.0 / (alone + (together - alone) * busy)

    def watts(
        self, gpu_type: str, residents: Sequence[tuple[SimulatedResident, float]], clock_mhz: float = 0.0
    ) -> float:
        running = [replace(one, busy=busy) for resident, busy in residents for one in _running([resident])]
        return self.physics.watts(gpu_type, running, clock_mhz)


def learn(physics: Physics, problem: Problem) -> None:
    """Tells the physics of the kinds of GPU and the models of a problem; those that it knows stay as they are."""
    for kind in problem.gpu_types.values():
        physics.add_gpu(kind.name, kind.idle_w, kind.max_w, kind.top_clock_mhz)
    for key, profile in problem.profiles.items():
        physics.add_model(key, KnownFigures(profile.latency_ms, profile.demand.power_w[-1][1]))
    for job in problem.jobs.values():
        for gpu_type, found in job.profiles.items():
            points: dict[int, Any] = {1: [(percent, 1000.0 / speed) for percent, speed in found.units_per_second]}
            physics.add_model(job_key(job.name, gpu_type), KnownFigures(points, found.demand.power_w[-1][1]))


def job_key(job: str, gpu_type: str) -> LoadKey:
    return ("job", job, gpu_type)


def _running(residents: Sequence[SimulatedResident]) -> list[RunningLoad]:
    return [
        RunningLoad(resident.key, resident.batch, resident.sm_percent, resident.busy)
        for resident in residents
        if resident.key
    ]
