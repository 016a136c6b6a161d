"""Rotation of nodes' tokens: a token gets a successor, and ends once the successor is first used."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.store.database.database import read_row, statement

OVERLAP_SECONDS = 60.0  # the longest poll: requests in flight with the old token may finish

# Every writer locks the elder token first.
HOLD = statement(
    "hold_token",
    """
    SELECT id FROM token
    WHERE id = :id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now()) FOR UPDATE
    """,
)
SUCCESSOR = statement(
    "successor_in_use",
    "SELECT id FROM token WHERE replaces = :id AND replaces <> '' AND taken_up_at IS NOT NULL LIMIT 1",
)
DROP_UNUSED = statement(
    "drop_unused_successors",
    """
    UPDATE token SET revoked_at = now()
    WHERE replaces = :id AND replaces <> '' AND taken_up_at IS NULL AND revoked_at IS NULL
    """,
)
SUCCEED = statement("succeed_token", "UPDATE token SET replaces = :elder WHERE id = :id")
TAKE_UP = statement(
    "take_up_token",
    """
    UPDATE token SET taken_up_at = coalesce(taken_up_at, now())
    WHERE id = :id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now()) RETURNING id
    """,
)
END_ELDER = statement(
    "end_elder_token",
    """
    WITH ended AS (
        UPDATE token SET expires_at = least(expires_at, now() + make_interval(secs => :overlap))
        WHERE id = :id RETURNING expires_at
    )
    SELECT coalesce((SELECT expires_at FROM ended), now())
    """,
)
SPENT = statement(
    "spent_token",
    """
    SELECT elder.id, elder.secret_hash, elder.node, successor.id AS successor
    FROM token AS elder JOIN token AS successor ON successor.replaces = elder.id AND successor.replaces <> ''
    WHERE elder.id = :id AND elder.revoked_at IS NULL AND elder.expires_at <= now()
      AND successor.taken_up_at IS NOT NULL
    LIMIT 1
    """,
)
# A node's last token is kept even after it expires: it shows that the node has joined.
FORGET = statement(
    "forget_spent_tokens",
    """
    DELETE FROM token WHERE id IN (
        SELECT elder.id FROM token AS elder JOIN token AS successor ON successor.replaces = elder.id
        WHERE elder.scope = 'node' AND elder.expires_at < now() - interval '30 days' AND successor.replaces <> ''
          AND successor.taken_up_at IS NOT NULL
        ORDER BY elder.expires_at LIMIT :limit)
    """,
)


@dataclass(frozen=True, slots=True)
class ReplacedToken:
    """A token whose successor is in use and whose own time is over."""

    id: str
    secret_hash: bytes
    node: str
    successor: str


def make_room(connection: Connection, token_id: str) -> str | None:
    """Locks the token while its successor is made, and ends unused successors, whose answers were lost.

    Returns the successor in use, "" if the token has ended, and None if a successor may be made.
    """
    if connection.execute(HOLD, {"id": token_id}).one_or_none() is None:
        return ""  # it ended while the request was in flight
    in_use: str | None = connection.execute(SUCCESSOR, {"id": token_id}).scalar()
    if in_use is None:
        drop_unused(connection, token_id)
    return in_use


def drop_unused(connection: Connection, token_id: str) -> None:
    """Ends the successors of a token that were never used."""
    connection.execute(DROP_UNUSED, {"id": token_id})


def set_successor(connection: Connection, elder: str, token_id: str) -> None:
    """Makes the token the successor of `elder`, which it replaces at its first use."""
    connection.execute(SUCCEED, {"elder": elder, "id": token_id})


def take_up(connection: Connection, elder: str, token_id: str) -> datetime | None:
    """Records the first use of a token and returns when its elder ends; None if the token itself has ended."""
    connection.execute(HOLD, {"id": elder})
    if connection.execute(TAKE_UP, {"id": token_id}).one_or_none() is None:
        return None
    ends: datetime = connection.execute(END_ELDER, {"id": elder, "overlap": OVERLAP_SECONDS}).scalar_one()
    return ends


def read_replaced_token(connection: Connection, token_id: str) -> ReplacedToken | None:
    """Returns the token if its successor replaced it."""
    return read_row(ReplacedToken, connection.execute(SPENT, {"id": token_id}))


def forget(connection: Connection, limit: int) -> int:
    """Deletes up to `limit` tokens that were replaced a month ago; returns how many."""
    return connection.execute(FORGET, {"limit": limit}).rowcount
