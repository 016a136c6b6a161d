"""Speeds that a job's manifest leaves out: assumed, then learned from its pace."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.control.domain.snapshot import DeclaredObject
from app.control.domain.specs import job_tables
from app.control.jobs.speeds import fill_learned_speeds, learn_speeds
from app.control.jobs.state import JobPhase, JobPlace, JobState, work_of

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
NODE = DeclaredObject("Node", "", "n1", {"gpuType": "big"})
RUNNING = JobState("lab/tune", JobPhase.RUNNING, NOON, per_second=4.0)


def declared_job(**speeds: Any) -> DeclaredObject:
    spec = {"type": "training", "steps": 7200, "profiles": {"big": {"memoryGib": 4, **speeds}}}
    return DeclaredObject("Job", "lab", "tune", spec)


def learned(state: JobState, minutes: float, job: DeclaredObject | None = None) -> dict[str, float]:
    places = {"lab/tune": JobPlace("i1", "n1", (0,), 40)}
    works = {"lab/tune": work_of(job or declared_job())}
    found = learn_speeds({"lab/tune": state}, works, places, (NODE,), NOON + timedelta(minutes=minutes))
    return dict(found["lab/tune"].learned)


def test_a_pace_counts_after_two_minutes_in_proportion_to_the_share() -> None:
    assert learned(RUNNING, 1.9) == {}
    assert learned(RUNNING, 2) == {"big": 10.0}
    assert learned(replace(RUNNING, per_second=0.0), 2) == {}, "it has not reported yet"
    assert learned(replace(RUNNING, phase=JobPhase.STARTING), 2) == {}


def test_a_declared_speed_is_not_learned() -> None:
    assert learned(RUNNING, 5, declared_job(stepsPerSecond={"100": 1})) == {}


@pytest.mark.parametrize(("whole", "known"), [(10.0, 10.0), (11.5, 10.0), (12.5, 12.5), (7.5, 7.5)])
def test_a_learned_speed_changes_only_where_the_pace_is_far_from_it(whole: float, known: float) -> None:
    before = replace(RUNNING, learned={"big": 10.0}, per_second=0.4 * whole)
    filled = fill_learned_speeds(declared_job(), before.learned)
    assert learned(before, 5, filled) == {"big": known}


def test_a_job_is_planned_by_what_was_learned_and_before_by_an_hour_for_all_its_work() -> None:
    assert job_tables(declared_job().spec)["big"][0] == {"10": 0.2, "100": 2.0}
    filled = fill_learned_speeds(declared_job(), {"big": 10.0})
    assert job_tables(filled.spec)["big"][0] == {"10": 1.0, "100": 10.0}
    assert work_of(filled).manifest == work_of(declared_job()).manifest, "its manifest is as declared"
    own = declared_job(stepsPerSecond={"100": 1})
    assert work_of(own).manifest != work_of(declared_job()).manifest
    assert fill_learned_speeds(own, {"big": 10.0}).spec == own.spec
