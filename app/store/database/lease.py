"""The leader's lease: a row with an epoch on the database's time. Whatever a leader writes is checked against it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.store.database.database import statement
from app.store.database.versions import LEAP_BY  # as far: a plan's generation is also the version of its stream

PLANNER = "planner"

# A holder that was paused past its end and finds that nobody took its place goes on under its own epoch. A lease that
# was renewed in times to come is of a clock that was set back since: nobody waits for those times again.
TAKE = statement(
    "take_lease",
    """
    INSERT INTO lease AS held (name, holder, epoch, renewed_at, expires_at)
    VALUES (:name, :holder, 1, moment(), moment() + CAST(:seconds AS float8) * interval '1 second')
    ON CONFLICT (name) DO UPDATE SET
        holder = excluded.holder,
        epoch = held.epoch + CASE WHEN held.holder = excluded.holder THEN 0 ELSE 1 END,
        renewed_at = excluded.renewed_at, expires_at = excluded.expires_at
    WHERE held.holder = excluded.holder OR held.expires_at <= moment()
        OR held.renewed_at > moment() + CAST(:seconds AS float8) * interval '1 second'
    RETURNING epoch
    """,
)
RELEASE = statement("release_lease", "UPDATE lease SET expires_at = moment() WHERE name = :name AND holder = :holder")
HELD = statement("lease_held", "SELECT generation FROM lease WHERE name = :name AND epoch = :epoch FOR SHARE")
NEXT = statement(
    "next_generation",
    "UPDATE lease SET generation = generation + 1 WHERE name = :name AND epoch = :epoch RETURNING generation",
)
ONE = statement(
    "lease",
    """
    SELECT holder, epoch, generation, renewed_at, expires_at, expires_at > moment() AS held
    FROM lease WHERE name = :name
    """,
)
LEAP = statement("leap_lease", "UPDATE lease SET epoch = epoch + :by, generation = generation + :by")


@dataclass(frozen=True, slots=True)
class Lease:
    """The row, for those who ask who leads."""

    holder: str
    epoch: int
    generation: int
    renewed_at: datetime
    expires_at: datetime
    held: bool


def take(connection: Connection, holder: str, seconds: float) -> int | None:
    """Take or renew the lease; its epoch, or None while somebody else holds it."""
    epoch = connection.execute(TAKE, {"name": PLANNER, "holder": holder, "seconds": seconds}).scalar()
    return None if epoch is None else int(epoch)


def release(connection: Connection, holder: str) -> None:
    """Let go at once, so that nobody waits for the end."""
    connection.execute(RELEASE, {"name": PLANNER, "holder": holder})


def held(connection: Connection, epoch: int) -> bool:
    """Tells if this is the newest epoch; no other begins before the transaction ends."""
    return connection.execute(HELD, {"name": PLANNER, "epoch": epoch}).scalar() is not None


def next_generation(connection: Connection, epoch: int) -> int | None:
    """The next generation of decisions; None when a newer epoch won: then nothing may be written (I1)."""
    found = connection.execute(NEXT, {"name": PLANNER, "epoch": epoch}).scalar()
    return None if found is None else int(found)


def current(connection: Connection) -> Lease | None:
    """Returns the present leader, or else the last."""
    row = connection.execute(ONE, {"name": PLANNER}).one_or_none()
    return None if row is None else Lease(*row)


def leap(connection: Connection) -> None:
    """Leave behind the epochs and generations given out between a backup and its restore: nodes have seen them."""
    connection.execute(LEAP, {"by": LEAP_BY})
