"""What time it is can be said from outside: then what is stored, and what is late, goes by that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, text

from app.store.database import clock
from app.store.database.database import Database

pytestmark = pytest.mark.slow

THEN = datetime(2031, 5, 1, 12, 0, tzinfo=UTC)


def test_without_a_moment_the_time_is_the_databases(database_url: str) -> None:
    database = Database(database_url, pool_size=1, direct=True)
    assert abs(database.read(clock.now) - datetime.now(UTC)) < timedelta(minutes=5)
    database.close()


def test_a_moment_given_is_the_time_in_every_kind_of_transaction(database_url: str) -> None:
    said = [THEN]
    database = Database(database_url, pool_size=2, direct=True, moment=lambda: said[0])
    for step, kind in enumerate((database.read, database.write, database.repeatable)):
        said[0] = THEN + timedelta(seconds=step)
        assert kind(clock.now) == said[0]
    database.close()


def test_what_one_simulation_says_others_on_the_same_database_do_not_hear(database_url: str) -> None:
    simulated = Database(database_url, pool_size=1, direct=True, moment=lambda: THEN)
    real = Database(database_url, pool_size=1, direct=True)
    assert simulated.read(clock.now) == THEN
    assert real.read(clock.now) != THEN
    for database in (simulated, real):
        database.close()


def test_a_transaction_that_is_taken_back_leaves_the_right_time_behind(database_url: str) -> None:
    said = [THEN]
    database = Database(database_url, pool_size=1, direct=True, moment=lambda: said[0])
    assert database.read(clock.now) == THEN
    said[0] = THEN + timedelta(seconds=1)
    for kind in (database.read, database.write):
        with pytest.raises(LookupError):
            kind(fail)
        assert database.read(clock.now) == said[0]
    database.close()


def test_views_of_reports_and_statements_without_values_go_by_that_time_too(database_url: str) -> None:
    times = [THEN, THEN + timedelta(days=40)]
    database = Database(database_url, pool_size=1, direct=True, moment=lambda: times[0])
    for _ in range(2):
        for kind in (database.read, database.write, database.repeatable):
            assert kind(lambda c: c.exec_driver_sql("SELECT moment()").scalar()) == times[0]
            assert kind(lambda c: c.execute(text("SELECT max(day) FROM report.days")).scalar()) == times[0].date()
        del times[:-1]
    database.close()


def fail(connection: Connection) -> None:
    assert clock.now(connection) != THEN
    raise LookupError
