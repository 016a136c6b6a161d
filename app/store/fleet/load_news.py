"""What the planner asks several times a second: new reports of nodes, new counts of gateways, new assignments."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec
from sqlalchemy import Connection

from agents.contract.gateways import GatewayCounts
from app.store.database.database import SqlRow, statement

NEWS = timedelta(minutes=3)

ASSIGNMENTS = """
    (SELECT CAST(json_agg(json_build_array(node, version, body)) AS text) FROM assignment
     WHERE version > :assigned) AS assignments
"""
# A row that a slow transaction commits late carries an earlier time, so each read looks a little back and leaves out
# known rows. Reports older than a few minutes are not read any more. JSON has bytes as base64 without line breaks.
COUNTS_AND_REPORTS = """
    (SELECT CAST(json_agg(json_build_array(
        gateway, received_at, translate(encode(body, 'base64'), E'\\n', ''))) AS text)
     FROM gateway_state WHERE received_at > CAST(:gateways_since AS timestamptz)) AS gateways,
    (SELECT CAST(json_agg(json_build_array(
        node, ordinal, received_at, translate(encode(body, 'base64'), E'\\n', '')) ORDER BY ordinal) AS text)
     FROM report_minute
     WHERE received_at > greatest(CAST(:reports_since AS timestamptz), moment() - CAST(:within AS interval))
        AND NOT EXISTS (
            SELECT FROM unnest(CAST(:nodes AS text[]), CAST(:ordinals AS bigint[])) AS known (node, ordinal)
            WHERE known.node = report_minute.node AND known.ordinal = report_minute.ordinal)) AS reports
"""
READ = statement("news_of_loads", f"SELECT moment() AS now, {ASSIGNMENTS}, {COUNTS_AND_REPORTS}")

AssignedBody: TypeAlias = tuple[str, int, str]  # node, version, body

_assignments = msgspec.json.Decoder(list[AssignedBody])
_gateways = msgspec.json.Decoder(list[tuple[str, datetime, bytes]])
_reports = msgspec.json.Decoder(list[tuple[str, int, datetime, bytes]])
_counts = msgspec.json.Decoder(GatewayCounts)


@dataclass(frozen=True, slots=True)
class NewsQuestion:
    """What is known already: the version of assignments, the times of counts and reports, and reports since then."""

    assigned: int = 0
    gateways_since: str = "-infinity"
    reports_since: str = "-infinity"
    known: Sequence[tuple[str, int]] = ()  # node and ordinal

    @property
    def values(self) -> dict[str, object]:
        """Returns the values of the statement."""
        return {
            "assigned": self.assigned,
            "gateways_since": self.gateways_since,
            "reports_since": self.reports_since,
            "within": NEWS,
            "nodes": [node for node, _ in self.known],
            "ordinals": [ordinal for _, ordinal in self.known],
        }


NO_NEWS = NewsQuestion(2**62, "infinity", "infinity")  # asks for nothing


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
    assignments: Sequence[AssignedBody]
    gateways: Sequence[GatewayCounters]
    reports: Sequence[ReportRow]


def read(connection: Connection, question: NewsQuestion) -> LoadNews:
    """Returns assignments newer than a version, counts and reports that arrived since, the known reports left out."""
    return news_of(connection.execute(READ, question.values).one())


def news_of(row: SqlRow) -> LoadNews:
    """Returns the news in a row that has these columns."""
    gateways = [
        GatewayCounters(name, at, _counts.decode(zlib.decompress(body)))
        for name, at, body in (_gateways.decode(row.gateways) if row.gateways else ())
    ]
    return LoadNews(
        row.now,
        _assignments.decode(row.assignments) if row.assignments else [],
        sorted(gateways, key=lambda counters: counters.gateway),
        [ReportRow(*line) for line in _reports.decode(row.reports)] if row.reports else [],
    )
