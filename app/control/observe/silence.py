"""How long each node has been silent, where it is the node that is.

While nobody at all is heard, it is we who do not hear: time stands still for all of them. Once somebody is heard again
after such a gap, everybody's silence counts from there, and no node is lost for our absence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

SILENT_SECONDS = 35.0  # three reports and a little
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Silence:
    """What is remembered of when anybody was heard. `since`: before it nobody was listening."""

    since: datetime = LONG_AGO
    newest: datetime | None = None

    def seconds(self, heard: Mapping[str, datetime], at: datetime) -> dict[str, float]:
        """By node, given when each was heard last."""
        newest = max(heard.values(), default=None)
        if newest is None:
            return {}
        if self.newest is not None and (newest - self.newest).total_seconds() > SILENT_SECONDS:
            self.since = newest
        self.newest = newest
        now = at if (at - newest).total_seconds() <= SILENT_SECONDS else max(newest, self.since)
        return {node: (now - max(last, self.since)).total_seconds() for node, last in heard.items()}
