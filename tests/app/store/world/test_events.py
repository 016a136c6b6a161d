"""Events are kept once an hour each, counted, found by what they are about, and forgotten with age."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, TextClause, text

from app.control.domain.events import Reason, event_of
from app.store.database.database import Database
from app.store.world import events
from app.store.world.events import EventFilter
from tests.support.patience import until

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    database = Database(database_url, pool_size=1, direct=True)
    with database.engine.connect() as connection:
        yield connection
    database.close()


def at(connection: Connection, moment: datetime) -> Connection:
    connection.execute(text("SELECT set_config('gpuwright.moment', :moment, false)"), {"moment": moment.isoformat()})
    return connection


def unserved(rate: float, service: str = "shop/search") -> events.NewEvent:
    return event_of(Reason.UNSERVED, f"{rate:g} requests a second", kind="Service", name=service)


def test_the_same_again_within_an_hour_is_counted_and_its_newest_words_are_kept(connection: Connection) -> None:
    for minute, rate in ((0, 40.0), (10, 50.0), (59, 60.0)):
        events.record(at(connection, NOON + timedelta(minutes=minute)), [unserved(rate)])
    [kept] = events.recent(connection)
    assert (kept.times, kept.message) == (3, "60 requests a second")
    assert (kept.at, kept.last_at) == (NOON, NOON + timedelta(minutes=59))
    assert (kept.tenant, kept.name, kept.severity) == ("shop", "search", "warning")


def test_after_an_hour_the_same_is_an_event_of_its_own(connection: Connection) -> None:
    for minute in (0, 61):
        events.record(at(connection, NOON + timedelta(minutes=minute)), [unserved(40.0)])
    assert [one.times for one in events.recent(connection)] == [1, 1]


def test_one_batch_may_say_the_same_twice_and_other_things_beside(connection: Connection) -> None:
    batch = [
        unserved(1.0),
        unserved(2.0),
        unserved(3.0, "lab/chat"),
        event_of(Reason.STEP_FAILED, kind="Service", name="shop/search", about="i1"),
        event_of(Reason.STEP_FAILED, kind="Service", name="shop/search", about="i2"),
    ]
    events.record(at(connection, NOON), batch)
    assert sorted((one.name, one.reason, one.times) for one in events.recent(connection)) == [
        ("chat", "unserved", 1),
        ("search", "step_failed", 1),
        ("search", "step_failed", 1),
        ("search", "unserved", 2),
    ]


def test_events_are_found_by_what_they_are_about_and_page_backwards(connection: Connection) -> None:
    at(connection, NOON)
    events.record(connection, [unserved(1.0), unserved(1.0, "lab/chat")])
    events.record(connection, [event_of(Reason.NODE_LOST, kind="Node", name="node-1", generation=7)])
    assert [one.name for one in events.recent(connection, EventFilter(tenant="lab"))] == ["chat"]
    assert [one.name for one in events.recent(connection, EventFilter(severities=["alarm"]))] == ["node-1"]
    assert [one.reason for one in events.recent(connection, EventFilter(kind="Node", generation=7))] == ["node_lost"]
    assert [one.name for one in events.recent(connection, EventFilter(reasons=["unserved"], tenant="shop"))] == [
        "search"
    ]
    newest = events.recent(connection, limit=1)[0]
    older = events.recent(connection, EventFilter(before=newest.id))
    assert len(older) == 2
    assert all(one.id < newest.id for one in older)


def test_what_happened_last_comes_first_and_a_page_goes_on_where_the_one_before_ended(connection: Connection) -> None:
    for minute, service in enumerate(("shop/a", "shop/b", "shop/c", "shop/d")):
        events.record(at(connection, NOON + timedelta(minutes=minute)), [unserved(1.0, service)])
    first = events.recent(connection, limit=2)
    assert [event.name for event in first] == ["d", "c"]
    events.record(at(connection, NOON + timedelta(minutes=30)), [unserved(2.0, "shop/a"), unserved(2.0, "shop/c")])
    assert {event.name for event in events.recent(connection, limit=2)} == {"a", "c"}, "they have just happened again"
    rest = events.recent(connection, EventFilter(before=first[-1].id))
    assert [event.name for event in rest] == ["b"], "neither those that moved to the front nor the first page again"
    assert len(events.recent(connection)) == 4


def test_words_are_searched_in_the_newest_events_however_often_those_have_happened(connection: Connection) -> None:
    events.record(at(connection, NOON), [unserved(1.0, "shop/old"), unserved(1.0, "shop/often")])
    connection.execute(text(f"SELECT setval(pg_get_serial_sequence('event', 'id'), {2 * events.MOST_SEARCHED})"))
    events.record(connection, [unserved(2.0, "shop/often")])
    assert [event.name for event in events.recent(connection, EventFilter(text="shop/"))] == ["often", "old"]


def test_the_same_recorded_by_two_at_once_is_counted_twice(database_url: str) -> None:
    database = Database(database_url, pool_size=3, direct=True)
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    database.write(lambda connection: events.record(connection, [unserved(1.0)]))
    with ThreadPoolExecutor() as threads, database.engine.begin() as first:
        events.record(first, [unserved(2.0)])
        second = threads.submit(database.write, lambda connection: events.record(connection, [unserved(3.0)]))
        until(lambda: database.read(lambda c: c.execute(text(sql)).scalar_one()) == 1, "it waits for the row")
        first.commit()
        second.result()
    assert [event.times for event in database.read(events.recent)] == [3]
    database.close()


def test_old_events_go_a_portion_at_a_time(connection: Connection) -> None:
    events.record(at(connection, NOON), [unserved(1.0, f"shop/s-{n}") for n in range(5)])
    events.record(at(connection, NOON + timedelta(days=9)), [unserved(1.0, "shop/s-0")])
    at(connection, NOON + timedelta(days=15))
    assert [events.prune(connection, 14.0, 3), events.prune(connection, 14.0, 3)] == [3, 2]
    assert [one.name for one in events.recent(connection)] == ["s-0"]


@pytest.mark.slow
def test_events_are_found_by_index_among_many(connection: Connection) -> None:
    connection.execute(
        text(
            "INSERT INTO event (at, last_at, reason, kind, tenant, name, message, fingerprint)"
            " SELECT moment() - n * interval '1 minute', moment() - n * interval '1 minute', 'unserved', 'Service',"
            " 'tenant-' || n % 50, 's-' || n % 500, '', decode(lpad(to_hex(n % 5000), 32, '0'), 'hex')"
            " FROM generate_series(1, 50000) AS n"
        )
    )
    connection.execute(text("ANALYZE event"))

    def plan(statement: TextClause, **values: object) -> str:
        rows = connection.execute(text(f"EXPLAIN {statement.text}"), values)
        return "\n".join(row[0] for row in rows)

    of_one = {"kind": "Service", "tenant": "tenant-7", "name": "s-7"}
    told = '[{"fingerprint": "00000000000000000000000000000007", "times": 1}]'
    for found in (
        plan(events.recent_statement({}), limit=100),
        plan(events.recent_statement(of_one), **of_one, limit=100),
        plan(events.RECORD, events=told),
        plan(events.PRUNE, days=30.0, limit=100),
    ):
        assert "Seq Scan on event" not in found, found
