"""What waiting for more nodes of pools has cost, so that a planner that begins to lead goes on where the last ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
from sqlalchemy import Connection

from app.store.database.database import statement

PUT = statement(
    "put_rent_accounts",
    """
    INSERT INTO outlook (name, at, body) VALUES ('rent_accounts', moment(), CAST(:body AS jsonb))
    ON CONFLICT (name) DO UPDATE SET at = excluded.at, body = excluded.body
    """,
)
GET = statement(
    "rent_accounts", "SELECT body FROM outlook WHERE name = 'rent_accounts' AND at >= CAST(:since AS timestamptz)"
)


def put(connection: Connection, waited: Mapping[str, float]) -> None:
    """Stores what waiting has cost, by pool."""
    connection.execute(PUT, {"body": msgspec.json.encode(dict(waited)).decode()})


def get(connection: Connection, since: datetime) -> dict[str, float]:
    """Returns what waiting had cost, by pool, when a planner last counted; nothing if that was before `since`."""
    found: dict[str, float] | None = connection.execute(GET, {"since": since}).scalar()
    return found or {}
