"""Reads what gateways have counted, as the planner does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from app.control.observe.loads.reports import ReportCursor, read_reports
from app.store.database.database import Database
from app.store.fleet.load_news import GatewayCounters


def newest_counts(database: Database, since: datetime | None = None) -> Sequence[GatewayCounters]:
    """Returns the newest counts of every gateway that has reported since."""
    return database.read(lambda connection: read_reports(connection, ReportCursor(gateways_at=since))).gateways
