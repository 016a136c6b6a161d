"""The load of services: read from gateways and nodes, stored in windows, and forecast."""

from __future__ import annotations

from app.control.observe.loads.loads import Loads
from app.control.observe.loads.recent import RecentLoad
from app.control.observe.loads.reports import ReportBatch, ReportCursor, ask_after, open_news, read_reports

__all__ = ["Loads", "RecentLoad", "ReportBatch", "ReportCursor", "ask_after", "open_news", "read_reports"]
