"""Checks of reported usage: whether it is stored, was assigned, and overlaps other usage of the instance."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Connection

from app.store.database.database import statement

MOST_BEFORE = 256  # intervals of an instance that began last before an end: a longer list would take too long to read


class Claim(msgspec.Struct):
    """An interval that a node reports."""

    node: str
    id: str
    instance: str
    gpu: int
    started_at: datetime
    ended_at: datetime | None


class ClaimContext(msgspec.Struct):
    """The stored facts that decide whether the interval may be stored."""

    node: str
    id: str
    is_known: bool
    is_assigned: bool
    overlapping: int  # intervals of the same instance and GPU
    starts: int  # of the same instance and GPU in the same quarter-hour
    open_of_node: int


CONTEXTS = statement(
    "contexts_of_claims",
    """
    WITH claim AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(CAST(:claims AS jsonb)) AS claim (
            node text, id text, instance text, gpu smallint, started_at timestamptz, ended_at timestamptz)
    ), open AS MATERIALIZED (
        SELECT node, count(*) AS intervals FROM usage_interval
        WHERE node IN (SELECT node FROM claim) AND ended_at IS NULL GROUP BY node
    )
    SELECT claim.node, claim.id, known.node IS NOT NULL AS is_known, assigned.node IS NOT NULL AS is_assigned,
           overlapping.intervals AS overlapping, beginning.intervals AS starts,
           coalesce(open.intervals, 0) AS open_of_node
    FROM claim LEFT JOIN open USING (node)
    LEFT JOIN usage_interval AS known ON (known.node, known.id) = (claim.node, claim.id)
    LEFT JOIN assigned
           ON (assigned.node, assigned.instance, assigned.gpu) = (claim.node, claim.instance, claim.gpu)
    CROSS JOIN LATERAL (
        SELECT count(*) AS intervals FROM (
            SELECT other.ended_at FROM usage_interval AS other
            WHERE (other.node, other.instance, other.gpu) = (claim.node, claim.instance, claim.gpu)
              AND other.started_at < coalesce(claim.ended_at, 'infinity') AND known.node IS NULL
            ORDER BY other.started_at DESC LIMIT :most_before) AS before
        WHERE ended_at IS NULL OR ended_at > claim.started_at) AS overlapping
    CROSS JOIN LATERAL (
        SELECT count(*) AS intervals FROM usage_interval AS other
        WHERE (other.node, other.instance, other.gpu) = (claim.node, claim.instance, claim.gpu)
          AND other.started_at >= date_bin('15 minutes', claim.started_at, '1970-01-01Z')
          AND other.started_at < date_bin('15 minutes', claim.started_at, '1970-01-01Z') + interval '15 minutes'
          AND known.node IS NULL) AS beginning
    """,
)


def contexts(connection: Connection, claims: Sequence[Claim]) -> dict[tuple[str, str], ClaimContext]:
    """Returns the context of each claim, by node and id."""
    given = {"claims": msgspec.json.encode(claims).decode(), "most_before": MOST_BEFORE}
    return {(row.node, row.id): ClaimContext(*row) for row in connection.execute(CONTEXTS, given)}
