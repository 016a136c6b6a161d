"""A plan whose place another one took still says why it was made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.store.database import lease
from app.store.database.database import Database
from app.store.plans import plan_reads, plans
from app.store.plans.plans import PlanDraft


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    made = Database(database_url, direct=True)
    made.write(lambda c: lease.take(c, "a", 1e9))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("state", "reason", "message", "after", "kept"),
    [
        ("rolling", "cycle", "it saves 0.50 an hour", "superseded", "it saves 0.50 an hour"),
        ("rolling", "cycle", "", "superseded", "plan 2 took its place"),
        ("rolling", "fleet_applied", "", "superseded", ""),
        ("proposed", "cycle", "it saves 0.50 an hour", "expired", "it saves 0.50 an hour"),
        ("proposed", "cycle", "", "expired", "plan 2 took its place"),
    ],
)
def test_another_plan_is_named_only_where_nothing_says_why(
    database: Database, state: str, reason: str, message: str, after: str, kept: str
) -> None:
    def record(base: int, state: str, message: str) -> int | None:
        draft = PlanDraft("full", state, b"plan", b"desired", [], reason=reason, base=base, message=message)
        return database.write(lambda c: plans.record(c, 1, draft))

    assert record(0, state, message) == 1
    assert record(1 if state == "rolling" else 0, "rolling", "another reason") == 2
    row = database.read(lambda c: plan_reads.read_head(c, 1))
    assert row and (row["state"], row["message"]) == (after, kept)
