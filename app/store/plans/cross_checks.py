"""What CP-SAT found of plans of small fleets, a column of each plan that was checked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, TypedDict

import msgspec
from sqlalchemy import Connection

from app.store.database.database import statement
from app.store.plans.plans import IS_IN_FORCE
from app.wire import MomentText

UNCHECKED = statement(
    "newest_plan_unchecked",
    f"""
    SELECT generation FROM (
        SELECT generation, lane, cross_check FROM plan WHERE {IS_IN_FORCE} ORDER BY generation DESC LIMIT 1) AS newest
    WHERE cross_check IS NULL AND lane = 'full'
    """,
)
KEEP = statement(
    "keep_cross_check",
    """
    UPDATE plan SET cross_check = CAST(:check AS jsonb) || jsonb_build_object('at', moment())
    WHERE generation = :generation
    """,
)
PlanCheckOutcome = Literal["same", "dearer", "unproved", "contradiction", "unchecked"]


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """What the plan costs an hour, hand-overs and jobs aside, and what any plan does at least, by CP-SAT."""

    outcome: PlanCheckOutcome
    message: str
    cost: float | None = None
    bound: float | None = None


class PlanCheckWire(TypedDict):
    """A comparison with the cheapest plan by CP-SAT: what the plan and any plan cost, hand-overs and jobs aside."""

    outcome: PlanCheckOutcome
    message: str
    cost: float | None
    bound: float | None
    at: MomentText


def find_unchecked(connection: Connection) -> int:
    """Returns the plan in force, if it was searched as a whole and not checked; 0 otherwise."""
    row = connection.execute(UNCHECKED).one_or_none()
    return int(row.generation) if row else 0


def keep(connection: Connection, generation: int, check: PlanCheck) -> None:
    """Stores what the check of a plan found."""
    connection.execute(KEEP, {"generation": generation, "check": msgspec.json.encode(asdict(check)).decode()})
