"""Transactions are retried when Postgres says so, and never applied twice when a connection dies."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import Connection, text

from app.settings import SettingsError
from app.store.database.database import Database, Unavailable, statement
from app.store.database.urls import libpq_url
from tests.support.patience import patience
from tests.support.postgres import GivenDatabase

COUNT = text("SELECT count(*) FROM mark")
MARK = text("INSERT INTO mark VALUES (:value)")


@pytest.fixture
def database(each_database: GivenDatabase) -> Iterator[Database]:
    database = Database(each_database.url, pool_size=4, direct=each_database.direct)
    with psycopg.connect(libpq_url(each_database.direct_url)) as connection:
        connection.execute("CREATE TABLE mark (value int)")
    yield database
    database.close()


def marks(database: Database) -> int:
    return int(database.read(lambda connection: connection.scalar(COUNT)) or 0)


def test_a_write_that_raises_leaves_nothing(database: Database) -> None:
    def half(connection: Connection) -> None:
        connection.execute(MARK, {"value": 1})
        raise KeyError("half-way")

    with pytest.raises(KeyError):
        database.write(half)
    assert marks(database) == 0


def test_everything_has_a_time_limit_also_behind_a_pooler(database: Database) -> None:
    def limits(connection: Connection) -> list[str]:
        names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        return [str(connection.scalar(text(f"SHOW {name}"))) for name in names]

    for use in (database.read, database.write, database.repeatable):
        assert use(limits) == ["30s", "10s", "15s"]


def test_a_connection_killed_in_mid_transaction_is_retried_once_it_is_back(database: Database) -> None:
    attempts: list[int] = []

    def write(connection: Connection) -> None:
        connection.execute(MARK, {"value": 1})
        attempts.append(int(connection.scalar(text("SELECT pg_backend_pid()")) or 0))
        if len(attempts) == 1:
            kill(database, attempts[0])
            connection.execute(MARK, {"value": 2})

    database.write(write)
    assert len(attempts) == 2
    assert marks(database) == 1


def test_case_5_a_commit_whose_answer_is_lost_happens_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit reaches Postgres and its answer does not reach us: we ask, and do not repeat."""
    attempts = lose_the_answer(database, monkeypatch, after_commit=True)

    def write(connection: Connection) -> str:
        connection.execute(MARK, {"value": 1})
        return "written"

    assert database.write(write) == "written"
    assert attempts == [1]
    assert marks(database) == 1


def test_a_commit_that_never_arrived_is_run_again(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = lose_the_answer(database, monkeypatch, after_commit=False)
    database.write(lambda connection: connection.execute(MARK, {"value": 1}))
    assert attempts == [1]
    assert marks(database) == 1


def lose_the_answer(database: Database, monkeypatch: pytest.MonkeyPatch, *, after_commit: bool) -> list[int]:
    """Cut the first connection that commits, just after or just before its COMMIT reaches the server."""
    lost: list[int] = []
    commit = database.engine.dialect.do_commit

    def cut(dbapi_connection: object) -> None:
        if lost:
            commit(dbapi_connection)  # type: ignore[arg-type]
            return
        lost.append(1)
        driver: psycopg.Connection = dbapi_connection.driver_connection  # type: ignore[attr-defined]
        if after_commit:
            commit(dbapi_connection)  # type: ignore[arg-type]
        driver.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(database.engine.dialect, "do_commit", cut)
    return lost


def test_case_6_deadlocked_transactions_both_happen(database: Database) -> None:
    database.write(lambda c: c.execute(text("INSERT INTO mark VALUES (1), (2)")))
    both_hold = threading.Barrier(2, timeout=patience())
    failures: list[Exception] = []

    def cross(first: int, second: int) -> None:
        met: list[bool] = []

        def write(connection: Connection) -> None:
            lock = text("UPDATE mark SET value = value WHERE value = :value")
            connection.execute(lock, {"value": first})
            if not met:
                met.append(True)
                both_hold.wait()
            connection.execute(lock, {"value": second})
            connection.execute(MARK, {"value": 10 + first})

        try:
            database.write(write)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=cross, args=pair) for pair in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience())
    assert not failures
    assert marks(database) == 4


def test_case_6_a_serialization_failure_is_retried(database: Database) -> None:
    attempts: list[int] = []

    def write(connection: Connection) -> None:
        attempts.append(1)
        connection.execute(MARK, {"value": len(attempts)})
        if len(attempts) < 3:
            connection.execute(text("DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$"))

    database.write(write)
    assert len(attempts) == 3
    assert marks(database) == 1


def test_a_full_disk_is_said_as_unavailable_and_not_retried(database: Database) -> None:
    attempts: list[int] = []

    def write(connection: Connection) -> None:
        attempts.append(1)
        connection.execute(text("DO $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END $$"))

    with pytest.raises(Unavailable, match="disk is full"):
        database.write(write)
    assert len(attempts) == 1


def test_a_stalled_transaction_is_bounded_on_every_kind_of_connection(database: Database) -> None:
    def guards(connection: Connection) -> list[str]:
        names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        return [str(connection.scalar(text(f"SHOW {name}"))) for name in names]

    assert database.write(guards) == ["30s", "10s", "15s"]


def test_a_database_that_is_away_is_unavailable() -> None:
    database = Database("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(Unavailable, match="cannot be reached"):
        database.read(lambda connection: connection.execute(statement("one", "SELECT 1")))


def test_another_database_than_postgres_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="must begin with postgresql://"):
        Database("sqlite:///x.db")


def kill(database: Database, pid: int) -> None:
    with database.engine.connect() as other:
        other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
        other.commit()
