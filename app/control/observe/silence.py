"""Measures how long each node has been silent, except while the control plane itself receives nothing.

While no node at all reports, the fault is on this side: the clock stops for all nodes. When the first node reports
after such a gap, every node's silence counts from then, so that no node is lost because the control plane was away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from app.control.domain.snapshot import SILENT_SECONDS

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Silence:
    """The time of the newest report. Silence counts from `since`: before it, no planner received reports.

    `heard_since` is when the last outage ended, in which no node reported.
    """

    since: datetime = LONG_AGO
    heard_since: datetime = LONG_AGO
    newest: datetime | None = None

    def seconds(self, last_reports: Mapping[str, datetime], at: datetime) -> dict[str, float]:
        """Returns the seconds of silence by node, from the time of each node's last report."""
        newest = max(last_reports.values(), default=None)
        if newest is None:
            return {}
        if self.newest is not None and (newest - self.newest).total_seconds() > SILENT_SECONDS:
            self.since = self.heard_since = newest
        self.newest = newest
        now = max(newest, self.since) if self.is_outage(at) else at
        return {node: (now - max(last, self.since)).total_seconds() for node, last in last_reports.items()}

    def unheard(self, last_reports: Mapping[str, datetime], at: datetime) -> frozenset[str]:
        """Returns the nodes that were silent before this planner began to lead, while others reported.

        They are not lost yet, but nothing new belongs there. After an outage any node may be the next to report.
        """
        if self.is_outage(at) or self.heard_since > LONG_AGO:
            return frozenset()
        return frozenset(node for node, last in last_reports.items() if (at - last).total_seconds() > SILENT_SECONDS)

    def is_outage(self, at: datetime) -> bool:
        """Returns whether no node reports, as of the last reading."""
        return self.newest is not None and (at - self.newest).total_seconds() > SILENT_SECONDS
