"""One-time tokens with which nodes join: hashed, short-lived, used once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.store.database.database import read_row, statement

INSERT = statement(
    "insert_join_token",
    """
    INSERT INTO join_token (id, secret_hash, node, created_by, expires_at)
    VALUES (:id, :secret_hash, :node, :created_by,
            now() + make_interval(secs => CAST(:expires_in_seconds AS double precision)))
    RETURNING expires_at
    """,
)
FORGET = statement(
    "forget_join_tokens",
    """
    DELETE FROM join_token WHERE id IN (
        SELECT id FROM join_token WHERE least(expires_at, used_at) < now() - interval '90 days'
        ORDER BY least(expires_at, used_at) LIMIT :limit)
    """,
)
_WHOLE_ROW = """
    SELECT id, secret_hash, node, expires_at <= now() AS expired, used_at, used_by FROM join_token WHERE id = :id
"""
FIND = statement("find_join_token", _WHOLE_ROW)
FOR_USE = statement("join_token_for_use", _WHOLE_ROW + " FOR UPDATE")
USE = statement("use_join_token", "UPDATE join_token SET used_at = now(), used_by = :node WHERE id = :id")
COLUMNS = "id, node, created_by, created_at, expires_at, expires_at <= now() AS expired, used_at, used_by"
PAGE = statement("page_of_join_tokens", f"SELECT {COLUMNS} FROM join_token WHERE id > :after ORDER BY id LIMIT :limit")
# Revoking moves the expiry: a join token ends in one way only.
REVOKE = statement(
    "revoke_join_token",
    f"UPDATE join_token SET expires_at = least(expires_at, now()) WHERE id = :id RETURNING {COLUMNS}",
)


@dataclass(frozen=True, slots=True)
class JoinTokenRow:
    """A one-time token with which a node joins."""

    id: str
    secret_hash: bytes
    node: str
    expired: bool
    used_at: datetime | None
    used_by: str


def insert(
    connection: Connection,
    *,
    token_id: str,
    secret_hash: bytes,
    node: str,
    created_by: str,
    expires_in_seconds: float,
) -> datetime:
    """Stores a join token and returns its expiry."""
    ends: datetime = connection.execute(
        INSERT,
        {
            "id": token_id,
            "secret_hash": secret_hash,
            "node": node,
            "created_by": created_by,
            "expires_in_seconds": expires_in_seconds,
        },
    ).scalar_one()
    return ends


def forget(connection: Connection, limit: int) -> int:
    """Deletes up to `limit` join tokens that ended long ago; returns how many."""
    return connection.execute(FORGET, {"limit": limit}).rowcount


def find(connection: Connection, token_id: str) -> JoinTokenRow | None:
    """Returns the join token without locking it."""
    return read_row(JoinTokenRow, connection.execute(FIND, {"id": token_id}))


def lock_for_use(connection: Connection, token_id: str) -> JoinTokenRow | None:
    """Returns the join token, locked until the transaction ends, so that it is used once."""
    return read_row(JoinTokenRow, connection.execute(FOR_USE, {"id": token_id}))


def use(connection: Connection, token_id: str, node: str) -> None:
    connection.execute(USE, {"id": token_id, "node": node})


@dataclass(frozen=True, slots=True)
class ListedJoinToken:
    """A join token without its secret."""

    id: str
    node: str
    created_by: str
    created_at: datetime
    expires_at: datetime
    expired: bool
    used_at: datetime | None
    used_by: str


def page(connection: Connection, after: str, limit: int) -> list[ListedJoinToken]:
    return [ListedJoinToken(*row) for row in connection.execute(PAGE, {"after": after, "limit": limit})]


def revoke(connection: Connection, token_id: str) -> ListedJoinToken | None:
    """Ends a join token that was not used yet."""
    return read_row(ListedJoinToken, connection.execute(REVOKE, {"id": token_id}))
