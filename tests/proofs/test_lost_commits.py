"""FAILURES 5: Postgres dies at COMMIT, forgets the transaction's id, and gives it out again to a stranger.

Asking for the outcome by that id then answers "committed" for a write that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import Connection, event, text

from app.embedded import EmbeddedPostgres
from app.store.database.database import Database, OutcomeUnknown
from tests.support.patience import until
from tests.support.postgres_crash import kill_postgres

pytestmark = pytest.mark.slow

MARK = text("INSERT INTO mark VALUES (7)")
STRANGERS = 20


@pytest.fixture(scope="module")
def postgres_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(tmp_path_factory.mktemp("crashing") / "data") as server:
        yield server


@pytest.fixture
def database(postgres_of_its_own: EmbeddedPostgres) -> Iterator[Database]:
    with psycopg.connect(postgres_of_its_own.url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS mark")
        connection.execute("CREATE TABLE mark (value int)")
    database = Database(postgres_of_its_own.url, direct=True)
    yield database
    database.close()


def crash_at_commit(database: Database, postgres: EmbeddedPostgres, strangers: int) -> None:
    """Kill Postgres when the first COMMIT is about to be sent; others then use the ids it forgot."""
    armed = [True]

    def recovered() -> bool:
        try:
            with psycopg.connect(postgres.url, autocommit=True) as connection:
                for _ in range(strangers):
                    connection.execute("INSERT INTO mark VALUES (0)")
        except psycopg.Error:
            return False
        return True

    @event.listens_for(database.engine, "commit")
    def crash(_connection: Connection) -> None:
        if armed:
            armed.clear()
            kill_postgres(postgres)
            until(recovered, "recovery of Postgres")


def marks(database: Database) -> int:
    return int(database.read(lambda c: c.scalar(text("SELECT count(*) FROM mark WHERE value = 7"))) or 0)


def test_case_5_a_strangers_transaction_is_not_taken_for_ours(
    database: Database, postgres_of_its_own: EmbeddedPostgres
) -> None:
    crash_at_commit(database, postgres_of_its_own, STRANGERS)
    with pytest.raises(OutcomeUnknown, match="unknown"):
        database.write(lambda connection: connection.execute(MARK) and None)
    assert marks(database) == 0


def test_a_write_that_finds_itself_is_run_again_instead_of_guessing(
    database: Database, postgres_of_its_own: EmbeddedPostgres
) -> None:
    """As every write under an Idempotency-Key does: it looks for the answer it gave."""
    crash_at_commit(database, postgres_of_its_own, STRANGERS)
    runs: list[int] = []

    def once(connection: Connection) -> str:
        runs.append(1)
        if not connection.scalar(text("SELECT count(*) FROM mark WHERE value = 7")):
            connection.execute(MARK)
        return "written"

    assert database.write(once, repeatable=True) == "written"
    assert (len(runs), marks(database)) == (2, 1)


def test_a_transaction_whose_id_is_unknown_is_run_again(
    database: Database, postgres_of_its_own: EmbeddedPostgres
) -> None:
    """Postgres says that the id lies in the future: it never happened, and waiting would make it a stranger's."""
    crash_at_commit(database, postgres_of_its_own, strangers=0)
    database.write(lambda connection: connection.execute(MARK) and None)
    assert marks(database) == 1
