"""Failed steps count for hours, and their GPUs for minutes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from app.store.database import lease
from app.store.database.database import Database
from app.store.fleet import planner_reads
from app.store.plans import plans
from app.store.plans.plans import PLACE_MINUTES, PlanDraft, RecentFailures

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOURS = 2.0
HERE, THERE = ("n1", 0), ("n1", 1)
Step = tuple[str, tuple[str, int] | None, float]  # owner, GPU, minutes ago


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    made = Database(database_url, direct=True, moment=lambda: NOON)
    made.write(lambda c: lease.take(c, "a", 1e9))
    yield made
    made.close()


def note(database: Database, *failed: Step, after: int = 0) -> int:
    """Records a plan after another one, whose rollout stopped by these steps."""
    steps = [
        {"owner": owner, "place": place, "at": (NOON - timedelta(minutes=minutes)).isoformat()}
        for owner, place, minutes in failed
    ]
    draft = PlanDraft("full", "rolling", b"plan", b"desired", [], base=after)
    generation = database.write(lambda c: plans.record(c, 1, draft))
    assert generation
    assert database.write(lambda c: plans.settle(c, generation, "rolling", "stopped", {"failed": steps}))
    return generation


def test_failures_of_several_plans_count_together_and_their_gpus_are_named_once(database: Database) -> None:
    first = note(database, ("shop/a", HERE, 8), ("shop/b", None, 8))
    note(database, ("shop/a", HERE, 1), ("shop/a", THERE, 1), after=first)
    found = {
        failures.owner: failures for failures in database.read(lambda c: planner_reads.read_cycle(c, 0, HOURS).failures)
    }
    assert found == {
        "shop/a": RecentFailures("shop/a", 2, NOON - timedelta(minutes=1), (HERE, THERE)),
        "shop/b": RecentFailures("shop/b", 1, NOON - timedelta(minutes=8), (None,)),
    }


def test_a_failure_is_forgotten_after_hours_and_its_gpu_after_minutes(database: Database) -> None:
    first = note(database, ("shop/a", HERE, 60 * HOURS + 1))
    second = note(database, ("shop/a", HERE, PLACE_MINUTES + 1), after=first)
    note(database, ("shop/a", THERE, PLACE_MINUTES - 1), after=second)
    (found,) = database.read(lambda c: planner_reads.read_cycle(c, 0, HOURS).failures)
    assert (found.times, found.places) == (2, (THERE,))
