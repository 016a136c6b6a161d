"""Who reads reports reads them before, after and again before savings have what was held."""

from __future__ import annotations

import secrets

import psycopg
import pytest
from psycopg import sql

from app.store.access import readers
from app.store.access.readers import FLEET
from app.store.database import schema
from app.store.database.database import Database
from tests.report.test_isolation import as_role
from tests.support.postgres import DatabaseServer

VIEWS = ("savings", "savings_daily", "savings_monthly")


def columns(url: str) -> list[list[str]]:
    with psycopg.connect(url) as connection:
        found = [connection.execute(f"SELECT * FROM report.{view}".encode()).description for view in VIEWS]
    return [[column.name for column in described or ()] for described in found]


@pytest.mark.slow
def test_readers_keep_their_rights_forward_and_back(postgres: DatabaseServer, empty_database_url: str) -> None:
    schema.migrate(empty_database_url, "0012")
    role = f"finance_{secrets.token_hex(4)}"
    database = Database(empty_database_url, pool_size=1)
    with psycopg.connect(postgres.server.admin_conninfo, autocommit=True) as admin:
        url = as_role(empty_database_url, role, readers.create_role(admin, role))
        database.write(lambda connection: readers.grant(connection, role, FLEET))
        before = columns(url)
        schema.migrate(empty_database_url, "0013")
        assert columns(url) == [[*names, "held_cost"] for names in before]
        schema.migrate(empty_database_url, "0012")
        assert columns(url) == before
        database.write(lambda connection: readers.revoke(connection, role))
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
    database.close()
