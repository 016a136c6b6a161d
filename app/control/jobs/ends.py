"""Predicts when a job will be done: at its current pace, or at best."""

from __future__ import annotations

from datetime import datetime, timedelta

from app.control.jobs.state import OVER, JobPhase, JobState, JobWork


def predict_end(state: JobState, work: JobWork, now: datetime) -> datetime | None:
    """Returns when the job will be done at its current pace; None while it has none."""
    if state.phase is JobPhase.FINISHED:
        return state.finished_at
    if state.phase not in (JobPhase.STARTING, JobPhase.RUNNING):
        return None
    return _find_end(now, work.units - state.done, state.per_second or state.planned_per_second)


def soonest_end(state: JobState, work: JobWork, now: datetime) -> datetime | None:
    """Returns when the job could be done at best, alone on the fastest GPU from now on."""
    return None if state.phase in OVER else _find_end(now, work.units - state.done, work.fastest_per_second)


def _find_end(now: datetime, units: float, per_second: float) -> datetime | None:
    if not per_second > 0:
        return None
    seconds = max(units, 0.0) / per_second
    return now + timedelta(seconds=seconds) if seconds < 1e9 else None
