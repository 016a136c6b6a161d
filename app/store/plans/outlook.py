"""The planner's advice besides its plan: nodes to give back, GPUs to rent. Only the newest of each is kept."""

from __future__ import annotations

from typing import NotRequired, TypedDict

import msgspec
from sqlalchemy import Connection

from app.store.database.database import statement
from solvers.planning.wire import ReleasableNodeWire

MONEY = "money"

PUT = statement(
    "put_outlook",
    """
    INSERT INTO outlook AS known (name, at, body) VALUES (:name, moment(), CAST(:body AS jsonb))
    ON CONFLICT (name) DO UPDATE SET at = excluded.at, body = excluded.body WHERE known.body <> excluded.body
    """,
)
GET = statement("outlook", "SELECT body FROM outlook WHERE name = :name")


class RentingAdviceWire(TypedDict):
    """GPUs that would serve what is unserved."""

    gpus: dict[str, int]
    perHour: float
    serves: list[str]
    inPart: list[str]
    leaves: list[str]
    message: str


class MoneyOutlookWire(TypedDict):
    """Price of the GPUs that hold services, nodes to give back, GPUs worth renting; empty before the first plan."""

    heldPerHour: NotRequired[float]
    releasable: NotRequired[list[ReleasableNodeWire]]
    renting: NotRequired[RentingAdviceWire]


def put(connection: Connection, name: str, body: MoneyOutlookWire) -> None:
    """Stores the advice if it has changed."""
    connection.execute(PUT, {"name": name, "body": msgspec.json.encode(body).decode()})


def get(connection: Connection, name: str) -> MoneyOutlookWire:
    """Returns the newest advice; empty if there is none yet."""
    found: MoneyOutlookWire | None = connection.execute(GET, {"name": name}).scalar()
    if found is None:
        return {}
    return found
