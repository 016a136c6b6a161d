"""The state of every job between cycles."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

import msgspec
from sqlalchemy import Connection

from app.manifests.model import Free
from app.store.database.database import statement

LISTED = """
    SELECT tenant, job, phase, done, per_second, since, first_started_at, finished_at, failures, detail
    FROM job_state ORDER BY tenant, job
"""
ALL = statement("job_states", LISTED)
# One statement for all jobs: a cycle writes only changed states.
WRITE = statement(
    "write_job_states",
    """
    INSERT INTO job_state (
        tenant, job, phase, done, per_second, since, first_started_at, finished_at, failures, detail)
    SELECT tenant, job, phase, done, per_second, since, first_started_at, finished_at, failures, detail
    FROM jsonb_to_recordset(CAST(:states AS jsonb)) AS state (
        tenant text, job text, phase text, done double precision, per_second double precision, since timestamptz,
        first_started_at timestamptz, finished_at timestamptz, failures int, detail jsonb)
    ON CONFLICT (tenant, job) DO UPDATE SET
        phase = excluded.phase, done = excluded.done, per_second = excluded.per_second, since = excluded.since,
        first_started_at = excluded.first_started_at, finished_at = excluded.finished_at,
        failures = excluded.failures, detail = excluded.detail
    """,
)
REMOVE = statement(
    "remove_job_states",
    """
    DELETE FROM job_state USING unnest(CAST(:tenants AS text[]), CAST(:jobs AS text[])) AS gone (tenant, job)
    WHERE job_state.tenant = gone.tenant AND job_state.job = gone.job
    """,
)


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job's state as it is stored; only the jobs' own logic reads `detail`."""

    tenant: str
    job: str
    phase: str
    since: datetime
    done: float = 0.0
    per_second: float = 0.0
    first_started_at: datetime | None = None
    finished_at: datetime | None = None
    failures: int = 0
    detail: Free | None = None


def read(connection: Connection) -> list[JobRow]:
    """Returns the state of every job, declared or not."""
    return [
        JobRow(
            row.tenant, row.job, row.phase, row.since, row.done, row.per_second, row.first_started_at,
            row.finished_at, row.failures, row.detail,
        )
        for row in connection.execute(ALL)
    ]  # fmt: skip


def write(connection: Connection, rows: Iterable[JobRow]) -> None:
    """Stores these states."""
    states = list(rows)
    if states:
        connection.execute(WRITE, {"states": msgspec.json.encode(states).decode()})


def remove(connection: Connection, jobs: Collection[tuple[str, str]]) -> None:
    """Deletes the states of these jobs: (tenant, job)."""
    if jobs:
        tenants, names = zip(*sorted(jobs), strict=True)
        connection.execute(REMOVE, {"tenants": list(tenants), "jobs": list(names)})
