"""The planner's advice besides its plan: nodes to give back, GPUs to rent. Only the newest of each is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection

from app.store.database.database import statement

MONEY = "money"

PUT = statement(
    "put_outlook",
    """
    INSERT INTO outlook AS known (name, at, body) VALUES (:name, moment(), CAST(:body AS jsonb))
    ON CONFLICT (name) DO UPDATE SET at = excluded.at, body = excluded.body WHERE known.body <> excluded.body
    """,
)
GET = statement("outlook", "SELECT body FROM outlook WHERE name = :name")


def put(connection: Connection, name: str, body: Mapping[str, Any]) -> None:
    """Stores the advice if it has changed."""
    connection.execute(PUT, {"name": name, "body": msgspec.json.encode(body).decode()})


def get(connection: Connection, name: str) -> dict[str, Any]:
    """Returns the newest advice; empty if there is none yet."""
    found: dict[str, Any] | None = connection.execute(GET, {"name": name}).scalar()
    return found or {}
