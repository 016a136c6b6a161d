"""The numbers of instances that plans changed, by steps of time: starts, stops, moves, resizes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from app.store.database.database import statement


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """The changes of plans that were decided in a step of time and carried out."""

    begins: datetime
    starts: int
    stops: int
    moves: int
    resizes: int


POINTS = statement(
    "change_points",
    """
    SELECT date_bin(CAST(:step AS interval), at, '1970-01-01Z') AS begins,
           sum(CAST(coalesce(changes ->> 'start', '0') AS int)) AS starts,
           sum(CAST(coalesce(changes ->> 'stop', '0') AS int)) AS stops,
           sum(CAST(coalesce(changes ->> 'move', '0') AS int)) AS moves,
           sum(CAST(coalesce(changes ->> 'resize', '0') AS int)) AS resizes
    FROM plan
    WHERE at >= CAST(:since AS timestamptz) AND at <= CAST(:until AS timestamptz)
        AND state NOT IN ('advisory', 'proposed', 'rejected', 'expired')
    GROUP BY begins ORDER BY begins
    """,
)


def points(connection: Connection, since: datetime, until: datetime, step: timedelta) -> list[ChangePoint]:
    """Returns a point for each step of this time with plans that were carried out, the oldest first."""
    return [ChangePoint(*row) for row in connection.execute(POINTS, {"since": since, "until": until, "step": step})]
