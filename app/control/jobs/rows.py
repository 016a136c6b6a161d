"""Translates job states to database rows and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields

import msgspec
from sqlalchemy import Connection

from app.control.jobs.state import JobState
from app.store.plans import job_states
from app.store.plans.job_states import JobRow

COLUMNS = {field.name for field in fields(JobRow)}
DETAILS = tuple(field.name for field in fields(JobState) if field.name not in COLUMNS)


def row_of(state: JobState) -> JobRow:
    """Returns the row that stores this state."""
    tenant, _, job = state.job.partition("/")
    values: dict[str, object] = msgspec.to_builtins(state)
    return JobRow(
        tenant, job, state.phase.value, state.since, state.done, state.per_second, state.first_started_at,
        state.finished_at, state.failures, {name: values[name] for name in DETAILS},
    )  # fmt: skip


def state_of(row: JobRow) -> JobState:
    """Returns the state that a row stores."""
    detail = row.detail or {}
    values = {name: detail[name] for name in DETAILS if name in detail}
    stored = {name: getattr(row, name) for name in COLUMNS if name != "detail"}
    return msgspec.convert({**values, **stored, "job": f"{row.tenant}/{row.job}"}, JobState)


def states_of(stored: Iterable[JobRow]) -> dict[str, JobState]:
    """Returns the states that these rows store, by job."""
    return {state.job: state for state in map(state_of, stored)}


def read(connection: Connection) -> dict[str, JobState]:
    """Returns the stored state of every job."""
    return states_of(job_states.read(connection))


def write(connection: Connection, before: Mapping[str, JobState], after: Mapping[str, JobState]) -> None:
    """Stores new and changed states, and removes those of jobs that are gone."""
    job_states.write(connection, [row_of(state) for name, state in after.items() if state != before.get(name)])
    gone = [(tenant, job) for tenant, _, job in (name.partition("/") for name in before.keys() - after.keys())]
    job_states.remove(connection, gone)
