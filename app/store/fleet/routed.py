"""Counts the copies that answer requests of each service: those that nodes report as routed. Names silent nodes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection

from app.store.database.database import statement

# OFFSET 0 is a fence: without it each use of a copy decompresses the whole detail of its node again.
ROUTED = statement(
    "routed_copies",
    """
    SELECT concat(owner ->> 'tenant', '/', owner ->> 'service') AS service,
           count(*) FILTER (WHERE NOT is_silent) AS reported, count(*) FILTER (WHERE is_silent) AS silent
    FROM (SELECT node_detail.node, detail, coalesce(
              node_state.received_at < (SELECT moment()) - CAST(:patience AS interval), true) AS is_silent
          FROM node_detail LEFT JOIN node_state ON node_state.node = node_detail.node) AS of_node,
         LATERAL (SELECT detail -> 'owners' AS owners, detail -> 'copies' AS copies OFFSET 0) AS once,
         LATERAL (
            SELECT copy, owners -> (copy ->> 'instance') AS owner
            FROM jsonb_array_elements(coalesce(copies, '[]')) AS copy OFFSET 0) AS known
    WHERE CAST(copy ->> 'routed' AS boolean) AND owner ? 'service' AND :tenant IN ('', owner ->> 'tenant')
    GROUP BY 1
    """,
)
# A node that its cloud has taken back is silent, as expected.
SILENT = statement(
    "silent_nodes",
    """
    (SELECT object.name, node_state.received_at, false AS is_starting
     FROM node_state JOIN object ON object.kind = 'Node' AND object.tenant = '' AND object.name = node_state.node
     WHERE node_state.received_at < (SELECT moment()) - CAST(:patience AS interval)
       AND coalesce(CAST(object.status ->> 'reclaimAt' AS timestamptz) > (SELECT moment()), true)
     ORDER BY node_state.received_at LIMIT 100)
    UNION ALL
    (SELECT object.name, NULL, EXISTS (
         SELECT FROM rented_node WHERE rented_node.node = object.name AND rented_node.state IN ('asked', 'starting'))
     FROM object
     WHERE object.kind = 'Node' AND object.tenant = ''
       AND NOT EXISTS (SELECT FROM node_state WHERE node_state.node = object.name)
     ORDER BY object.name LIMIT 100)
    ORDER BY received_at, name
    """,
)


class SilentNode(NamedTuple):
    """A node that does not report."""

    name: str
    received_at: datetime | None  # its last report; None: there was none
    is_starting: bool  # it is rented and has not reported yet


@dataclass(frozen=True, slots=True)
class RoutedCopies:
    """The copies of a service that were reported as routed."""

    reported: int = 0  # by nodes that report now
    silent: int = 0  # by nodes that have been silent since: they may still answer


def count_routed(connection: Connection, tenant: str, patience: timedelta) -> dict[str, RoutedCopies]:
    """Returns the routed copies by service, of all tenants or of one; a node is silent after `patience`."""
    rows = connection.execute(ROUTED, {"tenant": tenant, "patience": patience})
    return {row.service: RoutedCopies(row.reported, row.silent) for row in rows}


def list_silent_nodes(connection: Connection, patience: timedelta) -> list[SilentNode]:
    """Returns nodes that do not report, the longest silent first; then new ones by name.

    There are a hundred of either at most.
    """
    return [SilentNode(*row) for row in connection.execute(SILENT, {"patience": patience})]
