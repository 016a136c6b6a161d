"""Leadership is a row on the database's time: one holds it, epochs rise with holders, generations with decisions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from app.store.database import lease
from app.store.database.database import Database

BEGAN = datetime(2026, 6, 1, tzinfo=UTC)


class Time:
    """The database's, as the test sets it."""

    def __init__(self) -> None:
        self.now = BEGAN

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def database(database_url: str, time: Time) -> Iterator[Database]:
    made = Database(database_url, direct=True, moment=time)
    yield made
    made.close()


def take(database: Database, holder: str) -> int | None:
    return database.write(lambda c: lease.take(c, holder, 10.0))


def test_the_first_to_ask_leads_and_the_second_stands_by(database: Database) -> None:
    assert take(database, "a") == 1
    assert take(database, "b") is None
    assert take(database, "a") == 1, "renewing is no new epoch"


def test_a_silent_leader_is_replaced_within_one_lease_under_a_new_epoch(database: Database, time: Time) -> None:
    take(database, "a")
    time.now += timedelta(seconds=9.9)
    assert take(database, "b") is None
    time.now += timedelta(seconds=0.2)
    assert take(database, "b") == 2
    assert take(database, "a") is None


def test_a_leader_that_was_paused_and_not_replaced_goes_on_under_its_epoch(database: Database, time: Time) -> None:
    take(database, "a")
    time.now += timedelta(hours=1)
    assert take(database, "a") == 1


@pytest.mark.slow
def test_who_steps_down_is_replaced_at_once(database: Database) -> None:
    take(database, "a")
    database.write(lambda c: lease.release(c, "b"))
    assert take(database, "b") is None, "nobody releases what another one holds"
    database.write(lambda c: lease.release(c, "a"))
    assert take(database, "b") == 2


def test_case_2_an_epoch_that_is_over_gets_no_generation(database: Database, time: Time) -> None:
    take(database, "a")
    assert database.write(lambda c: lease.next_generation(c, 1)) == 1
    time.now += timedelta(seconds=11)
    take(database, "b")
    assert database.write(lambda c: lease.next_generation(c, 1)) is None
    assert not database.write(lambda c: lease.is_newest(c, 1))
    assert database.write(lambda c: lease.next_generation(c, 2)) == 2, "generations go on over leaders"


def test_case_18_a_clock_that_goes_back_a_little_takes_the_lease_from_nobody(database: Database, time: Time) -> None:
    take(database, "a")
    time.now -= timedelta(seconds=9)
    assert take(database, "b") is None
    assert take(database, "a") == 1


def test_case_18_a_lease_of_times_to_come_binds_nobody_and_its_epoch_is_over(database: Database, time: Time) -> None:
    take(database, "a")
    time.now -= timedelta(hours=1)
    assert take(database, "b") == 2, "nobody waits an hour for a holder who may be dead"
    assert not database.write(lambda c: lease.is_newest(c, 1)), "and if it lives, nothing that it writes is kept"
    assert take(database, "a") is None


def test_who_leads_is_known_to_all(database: Database, time: Time) -> None:
    assert database.read(lease.current) is None
    take(database, "a")
    found = database.read(lease.current)
    assert found is not None
    assert (found.holder, found.epoch, found.held) == ("a", 1, True)
    time.now += timedelta(seconds=11)
    found = database.read(lease.current)
    assert found is not None
    assert not found.held
