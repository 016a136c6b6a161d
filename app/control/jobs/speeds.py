"""Speeds of jobs that declare none: learned from the first minutes that they run, and in proportion to the share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from app.control.domain.snapshot import DeclaredObject
from app.control.domain.specs import LEARNED, Spec, scale_speeds, speed_field
from app.control.jobs.state import JobPhase, JobPlace, JobState, JobWork

LEAST_TIME = timedelta(minutes=2)  # that it has run at its place
CHANGED_SHARE = 0.2  # a smaller difference changes no plan
DIGITS = 3


def learn_speeds(
    states: Mapping[str, JobState], works: Mapping[str, JobWork], places: Mapping[str, JobPlace],
    declared: tuple[DeclaredObject, ...], now: datetime,
) -> dict[str, JobState]:  # fmt: skip
    """Returns the states with what the paces of running jobs say of speeds that are not declared."""
    gpu_types = {item.name: str(item.spec["gpuType"]) for item in declared if item.kind == "Node"}
    return {
        name: _learn(state, places[name], gpu_type, now)
        if name in places and (gpu_type := gpu_types.get(places[name].node, "")) in works[name].undeclared_speeds
        else state
        for name, state in states.items()
    }


def _learn(state: JobState, place: JobPlace, gpu_type: str, now: datetime) -> JobState:
    if state.phase is not JobPhase.RUNNING or state.per_second <= 0 or now < state.since + LEAST_TIME:
        return state
    whole_per_second = state.per_second * 100 / place.sm_percent
    known = state.learned.get(gpu_type)
    if known and abs(whole_per_second / known - 1) <= CHANGED_SHARE:
        return state
    return replace(state, learned={**state.learned, gpu_type: float(f"{whole_per_second:.{DIGITS}g}")})


def fill_learned_speeds(item: DeclaredObject, learned: Mapping[str, float]) -> DeclaredObject:
    """Returns a job with the speeds that it has learned, by GPU type, where it declares none."""
    field = speed_field(item.spec)
    profiles: dict[str, Spec] = {
        gpu_type: {**profile, field: scale_speeds(learned[gpu_type]), LEARNED: True}
        if gpu_type in learned and field not in profile
        else profile
        for gpu_type, profile in item.spec["profiles"].items()
    }
    return replace(item, spec={**item.spec, "profiles": profiles})
