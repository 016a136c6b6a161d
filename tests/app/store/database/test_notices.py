"""Notices: woken by notifications, by the table where they do not arrive, and again after the database was away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import Event

import psycopg
import pytest
from sqlalchemy import text

from app.store.database import versions
from app.store.database.database import Database
from app.store.database.notices import Notices
from app.store.database.urls import libpq_url
from tests.support.patience import patience, until
from tests.support.postgres import GivenDatabase


@pytest.fixture
def notices(each_database: GivenDatabase) -> Iterator[Notices]:
    started = Notices(libpq_url(each_database.url), listen=True)
    started.start()
    yield started
    started.stop()


def publish(given: GivenDatabase, name: str = "object", announce: bool = True) -> int:
    database = Database(given.url, pool_size=1)

    def advance(connection):  # type: ignore[no-untyped-def]
        value = versions.lock(connection, name) + 1
        if announce:
            versions.advance(connection, name, value)
        else:
            connection.execute(text("UPDATE version SET value = :v WHERE name = :n"), {"v": value, "n": name})
        return value

    try:
        return int(database.write(advance))
    finally:
        database.close()


@pytest.mark.slow
@pytest.mark.parametrize("announce", [True, False])
def test_who_waits_is_woken(each_database: GivenDatabase, notices: Notices, announce: bool) -> None:
    async def wait() -> int:
        waiting = asyncio.create_task(notices.wait("object", notices.current("object"), 30))
        await asyncio.sleep(0)
        await asyncio.to_thread(publish, each_database, "object", announce)
        return await waiting

    assert asyncio.run(wait()) == 1
    assert notices.current("object") == 1


@pytest.mark.slow
def test_a_version_that_is_there_already_is_not_waited_for(each_database: GivenDatabase, notices: Notices) -> None:
    version = publish(each_database)
    assert asyncio.run(notices.wait("object", version - 1, 30)) == version


def test_time_runs_out(notices: Notices) -> None:
    assert asyncio.run(notices.wait("object", 5, 0.01)) <= 5


@pytest.mark.slow
def test_streams_do_not_wake_each_other(each_database: GivenDatabase, notices: Notices) -> None:
    called: dict[str, Event] = {name: Event() for name in ("object", "token")}
    for name, event in called.items():
        notices.on_change(name, lambda version, event=event: version and event.set())  # type: ignore[misc]
    publish(each_database, "token")
    assert called["token"].wait(patience())
    assert not called["object"].is_set()


@pytest.mark.slow
def test_what_a_notification_says_is_no_version(each_database: GivenDatabase, notices: Notices) -> None:
    """Any role of the database may send one, also a tenant's that only reads."""
    before = notices.current("object")
    with psycopg.connect(libpq_url(each_database.direct_url), autocommit=True) as stranger:
        for said in ("object:999999999999", "object:" + "9" * 5000, "assignment:-1", ""):
            stranger.execute("SELECT pg_notify('gpuwright', %s)", [said])
    assert asyncio.run(notices.wait("object", before, 2)) == before
    version = publish(each_database)
    assert asyncio.run(notices.wait("object", before, 30)) == version


@pytest.mark.slow
def test_a_failing_callback_stops_nothing(each_database: GivenDatabase, notices: Notices) -> None:
    reached = Event()

    def fail(_version: int) -> None:
        reached.set()
        raise RuntimeError("the callback's own fault")

    notices.on_change("object", fail)
    for _ in range(2):
        version = publish(each_database)
        assert asyncio.run(notices.wait("object", version - 1, 30)) == version
    assert reached.is_set()


@pytest.mark.slow
def test_after_a_lost_connection_it_goes_on(each_database: GivenDatabase, notices: Notices) -> None:
    first = publish(each_database)
    assert asyncio.run(notices.wait("object", first - 1, 30)) == first
    with psycopg.connect(each_database.direct_url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
    second = publish(each_database)
    assert asyncio.run(notices.wait("object", second - 1, 30)) == second


@pytest.mark.slow
def test_notifications_are_known_to_arrive_or_not(each_database: GivenDatabase, notices: Notices) -> None:
    """However late the first notification comes: a slow start is no reason to poll for good."""
    version = publish(each_database)
    asyncio.run(notices.wait("object", version - 1, 30))
    if each_database.direct:
        until(lambda: notices.listening, "a notification arrived")
    else:
        assert not notices.listening


def test_stopping_lets_everybody_go(notices: Notices) -> None:
    async def wait() -> int:
        waiting = asyncio.create_task(notices.wait("object", 99, 60))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(notices.stop)
        return await waiting

    assert asyncio.run(wait()) < 99


def test_a_database_that_is_away_is_waited_for() -> None:
    nobody = Notices("postgresql://gpuwright@127.0.0.1:9/gpuwright", listen=True)
    nobody.start()
    assert asyncio.run(nobody.wait("object", 0, 0.2)) == 0
    nobody.stop()
