"""Turns among replicas, in words that Postgres 15 understands: its numbers have no hexadecimal form."""

from __future__ import annotations

from datetime import UTC, datetime

from app.store.database import turns
from app.store.database.database import Database
from app.store.money import rollups
from tests.support.postgres import GivenDatabase


def test_a_turn_is_taken_by_one_at_a_time(each_database: GivenDatabase) -> None:
    database = Database(each_database.url, pool_size=2, direct=each_database.direct)
    try:
        assert database.write(
            lambda first: (
                turns.take(first, "sweep"),
                database.write(lambda second: (turns.take(second, "sweep"), turns.take(second, "prune"))),
            )
        ) == (True, (False, True))
        assert database.write(lambda later: turns.take(later, "sweep"))
    finally:
        database.close()


def test_rollups_take_turns_by_the_hour(each_database: GivenDatabase) -> None:
    database = Database(each_database.url, pool_size=1, direct=each_database.direct)
    hour = datetime(2026, 11, 21, 3, tzinfo=UTC)
    try:
        database.write(lambda connection: connection.execute(rollups.TAKE_TURNS, {"hour": hour}))
    finally:
        database.close()
