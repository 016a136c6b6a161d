"""What services are asked and how they do: heard from gateways and nodes, kept in windows, looked ahead."""

from __future__ import annotations

from app.control.observe.loads.loads import Loads
from app.control.observe.loads.recent import RecentLoad
from app.control.observe.loads.reports import ReportBatch, ReportCursor, read_reports

__all__ = ["Loads", "RecentLoad", "ReportBatch", "ReportCursor", "read_reports"]
