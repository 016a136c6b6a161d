"""The data behind gateways' routes: the copies that nodes report, their assignments, and the limits of services."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

import msgspec
from sqlalchemy import Connection

from app.store.database.database import statement

VERSION = statement("endpoint_version", "SELECT value FROM version WHERE name = 'endpoint'")
# A row's xmin changes with every write; a clock would be less exact.
STAMPS = statement(
    "stamps_of_nodes",
    """
    SELECT coalesce(node_detail.node, assignment.node) AS node,
           CAST(node_detail.xmin AS text) AS detail, CAST(assignment.xmin AS text) AS assignment
    FROM node_detail FULL JOIN assignment ON assignment.node = node_detail.node
    """,
)
NODES = statement(
    "copies_of_nodes",
    """
    SELECT wanted.node, node_detail.detail, assignment.body,
           (SELECT jsonb_object_agg(known.instance, known.tenant || '/' || known.service) FROM assigned AS known
            WHERE known.node = wanted.node AND known.service <> ''
              AND (known.withdrawn_at IS NULL OR known.withdrawn_at > moment() - CAST(:lately AS interval))
              AND known.instance IN (
                  SELECT copy ->> 'instance' FROM jsonb_array_elements(node_detail.detail -> 'copies') AS copy)
           ) AS lately
    FROM unnest(CAST(:nodes AS text[])) AS wanted (node)
    LEFT JOIN node_detail ON node_detail.node = wanted.node
    LEFT JOIN assignment ON assignment.node = wanted.node
    """,
)
DECLARED = statement(
    "services_of_gateways", "SELECT tenant || '/' || name AS service FROM object WHERE kind = 'Service'"
)
ADVANCE = statement("endpoints_change", "SELECT advance_endpoint()")
LISTED_LIMITS = """
    SELECT tenant || '/' || service AS service, queue_limit, shed_share, retry_after_seconds, in_time
    FROM traffic_limit ORDER BY tenant, service
"""
LIMITS = statement("traffic_limits", LISTED_LIMITS)
LIMIT = statement(
    "limit_traffic",
    """
    WITH wanted AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(CAST(:limits AS jsonb)) AS wanted (
            tenant text, service text, queue_limit int, shed_share double precision, retry_after_seconds int,
            in_time jsonb)
    ), gone AS (
        DELETE FROM traffic_limit AS known
        WHERE NOT EXISTS (SELECT FROM wanted WHERE (wanted.tenant, wanted.service) = (known.tenant, known.service))
        RETURNING 1
    ), put AS (
        INSERT INTO traffic_limit AS known (tenant, service, queue_limit, shed_share, retry_after_seconds, in_time)
        SELECT * FROM wanted ORDER BY tenant, service
        ON CONFLICT (tenant, service) DO UPDATE SET
            queue_limit = excluded.queue_limit, shed_share = excluded.shed_share,
            retry_after_seconds = excluded.retry_after_seconds, in_time = excluded.in_time
        WHERE (known.queue_limit, known.shed_share, known.retry_after_seconds, known.in_time)
              IS DISTINCT FROM
              (excluded.queue_limit, excluded.shed_share, excluded.retry_after_seconds, excluded.in_time)
        RETURNING 1
    )
    SELECT CASE WHEN (SELECT count(*) FROM gone) + (SELECT count(*) FROM put) > 0 THEN advance_endpoint() END
    """,
)


LATELY = timedelta(days=1)  # from the withdrawal of an instance until its copies cannot be routed any more

Stamp: TypeAlias = tuple[str | None, str | None]  # of a node's report, and of its assignment


@dataclass(frozen=True, slots=True)
class GatewayLimit:
    """The share of a service's requests that each gateway accepts."""

    queue_limit: int = 0  # requests open at once, in progress or waiting; 0: no limit
    shed_share: float = 0.0  # rejected with 503 at once
    retry_after_seconds: int = 2
    in_time: Mapping[str, int] = field(default_factory=dict)  # by place, `node/gpu`: open requests answered in time

    def __post_init__(self) -> None:
        if not (self.queue_limit >= 0 and 0 <= self.shed_share <= 1 and 1 <= self.retry_after_seconds <= 3600):
            raise ValueError(f"{self} is no limit: shedShare is in 0..1, retryAfterSeconds in 1..3600")


class _LimitRow(msgspec.Struct):
    tenant: str
    service: str
    queue_limit: int
    shed_share: float
    retry_after_seconds: int
    in_time: Mapping[str, int]


def version(connection: Connection) -> int:
    """Returns the newest version of the stream."""
    return int(connection.execute(VERSION).scalar() or 0)


def stamps(connection: Connection) -> dict[str, Stamp]:
    """Returns two stamps for every node: one changes with its report, the other with its assignment."""
    return {row.node: (row.detail, row.assignment) for row in connection.execute(STAMPS)}


@dataclass(frozen=True, slots=True)
class CopiesOfNode:
    """The detail of a node's last report, its assignment, and the services of instances that it has or lately had."""

    node: str
    detail: object
    body: str | None
    services: Mapping[str, str] = field(default_factory=dict)  # tenant/name, by instance


def read_copies(connection: Connection, nodes: Collection[str]) -> list[CopiesOfNode]:
    """Returns what these nodes have reported, and what they were assigned."""
    rows = connection.execute(NODES, {"nodes": sorted(nodes), "lately": LATELY})
    return [CopiesOfNode(row.node, row.detail, row.body, row.lately or {}) for row in rows]


def read_declared(connection: Connection) -> list[str]:
    """Returns every declared service, as tenant/name."""
    return list(connection.execute(DECLARED).scalars())


def note_declared(connection: Connection) -> None:
    """Wakes gateways, as services were declared or deleted; to be called last in a transaction."""
    connection.execute(ADVANCE)


def read_limits(connection: Connection) -> dict[str, GatewayLimit]:
    """Returns the limits of services, by tenant/name."""
    found = connection.execute(LIMITS)
    return {
        row.service: GatewayLimit(row.queue_limit, row.shed_share, row.retry_after_seconds, row.in_time)
        for row in found
    }


def find_limiting(wanted: Mapping[str, GatewayLimit]) -> dict[str, GatewayLimit]:
    """Returns the limits without those that limit nothing."""
    return {service: limits for service, limits in wanted.items() if limits.queue_limit or limits.shed_share}


def set_limits(connection: Connection, wanted: Mapping[str, GatewayLimit]) -> bool:
    """Replaces all limits, leaving out those that limit nothing; returns True if anything changed."""
    rows = []
    for service, limits in sorted(find_limiting(wanted).items()):
        tenant, _, name = service.partition("/")
        rows.append(
            _LimitRow(
                tenant, name, limits.queue_limit, limits.shed_share, limits.retry_after_seconds, limits.in_time
            )
        )  # fmt: skip
    version = connection.execute(LIMIT, {"limits": msgspec.json.encode(rows).decode()}).scalar()
    return version is not None
