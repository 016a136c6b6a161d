"""Draws the jobs of family F: half train, half answer offline; half may open a GPU at a price."""

from __future__ import annotations

import numpy as np

from benchmarks.hardware import FLEET, Hardware
from benchmarks.models import PRESSURE_POINTS, round_figure
from solvers.planning.problem import Demand, Job, JobProfile

SM_PERCENTS = (10, 20, 40, 60, 80, 100)
TENANT = "lab"


def jobs(rng: np.random.Generator, count: int) -> dict[str, Job]:
    """Returns so many jobs, in the order of their names."""
    made = [_job(rng, number) for number in range(count)]
    return {job.name: job for job in made}


def _job(rng: np.random.Generator, number: int) -> Job:
    first_per_second = float(np.exp(rng.uniform(np.log(0.5), np.log(20))))
    bound, knee = float(rng.uniform(0.1, 0.9)), float(rng.uniform(40, 100))
    memory_gib = float(np.exp(rng.uniform(np.log(2), np.log(12))))
    demand = Demand(
        pressure=_pressure(float(rng.uniform(0.3, 0.9))),
        sensitivity=round_figure(float(rng.uniform(0.05, 0.4))),
    )

    def profile(hardware: Hardware) -> JobProfile:
        whole = first_per_second * hardware.speed(bound)
        return JobProfile(
            units_per_second=tuple((sm, round_figure(whole * min(1.0, sm / knee))) for sm in SM_PERCENTS),
            memory_gib=round_figure(memory_gib),
            demand=demand,
        )

    return Job(
        name=f"{TENANT}/job-{number:04d}",
        tenant=TENANT,
        kind="training" if number % 2 == 0 else "offline",
        units=float(rng.integers(10_000, 1_000_000)),
        profiles={hardware.gpu_type.name: profile(hardware) for hardware in FLEET},
        max_price_per_hour=round_figure(float(rng.uniform(0.5, 3))) if number % 4 < 2 else None,
    )


def _pressure(peak: float) -> tuple[tuple[int, float], ...]:
    return tuple((sm, round_figure(peak * (sm / 100) ** 0.6)) for sm in PRESSURE_POINTS)
