"""Console sessions and one-time links, stored in the table of tokens with the token that they come from.

Each ends with that token, whatever ends it. Their secrets are hashed differently from those of tokens, so the API
accepts none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.store.database.database import SqlRow, read_row, statement

# The API accepts ASCII labels only, so no token made there has one of these.
SESSION = "console · session"
LINK = "console · link"
MOST_OF_A_TOKEN = 16  # live sessions; one more ends the oldest

_IS_LIVE = "{0}.revoked_at IS NULL AND ({0}.expires_at IS NULL OR {0}.expires_at > now())"
LIVE = statement(
    "live_session",
    f"""
    SELECT own.id, own.secret_hash, own.scope, own.tenant, own.expires_at, own.created_by
    FROM token AS own JOIN token AS parent ON parent.id = own.created_by
    WHERE own.id = :id AND own.label = '{SESSION}' AND {_IS_LIVE.format("own")} AND {_IS_LIVE.format("parent")}
    """,
)
# A session may do what its token may, but only by the forms of the console: the API does not accept it. The lock makes
# sign-ins with one token follow each other, so that each of them counts the sessions of those before.
_ROW = f"""
    INSERT INTO token (id, secret_hash, scope, tenant, label, created_by, expires_at)
    SELECT :id, :secret_hash, parent.scope, parent.tenant, :label, parent.id,
        least(parent.expires_at, now() + make_interval(secs => CAST(:seconds AS double precision)))
    FROM token AS parent {{also}}
    WHERE parent.id = {{parent}} AND parent.scope IN ('viewer', 'operator', 'admin') AND {_IS_LIVE.format("parent")}
    FOR NO KEY UPDATE OF parent
    RETURNING id, secret_hash, scope, tenant, expires_at, created_by
"""
OPEN = statement("open_session", _ROW.format(also="", parent=":parent"))
# If the same link comes twice at once, the second finds it used.
REDEEM = statement(
    "redeem_console_link",
    f"""
    WITH link AS (
        UPDATE token SET revoked_at = now(), last_used_at = now()
        WHERE id = :link AND secret_hash = :link_hash AND label = '{LINK}' AND {_IS_LIVE.format("token")}
        RETURNING created_by
    ) {_ROW.format(also=", link", parent="link.created_by")}
    """,
)
CLOSE = statement(
    "close_session",
    f"""
    UPDATE token SET revoked_at = coalesce(revoked_at, now())
    WHERE id = :id AND label = '{SESSION}'
        OR created_by LIKE 'person:%/console'
            AND id = (SELECT created_by FROM token WHERE id = :id AND label = '{SESSION}')
    """,
)
END_OLDEST = statement(
    "end_oldest_sessions",
    f"""
    UPDATE token SET revoked_at = now() WHERE id IN (
        SELECT id FROM token
        WHERE created_by = :parent AND label = '{SESSION}' AND {_IS_LIVE.format("token")}
        ORDER BY created_at DESC, id OFFSET :most)
    """,
)
FORGET = statement(
    "forget_sessions",
    f"""
    DELETE FROM token WHERE id IN (
        SELECT id FROM token
        WHERE label IN ('{SESSION}', '{LINK}') AND least(expires_at, revoked_at) < now() - interval '1 day'
        ORDER BY id LIMIT :limit)
    """,
)


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A live session, without its secret."""

    id: str
    secret_hash: bytes
    scope: str
    tenant: str
    expires_at: datetime
    parent: str  # the token that opened it


def find_live(connection: Connection, session_id: str) -> SessionRow | None:
    """Returns the session, unless it or its token has ended by the database's clock."""
    return read_row(SessionRow, connection.execute(LIVE, {"id": session_id}))


def open_for(
    connection: Connection, parent: str, session_id: str, secret_hash: bytes, seconds: float
) -> SessionRow | None:
    """Opens a session for the holder of a token; None if the token has ended or may not read."""
    values = {"parent": parent, "id": session_id, "secret_hash": secret_hash, "seconds": seconds, "label": SESSION}
    return _open(connection, connection.execute(OPEN, values).one_or_none())


def store_link(connection: Connection, parent: str, link_id: str, secret_hash: bytes, seconds: float) -> bool:
    """Stores a link with which the holder of a token signs in once; False if the token has ended or may not read."""
    values = {"parent": parent, "id": link_id, "secret_hash": secret_hash, "seconds": seconds, "label": LINK}
    return connection.execute(OPEN, values).one_or_none() is not None


def redeem(
    connection: Connection, link_id: str, link_hash: bytes, session_id: str, secret_hash: bytes, seconds: float
) -> SessionRow | None:
    """Uses a link up and opens a session for it; None if the link was used or has ended."""
    values = {
        "link": link_id, "link_hash": link_hash, "id": session_id, "secret_hash": secret_hash, "seconds": seconds,
        "label": SESSION,
    }  # fmt: skip
    return _open(connection, connection.execute(REDEEM, values).one_or_none())


def _open(connection: Connection, row: SqlRow | None) -> SessionRow | None:
    """Returns the new session, and ends the oldest sessions of its token that are too many."""
    if row is None:
        return None
    opened = SessionRow(row.id, row.secret_hash, row.scope, row.tenant, row.expires_at, row.created_by)
    connection.execute(END_OLDEST, {"parent": opened.parent, "most": MOST_OF_A_TOKEN})
    return opened


def close(connection: Connection, session_id: str) -> None:
    """Ends the session; with it the token that a sign-in at the provider made for the console alone."""
    connection.execute(CLOSE, {"id": session_id})


def forget(connection: Connection, limit: int) -> int:
    """Deletes up to `limit` sessions and links that ended a day ago; returns how many."""
    return connection.execute(FORGET, {"limit": limit}).rowcount
