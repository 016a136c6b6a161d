"""Jobs in the database: a state is read back as written, and nodes' reports become observations of jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agents.contract.reports import Report
from app.control.jobs import rows
from app.control.jobs.rows import row_of, state_of
from app.control.jobs.state import JobNeed, JobPhase, JobState, job_readings
from app.store.database.database import Database
from tests.support.reports import instance, report

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
TUNE = JobState(
    "lab/tune", JobPhase.PREEMPTED, NOON, done=120.5, first_started_at=NOON - timedelta(hours=1), failures=2,
    manifest="m1", instance="i1", node="n1", order=7, reported_units=120.5, reported_at=NOON, preemptions=3,
    is_late=True, message="exited: it fell",
    need=JobNeed("no room", "smPercent: 20", 2, NOON + timedelta(seconds=30), {"big": 5}),
)  # fmt: skip


def test_states_come_back_as_they_were_written(database: Database) -> None:
    states = {"lab/tune": TUNE, "lab/new": JobState("lab/new", JobPhase.QUEUED, NOON)}
    database.write(lambda connection: rows.write(connection, {}, states))
    assert database.read(rows.read) == states


def test_only_what_changed_is_written_and_what_is_gone_is_forgotten(database: Database) -> None:
    before = {"lab/tune": TUNE, "lab/old": JobState("lab/old", JobPhase.FINISHED, NOON)}
    database.write(lambda connection: rows.write(connection, {}, before))
    after = {"lab/tune": replace(TUNE, phase=JobPhase.RUNNING, done=200.0)}
    database.write(lambda connection: rows.write(connection, before, after))
    database.write(lambda connection: rows.write(connection, after, after))
    assert database.read(rows.read) == after


@given(st.sampled_from(list(JobPhase)), st.floats(0, 1e12), st.integers(0, 9), st.booleans())
def test_a_row_holds_all_that_a_state_says(phase: JobPhase, done: float, failures: int, late: bool) -> None:
    state = replace(TUNE, phase=phase, done=done, failures=failures, is_late=late)
    row = row_of(state)
    through = replace(row, detail=msgspec.json.decode(msgspec.json.encode(row.detail)))
    assert state_of(through) == state


def test_what_an_older_version_did_not_write_has_its_default() -> None:
    row = row_of(TUNE)
    assert state_of(replace(row, detail={})).need == JobNeed()


def job_report(node: str, sequence: int, steps: float = 12.0, **fields: Any) -> Report:
    job = instance("j-1", service="", job="tune", tenant="lab", steps=steps, requests=0)
    found_report = report(node, sequence, instances=[instance(), job], **fields)
    return msgspec.convert(found_report, Report, strict=False)


def test_a_report_says_how_far_its_jobs_are() -> None:
    copies = [{"id": "j-1.1", "instance": "j-1", "gpu": 0, "stage": "ready"}]
    [found] = job_readings(job_report("node-1", 5, copies=copies), NOON)
    assert (found.job, found.instance, found.node, found.units, found.stage) == (
        "lab/tune", "j-1", "node-1", 12.0, "ready",
    )  # fmt: skip
    [later] = job_readings(job_report("node-1", 6), NOON)
    [restarted] = job_readings(job_report("node-1", 0, incarnation=2), NOON)
    assert found.order < later.order < restarted.order


def test_a_report_says_which_jobs_fell_though_nothing_of_them_runs() -> None:
    held = [{"instance": "j-1", "reason": "exited", "message": "it ended by itself"}]
    found_report = msgspec.convert(report("node-1", 5, heldBack=held), Report, strict=False)
    [found] = job_readings(found_report, NOON)
    assert (found.job, found.instance, found.reason) == ("", "j-1", "exited")
