"""A node that lies about its usage, or breaks the ledger, hurts its own account only."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from sqlalchemy import text

from agents.contract.reports import Copy, UsageInterval
from app.ledger import accounting
from app.store.database.database import ATTEMPTS, Unavailable
from tests.app.ledger.town import Ledger, ledger, usage

pytestmark = pytest.mark.slow

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
QUARTER = 15 * MINUTE
HOUR = 4 * QUARTER
MICROSECOND = timedelta(microseconds=1)
MONEY = 4_000_000_000  # an hour of the GPU


@pytest.fixture
def town(database_url: str) -> Iterator[Ledger]:
    with ledger(database_url, NOON) as made:
        made.gpu_type(4.0)
        made.node("liar")
        made.node("node-2")
        made.assign("liar", usage("a", NOON, sm=100.0))
        made.assign("node-2", usage("b", NOON, sm=100.0))
        yield made


def claims(
    count: int, start: datetime, step: timedelta, lasts: timedelta | None, first: int = 0
) -> list[UsageInterval]:
    """Intervals of the liar's one instance."""
    found = []
    for number in range(first, first + count):
        begins = start + number * step
        interval = usage(f"x-{number}", begins, None if lasts is None else begins + lasts, sm=100.0)
        found.append(msgspec.structs.replace(interval, instance="i-a"))
    return found


def money(town: Ledger, node: str) -> dict[str, int]:
    """Who paid for the node's GPU."""
    sql = "SELECT kind, CAST(sum(nano) AS bigint) FROM allocation WHERE node = :node GROUP BY 1 HAVING sum(nano) <> 0"
    return dict(map(tuple, town.rows(sql, node=node)))


def hour_passes(town: Ledger) -> None:
    town.now = NOON + HOUR
    town.claim("liar")
    town.claim("node-2")
    town.passes(3 * MINUTE)
    town.account()


def stored(town: Ledger, node: str) -> int:
    return int(town.rows("SELECT count(*) FROM usage_interval WHERE node = :node", node=node)[0][0])


def store(town: Ledger, *intervals: UsageInterval, node: str = "liar") -> None:
    """Puts usage into the database as if no bound had been there."""
    rows = [
        {
            "node": node,
            "id": interval.id,
            "instance": interval.instance,
            "start": interval.started_at,
            "stop": interval.ended_at,
        }
        for interval in intervals
    ]
    sql = (
        "INSERT INTO usage_interval (id, node, instance, gpu, gpu_uuid, tenant, service, job, model, sm_percent,"
        " memory_gib, dedicated, started_at, ended_at, opened_at, closed_at, evidence) VALUES (:id, :node, :instance,"
        " 0, '', 'shop', 'search', '', '', 100, 1, false, :start, :stop, moment(), :stop, 'observed')"
    )
    town.database.write(lambda connection: connection.execute(text(sql), rows))


def test_case_17_thousands_of_overlapping_intervals_of_one_instance_stop_nobodys_account(town: Ledger) -> None:
    """Five reports as large as one may be, each beginning a microsecond after the other."""
    town.claim("node-2", usage("b", NOON, sm=100.0))
    for report in range(5):
        town.claim("liar", *claims(4096, NOON, MICROSECOND, None, 4096 * report))
    hour_passes(town)
    assert money(town, "node-2") == {"used": MONEY}
    assert money(town, "liar") == {"used": MONEY}, "its instance ran, and pays once"
    assert stored(town, "liar") <= 9


def test_case_17_each_interval_beyond_the_bounds_is_refused_by_name_and_the_others_are_stored(town: Ledger) -> None:
    copies = claims(12, NOON, MINUTE, None)
    honest = usage("a", NOON + HOUR, NOON + 2 * HOUR)
    town.now = NOON + 3 * HOUR
    dropped = town.claim("liar", *copies, honest)
    assert [part.what for part in dropped] == ["usage x-9", "usage x-10", "usage x-11", "usage a"]
    assert {part.reason for part in dropped} == {"overlapping"}
    assert dropped[0].message == "instance i-a on GPU 0 has more than 8 others at this time"
    assert town.claim("liar", *copies[:9]) == [], "what is stored may be sent again"


def test_case_17_an_instance_begins_no_more_often_than_an_agent_can_start_it(town: Ledger) -> None:
    town.now = NOON + HOUR
    second = timedelta(seconds=1)
    dropped = town.claim("liar", *claims(300, NOON, second, second))
    assert Counter(part.reason for part in dropped) == {"too_many_starts": 200}
    assert town.claim("liar", *claims(100, NOON + QUARTER, second, second, 300)) == []
    assert stored(town, "liar") == 200


def test_case_17_what_comes_too_fast_is_for_later(town: Ledger) -> None:
    town.now = NOON + 30 * HOUR
    sent = claims(4096, NOON, 25 * timedelta(seconds=1), timedelta(seconds=1))
    dropped = town.claim("liar", *sent)
    late = {part.what for part in dropped}
    assert {part.reason for part in dropped} == {"later"}
    assert 1000 <= stored(town, "liar") == 4096 - len(late) < 2000
    assert town.claim("node-2", *[usage("b", NOON)]) == []


def test_usage_that_was_never_assigned_fills_no_table(town: Ledger) -> None:
    strange = [usage(f"s-{number}", NOON + number * MINUTE) for number in range(300)]
    town.now = NOON + 6 * HOUR
    dropped = town.claim("liar", *strange)
    assert {part.reason for part in dropped} == {"not_assigned"}
    assert len(dropped) == 300
    assert stored(town, "liar") == 200


def test_an_agent_that_comes_back_after_a_long_outage_full_of_crashes_loses_nothing(town: Ledger) -> None:
    """A copy that began once a minute for fourteen hours, all reported at once."""
    town.now = NOON + 14 * HOUR
    crashes = claims(840, NOON, MINUTE, 50 * timedelta(seconds=1))
    assert town.claim("liar", *crashes) == []
    town.passes(3 * MINUTE)
    town.account()
    assert abs(money(town, "liar")["used"] - 14 * MONEY * 50 // 60) <= 840, "a billionth each"


def test_what_overlaps_in_the_thousands_is_divided_quickly_and_exactly(town: Ledger) -> None:
    """Rows that no bound kept out: each begins in the other, and at each moment the last two pay."""
    store(town, *claims(6000, NOON, 100_000 * MICROSECOND, None))
    store(town, usage("b", NOON, sm=100.0), node="node-2")
    hour_passes(town)
    assert town.rows("SELECT node FROM ledger_quarantine") == []
    assert money(town, "liar") == money(town, "node-2") == {"used": MONEY}


def test_what_is_too_much_for_a_long_span_is_accounted_for_in_shorter_ones(
    town: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "MOST_INTERVALS", 20)
    town.now = NOON + 6 * HOUR
    town.claim("liar", *claims(90, NOON, 4 * MINUTE, 4 * MINUTE))
    town.passes(3 * MINUTE)
    town.account()
    assert money(town, "liar") == {"used": 6 * MONEY}
    assert town.rows("SELECT FROM ledger_quarantine") == []


def test_what_is_too_much_for_a_quarter_hour_is_quarantined_and_says_so(
    town: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "MOST_INTERVALS", 2)
    town.now = NOON + 6 * HOUR
    town.claim("liar", *claims(90, NOON, 4 * MINUTE, 4 * MINUTE))
    town.passes(3 * MINUTE)
    town.account()
    assert money(town, "liar") == {}
    (row,) = town.rows("SELECT node, reason FROM ledger_quarantine")
    assert (row.node, row.reason) == ("liar", "TooMuchUsage: it reports more than 2 intervals of usage")


@contextmanager
def failing(town: Ledger, table: str, node: str) -> Iterator[None]:
    """Postgres refuses every row of this node, for a reason that nobody thought of."""
    town.run("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'surprise'; END $$")
    town.run(
        f"CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW WHEN (NEW.node = '{node}') "
        "EXECUTE FUNCTION refuse()"
    )
    yield
    town.run(f"DROP TRIGGER refuse ON {table}")
    town.run("DROP FUNCTION refuse()")


def test_a_node_whose_account_fails_is_quarantined_by_name_and_all_others_are_accounted_for(town: Ledger) -> None:
    town.claim("liar", usage("a", NOON, sm=100.0))
    town.claim("node-2", usage("b", NOON, sm=100.0))
    with failing(town, "allocation", "liar"):
        hour_passes(town)
        assert money(town, "node-2") == {"used": MONEY}
        assert money(town, "liar") == {}
        ((node, failures, reason),) = town.rows("SELECT node, failures, reason FROM ledger_quarantine")
        assert (node, failures) == ("liar", 1)
        assert "surprise" in reason
        events = town.rows("SELECT reason, severity, name, message FROM event")
        assert [(row.reason, row.severity, row.name) for row in events] == [("node_quarantined", "alarm", "liar")]
        assert "surprise" in events[0].message
        town.account()
        assert town.rows("SELECT failures FROM ledger_quarantine") == [(1,)], "it waits"
        town.passes(2 * MINUTE)
        town.account()
        assert town.rows("SELECT failures FROM ledger_quarantine") == [(2,)]
    town.account()
    assert money(town, "liar") == {}, "it waits longer"
    town.passes(3 * MINUTE)
    town.account()
    assert money(town, "liar") == {"used": MONEY}
    assert town.rows("SELECT FROM ledger_quarantine") == []
    assert town.rows("SELECT reason FROM event ORDER BY id DESC LIMIT 1") == [("node_released",)]


def test_a_database_that_is_away_quarantines_nobody(town: Ledger) -> None:
    town.claim("liar", usage("a", NOON, sm=100.0))
    town.claim("node-2", usage("b", NOON, sm=100.0))
    town.now = NOON + HOUR
    town.claim("liar")
    town.claim("node-2")
    town.passes(3 * MINUTE)
    town.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = 'disk_full'; END $$"
    )
    town.run("CREATE TRIGGER refuse BEFORE INSERT ON allocation FOR EACH ROW EXECUTE FUNCTION refuse()")
    with pytest.raises(Unavailable):
        town.account()
    assert town.rows("SELECT FROM ledger_quarantine") == []


@pytest.mark.parametrize("times", [ATTEMPTS, 2 * ATTEMPTS])
def test_a_connection_that_is_lost_over_one_node_quarantines_nobody_and_the_node_is_tried_again(
    town: Ledger, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.database.database.RETRY_SECONDS", 0.0)
    town.claim("liar", usage("a", NOON, sm=100.0))  # innocent here
    town.claim("node-2", usage("b", NOON, sm=100.0))
    town.run("CREATE SEQUENCE losses")  # which a rollback does not take back
    town.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF nextval('losses') <= {times} THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; "
        "RETURN NEW; END $$"
    )
    town.run(
        "CREATE TRIGGER refuse BEFORE INSERT ON allocation FOR EACH ROW WHEN (NEW.node = 'liar') "
        "EXECUTE FUNCTION refuse()"
    )
    with contextlib.suppress(Unavailable):  # lost twice, the database counts as away: the next call goes on
        hour_passes(town)
    assert town.rows("SELECT FROM ledger_quarantine") == []
    town.account()
    assert money(town, "node-2") == money(town, "liar") == {"used": MONEY}
    assert town.rows("SELECT FROM event") == []


def test_a_node_that_takes_too_long_by_itself_is_quarantined_once_another_was_accounted_for(town: Ledger) -> None:
    town.claim("liar", usage("a", NOON, sm=100.0))
    town.claim("node-2", usage("b", NOON, sm=100.0))
    town.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'too long' USING ERRCODE = 'query_canceled'; END $$"
    )
    town.run(
        "CREATE TRIGGER refuse BEFORE INSERT ON allocation FOR EACH ROW WHEN (NEW.node = 'liar') "
        "EXECUTE FUNCTION refuse()"
    )
    hour_passes(town)
    assert money(town, "node-2") == {"used": MONEY}
    assert [row.node for row in town.rows("SELECT node FROM ledger_quarantine")] == ["liar"]


def test_nodes_that_all_take_too_long_are_quarantined_by_name_and_are_not_taken_for_a_missing_database(
    town: Ledger,
) -> None:
    for node in ("liar", "node-2"):
        town.claim(node, usage(f"of-{node}", NOON, sm=100.0))
    town.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'too long' USING ERRCODE = 'query_canceled'; END $$"
    )
    town.run("CREATE TRIGGER refuse BEFORE INSERT ON allocation FOR EACH ROW EXECUTE FUNCTION refuse()")
    hour_passes(town)
    quarantined = town.rows("SELECT node, reason FROM ledger_quarantine ORDER BY node")
    assert [row.node for row in quarantined] == ["liar", "node-2"]
    assert all(row.reason.startswith("TooSlow: a statement exceeded its time limit") for row in quarantined)


def test_missing_usage_of_others_is_ended_although_one_node_cannot_be_looked_at(town: Ledger) -> None:
    for node, name in (("liar", "a"), ("node-2", "b")):
        town.claim(node, usage(name, NOON), copies=[Copy(id=name, instance=f"i-{name}", gpu=0, stage="ready")])
    other = [Copy(id="other", instance="i-other", gpu=0, stage="ready")]
    with failing(town, "usage_missing", "liar"):
        for _ in range(18):
            town.passes(MINUTE)
            town.claim("liar", copies=other)
            town.claim("node-2", copies=other)
            failed = town.end_usage()
        assert failed == ["liar"]
    ended = {row.node for row in town.rows("SELECT node FROM usage_interval WHERE ended_at IS NOT NULL")}
    assert ended == {"node-2"}


def test_thousands_of_copies_and_open_intervals_are_looked_through_once(town: Ledger) -> None:
    """A list of copies as long as a report may have, beside as many open intervals."""
    store(town, *claims(4096, NOON, MICROSECOND, None))
    town.claim("node-2", usage("b", NOON))
    others = [Copy(id=f"y-{number}", instance="i-a", gpu=0, stage="ready") for number in range(4096)]
    for _ in range(18):
        town.passes(MINUTE)
        town.claim("liar", copies=others)
        town.claim("node-2", copies=[Copy(id="b", instance="i-b", gpu=0, stage="ready")])
    town.end_usage()
    town.passes(16 * MINUTE)
    town.claim("liar", copies=others)
    town.end_usage()
    open_ = town.rows("SELECT node, count(*) FROM usage_interval WHERE ended_at IS NULL GROUP BY 1")
    assert open_ == [("node-2", 1)]
