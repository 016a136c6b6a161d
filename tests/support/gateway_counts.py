"""Reads what nodes and gateways have reported, as the planner does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from app.control.observe.loads.reports import ReportBatch, ReportCursor, ask_after, open_news
from app.store.database.database import Database
from app.store.fleet import load_news
from app.store.fleet.load_news import GatewayCounters


def read_reports(connection: Connection, after: ReportCursor) -> ReportBatch:
    """Returns everything after a cursor, with the next cursor."""
    return open_news(load_news.read(connection, ask_after(after)), after)


def newest_counts(database: Database, since: datetime | None = None) -> Sequence[GatewayCounters]:
    """Returns the newest counts of every gateway that has reported since."""
    return database.read(lambda connection: read_reports(connection, ReportCursor(gateways_at=since))).gateways
