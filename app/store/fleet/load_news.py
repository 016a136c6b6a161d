"""What the planner asks several times a second: new reports of nodes, new counts of gateways, new assignments."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import Connection

from agents.contract.gateways import GatewayCounts
from app.store.database.database import statement

NEWS = timedelta(minutes=3)

# A row that a slow transaction commits late carries an earlier time, so each read looks a little back and leaves out
# known rows. Reports older than a few minutes are not read any more. The first row is always there, for the time.
READ = statement(
    "news_of_loads",
    """
    SELECT '' AS source, '' AS name, CAST(0 AS bigint) AS number, moment() AS at, CAST('' AS bytea) AS body
    UNION ALL
    SELECT 'assignment', node, version, NULL, convert_to(body, 'UTF8') FROM assignment WHERE version > :assigned
    UNION ALL
    SELECT 'gateway', gateway, 0, received_at, body FROM gateway_state
    WHERE received_at > CAST(:gateways_since AS timestamptz)
    UNION ALL
    SELECT 'node', node, ordinal, received_at, body FROM report_minute
    WHERE received_at > greatest(CAST(:reports_since AS timestamptz), moment() - CAST(:within AS interval))
        AND NOT EXISTS (
            SELECT FROM unnest(CAST(:nodes AS text[]), CAST(:ordinals AS bigint[])) AS known (node, ordinal)
            WHERE known.node = report_minute.node AND known.ordinal = report_minute.ordinal)
    """,
)

_counts = msgspec.json.Decoder(GatewayCounts)


@dataclass(frozen=True, slots=True)
class ReportRow:
    """The newest report of a node and minute; `body` is the compressed report."""

    node: str
    ordinal: int
    received_at: datetime
    body: bytes


@dataclass(frozen=True, slots=True)
class GatewayCounters:
    """A gateway's newest counters, and when the database received them."""

    gateway: str
    received_at: datetime
    counts: GatewayCounts


@dataclass(frozen=True, slots=True)
class LoadNews:
    """All that is new at a moment; the reports of a node are in order."""

    now: datetime
    assignments: Sequence[tuple[str, int, bytes]]  # node, version, body
    gateways: Sequence[GatewayCounters]
    reports: Sequence[ReportRow]


def read(
    connection: Connection,
    assigned: int,
    gateways_since: datetime | None,
    reports_since: datetime | None,
    known: Sequence[tuple[str, int]],
) -> LoadNews:
    """Returns assignments newer than a version, counts and reports that arrived since, the known reports left out."""
    values = {
        "assigned": assigned,
        "gateways_since": gateways_since.isoformat() if gateways_since else "-infinity",
        "reports_since": reports_since.isoformat() if reports_since else "-infinity",
        "within": NEWS,
        "nodes": [node for node, _ in known],
        "ordinals": [ordinal for _, ordinal in known],
    }
    first, *rows = connection.execute(READ, values)
    gateways = [
        GatewayCounters(row.name, row.at, _counts.decode(zlib.decompress(row.body)))
        for row in rows
        if row.source == "gateway"
    ]
    reports = [ReportRow(row.name, row.number, row.at, row.body) for row in rows if row.source == "node"]
    return LoadNews(
        first.at,
        [(row.name, row.number, bytes(row.body)) for row in rows if row.source == "assignment"],
        sorted(gateways, key=lambda counters: counters.gateway),
        sorted(reports, key=lambda report: report.ordinal),
    )
