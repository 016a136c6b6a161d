"""The databases that tests are given are what they say."""

from __future__ import annotations

import psycopg
import pytest

from app.store.database import schema
from tests.support.postgres import GivenDatabase


def test_each_database_is_migrated_and_empty(each_database: GivenDatabase) -> None:
    with psycopg.connect(each_database.url, prepare_threshold=None) as connection:
        version = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        objects = connection.execute("SELECT count(*) FROM object").fetchone()
    assert version == (schema.KNOWN,)
    assert objects == (0,)


@pytest.mark.parametrize("each_database", ["pgbouncer"], indirect=True)
def test_a_pooler_does_not_deliver_notifications(each_database: GivenDatabase) -> None:
    with psycopg.connect(each_database.url, autocommit=True, prepare_threshold=None) as listener:
        listener.execute("LISTEN gpuwright")
        with psycopg.connect(each_database.direct_url, autocommit=True) as other:
            other.execute("NOTIFY gpuwright, 'x'")
        assert list(listener.notifies(timeout=0.3)) == []
