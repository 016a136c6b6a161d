"""Measures how long each node has been silent, except while the control plane itself receives nothing.

While no node at all reports, the fault is on this side: the clock stops for all nodes. When the first node reports
after such a gap, every node's silence counts from then, so that no node is lost because the control plane was away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

SILENT_SECONDS = 35.0  # three reports and a little
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Silence:
    """The time of the newest report. Silence counts from `since`: before it, no planner received reports."""

    since: datetime = LONG_AGO
    newest: datetime | None = None

    def seconds(self, last_reports: Mapping[str, datetime], at: datetime) -> dict[str, float]:
        """Returns the seconds of silence by node, from the time of each node's last report."""
        newest = max(last_reports.values(), default=None)
        if newest is None:
            return {}
        if self.newest is not None and (newest - self.newest).total_seconds() > SILENT_SECONDS:
            self.since = newest
        self.newest = newest
        now = at if (at - newest).total_seconds() <= SILENT_SECONDS else max(newest, self.since)
        return {node: (now - max(last, self.since)).total_seconds() for node, last in last_reports.items()}
