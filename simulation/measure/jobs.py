"""The jobs of a simulated fleet: which are done, and how long they took."""

from __future__ import annotations

from statistics import fmean

from app.control.jobs.rows import read
from simulation.run import Simulation


def seconds_of_jobs(simulation: Simulation) -> dict[str, float | None]:
    """Returns for each job the seconds from the start of the run until it was done; None while it is not."""
    began = simulation.clock.began
    states = simulation.database.read(read)
    return {
        name: (state.finished_at - began).total_seconds() if state.finished_at else None
        for name, state in sorted(states.items())
    }


def job_figures(simulation: Simulation) -> dict[str, float | None]:
    """Returns how many jobs are done, and the mean time that they took."""
    done = [seconds for seconds in seconds_of_jobs(simulation).values() if seconds is not None]
    return {"done": len(done), "meanCompletionSeconds": round(fmean(done), 3) if done else None}
