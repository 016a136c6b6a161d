"""The minutes of the whole fleet: what it cost, how busy its GPUs were, how its services answered; one row each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from app.store.database.database import statement

KEPT = timedelta(days=32)


@dataclass(frozen=True, slots=True)
class FleetCost:
    """The cost of the fleet an hour: the GPUs held now, those of the plan, and the least possible; None: unknown."""

    held: float
    planned: float
    bound: float | None


@dataclass(frozen=True, slots=True)
class FleetPoint:
    """Means over a step of time; None: nothing is known of it."""

    begins: datetime
    held_cost: float | None
    planned_cost: float | None
    bound: float | None
    busy: float | None  # a share of 1: of the GPUs whose nodes reported
    power_w: float | None
    attained: float | None  # a share of 1


# The cycle of a new leader in the same minute takes the place of the one before.
KEEP_COST = statement(
    "keep_cost_of_fleet",
    """
    INSERT INTO fleet_minute (minute, held_cost, planned_cost, bound)
    VALUES (date_trunc('minute', moment()), :held, :planned, :bound)
    ON CONFLICT (minute) DO UPDATE SET
        held_cost = excluded.held_cost, planned_cost = excluded.planned_cost, bound = excluded.bound
    """,
)
# Nodes report a minute when it is over, one after the other.
_IS_WHOLE = "minute < (SELECT moment()) - interval '3 minutes'"
POINTS = statement(
    "points_of_fleet",
    f"""
    SELECT date_bin(CAST(:step AS interval), minute, '1970-01-01Z') AS begins, avg(held_cost) AS held_cost,
           avg(planned_cost) AS planned_cost, avg(nullif(bound, 0)) AS bound,
           sum(busy_gpus) FILTER (WHERE {_IS_WHOLE}) / nullif(sum(gpus) FILTER (WHERE {_IS_WHOLE}), 0) AS busy,
           avg(power_w) FILTER (WHERE {_IS_WHOLE}) AS power_w,
           greatest(0, sum(answers) - sum(slow)) / nullif(sum(answers) + sum(errors), 0) AS attained
    FROM fleet_minute
    WHERE minute >= CAST(:since AS timestamptz) AND minute <= CAST(:until AS timestamptz)
    GROUP BY begins ORDER BY begins
    """,
)
OLDEST = statement("oldest_minute_of_fleet", "SELECT min(minute) FROM fleet_minute")
FORGET = statement(
    "forget_minutes_of_fleet",
    """
    DELETE FROM fleet_minute WHERE minute IN (
        SELECT minute FROM fleet_minute WHERE minute < (SELECT moment()) - CAST(:after AS interval)
        ORDER BY minute LIMIT :limit)
    """,
)


def keep_cost(connection: Connection, cost: FleetCost) -> None:
    """Stores what the fleet costs now; the last of a minute stays."""
    connection.execute(KEEP_COST, {"held": cost.held, "planned": cost.planned, "bound": cost.bound})


def points(connection: Connection, since: datetime, until: datetime, step: timedelta) -> list[FleetPoint]:
    """Returns a point for each step of this time of which something is known, the oldest first."""
    found = connection.execute(POINTS, {"since": since, "until": until, "step": step})
    return [FleetPoint(*row) for row in found]


def read_oldest(connection: Connection) -> datetime | None:
    """Returns the first minute that is kept: that of the first plan of a young fleet; None before any."""
    found: datetime | None = connection.execute(OLDEST).scalar()
    return found


def forget(connection: Connection, limit: int) -> int:
    """Deletes minutes that no chart reaches; returns how many."""
    return connection.execute(FORGET, {"after": KEPT, "limit": limit}).rowcount
