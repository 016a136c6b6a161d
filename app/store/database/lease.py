"""The leader's lease: a row with an epoch, on the database's clock. Every write of a leader is checked against it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.store.database.database import TRANSACTION_IDENTITY, note_transaction, read_row, statement
from app.store.database.versions import LEAP_BY  # by as much: a plan's generation is also the version of its stream

PLANNER = "planner"
SCALER = "scaler"

# A holder that was paused past its expiry and was not replaced continues under its own epoch. A lease renewed in the
# future comes from a clock that was set back since: no candidate waits for that time to come again.
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
HELD = statement(
    "lease_held",
    f"SELECT {TRANSACTION_IDENTITY} FROM lease WHERE name = :name AND epoch = :epoch FOR SHARE",
)
SHARED = statement("share_lease", "SELECT FROM lease WHERE name = :name FOR SHARE")
OWN = statement("own_lease", "SELECT FROM lease WHERE name = :name FOR UPDATE")
NEXT = statement(
    "next_generation",
    f"""
    UPDATE lease SET generation = generation + 1 WHERE name = :name AND epoch = :epoch
    RETURNING generation, {TRANSACTION_IDENTITY}
    """,
)
LEASE = statement(
    "lease",
    """
    SELECT holder, epoch, generation, renewed_at, expires_at, expires_at > moment() AS held
    FROM lease WHERE name = :name
    """,
)
LEAP = statement("leap_lease", "UPDATE lease SET epoch = epoch + :by, generation = generation + :by")


@dataclass(frozen=True, slots=True)
class Lease:
    """The leader and its lease."""

    holder: str
    epoch: int
    generation: int
    renewed_at: datetime
    expires_at: datetime
    held: bool


def take(connection: Connection, holder: str, seconds: float, name: str = PLANNER) -> int | None:
    """Takes or renews the lease and returns its epoch; None while another process holds it."""
    epoch = connection.execute(TAKE, {"name": name, "holder": holder, "seconds": seconds}).scalar()
    return None if epoch is None else int(epoch)


def release(connection: Connection, holder: str, name: str = PLANNER) -> None:
    """Gives the lease up, so that the next leader need not wait for its expiry."""
    connection.execute(RELEASE, {"name": name, "holder": holder})


def is_newest(connection: Connection, epoch: int, name: str = PLANNER) -> bool:
    """Returns True if this is the newest epoch; no other begins before the transaction ends."""
    row = connection.execute(HELD, {"name": name, "epoch": epoch}).one_or_none()
    if row is not None:
        note_transaction(connection, row.xid, row.checkpoint)
    return row is not None


def hold(connection: Connection, name: str) -> None:
    """Lets no decision of this name be recorded before the transaction ends."""
    connection.execute(SHARED, {"name": name})


def hold_alone(connection: Connection, name: str) -> None:
    """Waits for what others record under this lease, and lets nothing else be recorded before the transaction ends."""
    connection.execute(OWN, {"name": name})


def next_generation(connection: Connection, epoch: int, name: str = PLANNER) -> int | None:
    """Returns the next generation of decisions; None if a newer epoch won: then nothing may be written (I1)."""
    row = connection.execute(NEXT, {"name": name, "epoch": epoch}).one_or_none()
    if row is None:
        return None
    note_transaction(connection, row.xid, row.checkpoint)
    return int(row.generation)


def current(connection: Connection) -> Lease | None:
    """Returns the lease of the present leader, or else of the last."""
    return read_row(Lease, connection.execute(LEASE, {"name": PLANNER}))


def leap(connection: Connection) -> None:
    """Advances past the epochs and generations issued between a backup and its restore: nodes have received them."""
    connection.execute(LEAP, {"by": LEAP_BY})
