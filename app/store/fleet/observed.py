"""The planner's reads of one moment: declared objects, nodes with their state, their assignments and their copies."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.manifests.model import Free
from app.store.database.database import statement

OBJECT_VERSION = statement("object_version", "SELECT value, floor FROM version WHERE name = 'object'")
WORLD = statement(
    "declared_world",
    "SELECT kind, tenant, name, spec FROM object WHERE resource_version > :after ORDER BY kind, tenant, name",
)
GONE = statement(
    "objects_gone_since", "SELECT kind, tenant, name FROM change WHERE version > :after AND action = 'deleted'"
)
HELD_GPUS = """
    SELECT node, CAST(gpu AS int) AS gpu,
           sum(coalesce(CAST(copy ->> 'smPercent' AS float8), 0)) AS sm_percent,
           sum(coalesce(CAST(copy ->> 'memoryGib' AS float8), 0)) AS memory_gib
    FROM node_detail, jsonb_array_elements(coalesce(detail -> 'copies', '[]')) AS copy,
         jsonb_array_elements_text(coalesce(copy -> 'gpus', jsonb_build_array(copy -> 'gpu'))) AS gpu
    WHERE copy ->> 'stage' <> 'gone' AND coalesce(detail -> 'owners' -> (copy ->> 'instance') ->> 'job', '') = ''
    GROUP BY node, gpu
"""
HELD = statement("gpus_held_by_services", HELD_GPUS)
ASSIGNMENTS = statement("assignments_newer_than", "SELECT node, version, body FROM assignment WHERE version > :after")
DETAILS = statement(
    "details_since",
    """
    SELECT node, changed_at, detail FROM node_detail
    WHERE changed_at > CAST(:since AS timestamptz) - interval '10 seconds'
    """,
)
GENERATIONS = statement(
    "generations_of_nodes",
    """
    SELECT node, generation, received_at FROM node_state
    """,
)


@dataclass(frozen=True, slots=True)
class HeldGpu:
    """A GPU with copies of services, and what these use of it; during a hand-over both copies."""

    node: str
    gpu: int
    sm_percent: float
    memory_gib: float


def object_version(connection: Connection) -> tuple[int, int]:
    """Returns the latest version of any object, and the version up to which changes are no longer kept."""
    row = connection.execute(OBJECT_VERSION).one()
    return row.value, row.floor


def world(connection: Connection, after: int = -1) -> list[tuple[str, str, str, Free]]:
    """Returns every declared object written after that version: kind, tenant, name, spec."""
    return [tuple(row) for row in connection.execute(WORLD, {"after": after})]


def list_deleted_objects(connection: Connection, after: int) -> set[tuple[str, str, str]]:
    """Returns the objects deleted after that version, even if declared again: kind, tenant, name."""
    return {tuple(row) for row in connection.execute(GONE, {"after": after})}


def assignments(connection: Connection, after: int) -> list[tuple[str, int, str]]:
    """Returns every assignment newer than `after`: (node, version, body)."""
    return [(row.node, row.version, row.body) for row in connection.execute(ASSIGNMENTS, {"after": after})]


def details(connection: Connection, since: datetime) -> list[tuple[str, datetime, Free]]:
    """Returns the copies, devices and refusals of nodes that have reported a change since."""
    return [(row.node, row.changed_at, row.detail) for row in connection.execute(DETAILS, {"since": since})]


def held_gpus(connection: Connection) -> list[HeldGpu]:
    """Returns every GPU on which a node reports a copy of a service."""
    return [HeldGpu(*row) for row in connection.execute(HELD)]


def generations(connection: Connection) -> list[tuple[str, int, datetime]]:
    """Returns every node with the generation that it holds and the time of its last report."""
    return [(row.node, row.generation, row.received_at) for row in connection.execute(GENERATIONS)]
