"""Pieces are kept once under what they say, and for as long as a plan or a cycle refers to them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from app.store.database import lease
from app.store.database.database import Database
from app.store.plans import pieces, plans, retention
from app.store.plans.plans import Overtaken, PlanDraft


class Time:
    """The database's, as the test sets it."""

    def __init__(self) -> None:
        self.now = datetime(2026, 6, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def database(database_url: str, time: Time) -> Iterator[Database]:
    made = Database(database_url, direct=True, moment=time)
    made.write(lambda c: lease.take(c, "a", 1e9))
    yield made
    made.close()


def count(database: Database) -> int:
    return int(database.read(lambda c: c.execute(text("SELECT count(*) FROM piece")).scalar_one()))


def drafted(base: int = 0, state: str = "rolling", body: bytes = b"plan") -> PlanDraft:
    return PlanDraft("full", state, body, b"desired", [b"world", b"nodes"], base=base)


def record(database: Database, draft: PlanDraft, epoch: int = 1) -> int | None:
    return database.write(lambda c: plans.record(c, epoch, draft))


def test_the_same_is_kept_once_and_comes_back_as_it_was(database: Database) -> None:
    first = database.write(lambda c: pieces.put(c, [b"one", b"two", b"one"]))
    again = database.write(lambda c: pieces.put(c, [b"two"]))
    assert first[0] == first[2]
    assert again == [first[1]]
    assert count(database) == 2
    found = database.read(lambda c: pieces.get(c, first))
    assert [found[digest] for digest in first] == [b"one", b"two", b"one"]


def test_what_nothing_refers_to_goes_after_an_hour_and_what_a_plan_needs_stays(database: Database, time: Time) -> None:
    database.write(lambda c: pieces.put(c, [b"nobody's"]))
    record(database, drafted())
    database.write(lambda c: plans.record_cycle(c, 1, "crashed", snapshot=[b"a cycle's"]))
    assert database.write(pieces.prune) == 0
    time.now += timedelta(hours=2)
    assert database.write(pieces.prune) == 1
    assert count(database) == 5


def test_a_plan_that_follows_from_another_than_the_one_in_force_is_not_recorded(database: Database) -> None:
    first = record(database, drafted())
    with pytest.raises(Overtaken):
        record(database, drafted(base=0))
    second = record(database, drafted(base=first or 0, body=b"another"))
    assert second == (first or 0) + 1
    found = database.read(plans.read_plan_in_force)
    assert found is not None
    assert (found.generation, found.body) == (second, pieces.content_hash(b"another"))


def test_an_old_epoch_records_nothing(database: Database) -> None:
    database.write(lambda c: lease.release(c, "a"))
    database.write(lambda c: lease.take(c, "b", 10.0))
    assert record(database, drafted(), epoch=1) is None
    assert not database.write(lambda c: plans.record_cycle(c, 1, "solved"))
    assert database.read(plans.read_plan_in_force) is None
    assert count(database) == 0


def test_what_is_only_shown_ends_no_rollout(database: Database) -> None:
    first = record(database, drafted()) or 0
    record(database, drafted(base=first, state="advisory"))
    found = database.read(plans.read_plan_in_force)
    assert found is not None
    assert (found.generation, found.state) == (first, "rolling")


def test_old_plans_go_and_the_one_in_force_stays(database: Database, time: Time) -> None:
    first = record(database, drafted()) or 0
    second = record(database, drafted(base=first, body=b"newer")) or 0
    time.now += timedelta(days=60)
    assert database.write(lambda c: retention.forget(c, 30.0, 1e12, 100)) > 0
    assert database.read(lambda c: plans.read_row(c, first)) is None
    assert database.read(lambda c: plans.read_row(c, second)) is not None
    found = database.read(plans.read_plan_in_force)
    assert found is not None
    assert found.body == pieces.content_hash(b"newer")
