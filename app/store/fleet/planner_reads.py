"""What the planner reads again and again: the fleet at each step, and all that a cycle decides from; a statement each.

Lists come as JSON, which is read faster than rows, and a single statement needs no transaction to be consistent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import msgspec
from sqlalchemy import Connection, TextClause

from app.manifests.model import Free
from app.store.database.database import SqlRow, statement
from app.store.fleet import cordons, load_news
from app.store.fleet.cordons import Cordon
from app.store.fleet.load_news import AssignedBody, LoadNews, NewsQuestion
from app.store.plans import job_states, plan_reads, plans
from app.store.plans.job_states import JobRow
from app.store.plans.plans import PlanInForce

OVERLAP = timedelta(seconds=10)  # by which a node's detail may become visible after its own time

_COMMON = f"""
    moment() AS now, version.value AS object_version, version.floor AS object_floor, plan_in_force.*,
    {load_news.ASSIGNMENTS},
    (SELECT CAST(json_agg(listed) AS text) FROM ({cordons.LISTED}) AS listed) AS cordons,
    (SELECT CAST(json_agg(listed) AS text) FROM ({job_states.LISTED}) AS listed) AS jobs,
    EXISTS (SELECT FROM approval_hold) AS is_held
"""
_FROM = f"""
    FROM version LEFT JOIN ({plans.NEWEST_IN_FORCE}) AS plan_in_force ON true WHERE version.name = 'object'
"""
STEP = statement(
    "fleet_at_this_step",
    f"""
    SELECT {_COMMON}, (SELECT epoch FROM lease WHERE name = 'planner') AS epoch,
        (SELECT CAST(json_agg(json_build_array(node, changed_at, detail)) AS text) FROM node_detail
         WHERE changed_at > CAST(:since AS timestamptz)) AS details,
        (SELECT CAST(json_agg(json_build_array(node, generation, received_at)) AS text) FROM node_state) AS received,
        {load_news.COUNTS_AND_REPORTS}
    {_FROM}
    """,
)
CYCLE = statement(
    "fleet_of_a_cycle",
    f"""
    SELECT {_COMMON},
        (SELECT CAST(json_agg(listed) AS text) FROM (
            SELECT object.name, object.status, node_state.received_at, node_state.generation,
                   node_detail.detail -> 'gpus' AS ailing, node_detail.detail -> 'repartition' AS repartition,
                   node_detail.requested_at, node_detail.changed_at AS detail_at
            FROM object
            LEFT JOIN node_state ON node_state.node = object.name
            LEFT JOIN node_detail ON node_detail.node = object.name
            WHERE object.kind = 'Node' AND object.tenant = ''
        ) AS listed) AS nodes,
        (SELECT CAST(json_agg(json_build_array(
            model, variant, gpu_type, latency, sensitivity_factor, memory_factor, power_factor)) AS text)
         FROM correction
         WHERE latency <> '[]' OR sensitivity_factor <> 1 OR memory_factor <> 1 OR power_factor <> 1) AS corrections,
        ({plan_reads.NEWEST_WAITING}) AS proposal
    {_FROM}
    """,
)

ReportedDetail: TypeAlias = tuple[str, datetime, msgspec.Raw]  # node, when it changed, detail
ReceivedReport: TypeAlias = tuple[str, int, datetime]  # node, generation that it holds, time of its last report
CorrectionOfProfile: TypeAlias = tuple[str, str, str, object, float, float, float]


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """When a node last asked for another partition of a GPU, and for how long in all, with pauses under an hour."""

    at: datetime
    seconds: float


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A declared node and its state."""

    name: str
    status: Free
    received_at: datetime | None
    generation: int | None
    ailing: Sequence[Free] | None
    repartition: Sequence[int] | None = None
    requested_at: Mapping[int, PartitionRequest] | None = None  # by GPU: past ones
    detail_at: datetime | None = None  # since when the detail is as it is


@dataclass(frozen=True, slots=True)
class FleetReading:
    """The fleet at one moment; of assignments and details only what is new."""

    now: datetime
    object_version: int
    object_floor: int  # up to which changes are no longer kept
    plan: PlanInForce | None
    assignments: Sequence[AssignedBody]
    cordons: Sequence[Cordon]
    jobs: Sequence[JobRow]
    is_held: bool  # plans wait for approval after a rollback


@dataclass(frozen=True, slots=True)
class StepReading(FleetReading):
    """What a rollout's step follows from besides."""

    epoch: int  # of the lease
    details: Sequence[ReportedDetail]
    received: Sequence[ReceivedReport]
    news: LoadNews


@dataclass(frozen=True, slots=True)
class CycleReading(FleetReading):
    """What a cycle's decision follows from besides."""

    nodes: Sequence[ObservedNode]
    corrections: Sequence[CorrectionOfProfile]
    proposal: int  # the newest plan that waits for approval; 0: none


def read_step(connection: Connection, assigned: int, since: datetime, asked: NewsQuestion) -> StepReading:
    """Returns the fleet, with assignments newer than a version, details that changed since a time, and news of loads.

    The assignments are those that the question asks for, too.
    """
    asked = replace(asked, assigned=min(assigned, asked.assigned))
    row = _row(connection, STEP, since=since - OVERLAP, **asked.values)
    return StepReading(
        **_common(row),
        epoch=row.epoch or 0,
        details=_decode_list(row.details, ReportedDetail),
        received=_decode_list(row.received, ReceivedReport),
        news=load_news.news_of(row),
    )


def read_cycle(connection: Connection, assigned: int) -> CycleReading:
    """Returns the fleet, with assignments newer than a version."""
    row = _row(connection, CYCLE, assigned=assigned)
    return CycleReading(
        **_common(row),
        nodes=_decode_list(row.nodes, ObservedNode),
        corrections=_decode_list(row.corrections, CorrectionOfProfile),
        proposal=row.proposal or 0,
    )


def _row(connection: Connection, sql: TextClause, **values: object) -> SqlRow:
    return connection.execute(sql, {"node": "", **values}).one()


def _common(row: SqlRow) -> Free:
    """Returns the fields of a reading that both kinds have."""
    return {
        "now": row.now,
        "object_version": row.object_version,
        "object_floor": row.object_floor,
        "plan": None if row.generation is None else plans.plan_of(row),
        "assignments": _decode_list(row.assignments, AssignedBody),
        "cordons": _decode_list(row.cordons, Cordon),
        "jobs": _decode_list(row.jobs, JobRow),
        "is_held": row.is_held,
    }


def _decode_list(found: str | None, kind: Any) -> list[Any]:
    return msgspec.json.decode(found, type=list[kind]) if found else []
