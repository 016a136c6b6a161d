"""Accounts as housekeeping keeps them: final once, countered when the truth comes late, gaps marked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from threading import Thread

import psycopg
import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from agents.contract.reports import Copy
from app.store.money import closing
from tests.app.ledger.town import Ledger, ledger, usage
from tests.support.patience import until

pytestmark = pytest.mark.slow

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
QUARTER = 15 * MINUTE
HOUR = 4 * QUARTER

BY_KIND = """
    SELECT slice, kind, evidence, tenant, CAST(sum(nano) AS bigint) AS nano FROM allocation
    GROUP BY 1, 2, 3, 4 HAVING sum(nano) <> 0 ORDER BY 1, 2 DESC, 3, 4
"""


@pytest.fixture
def town(database_url: str) -> Iterator[Ledger]:
    with ledger(database_url, NOON) as made:
        made.gpu_type(4.0)
        made.node("node-1")
        yield made


def found(town: Ledger) -> list[tuple[int, str, str, str, int]]:
    """(quarters after noon, kind, evidence, tenant, nano)"""
    return [((row.slice - NOON) // QUARTER, *row[1:]) for row in town.rows(BY_KIND)]


def test_a_quarter_is_divided_once_its_node_was_heard_after_it(town: Ledger) -> None:
    town.report("node-1", usage("a", NOON))
    town.now = NOON + QUARTER + 10 * MINUTE
    town.account()
    assert found(town) == [], "the node was not heard since"
    town.report("node-1")
    town.account(2)
    assert found(town) == [(0, "used", "measured", "shop", 500_000_000), (0, "idle", "measured", "", 500_000_000)]


def test_a_late_end_is_countered_and_the_sums_follow(town: Ledger) -> None:
    town.report("node-1", usage("a", NOON))
    town.now = NOON + HOUR
    town.report("node-1")
    town.passes(3 * MINUTE)
    town.account()
    assert len(found(town)) == 8
    town.report("node-1", usage("a", NOON, NOON + QUARTER))
    town.account()
    assert found(town) == [
        (0, "used", "measured", "shop", 500_000_000), (0, "idle", "measured", "", 500_000_000),
        *((slice_, "unallocated", "measured", "", 1_000_000_000) for slice_ in (1, 2, 3)),
    ]  # fmt: skip
    assert town.rows("SELECT count(*), sum(nano) FROM allocation WHERE correction") == [(9, 0)]
    for table in ("cost_hour", "cost_day"):
        assert town.rows(f"SELECT kind, sum(nano) FROM {table} GROUP BY kind ORDER BY kind") == [
            ("idle", 500_000_000), ("unallocated", 3_000_000_000), ("used", 500_000_000),
        ]  # fmt: skip


def test_time_of_a_silent_node_is_nobodys_until_it_is_back(town: Ledger) -> None:
    town.report("node-1", usage("a", NOON))
    town.now = NOON + QUARTER + HOUR
    town.account()
    assert found(town) == [(0, "unallocated", "gap", "", 1_000_000_000)]
    town.now = NOON + 2 * HOUR
    town.report("node-1")
    town.account(2)
    used = found(town)
    town.passes(3 * MINUTE)
    town.account()
    assert used == [
        (slice_, kind, "measured", tenant, 500_000_000)
        for slice_ in range(7)
        for kind, tenant in (("used", "shop"), ("idle", ""))
    ]
    assert len(found(town)) == 16


def test_usage_of_a_node_that_never_comes_back_is_ended_when_it_was_heard_last(town: Ledger) -> None:
    town.report("node-1", usage("a", NOON))
    town.now = NOON + 20 * MINUTE
    town.report("node-1")
    town.now = NOON + timedelta(hours=25)
    town.end_usage()
    town.account(3)
    assert town.rows("SELECT ended_at, evidence FROM usage_interval") == [(NOON + 20 * MINUTE, "gap")]
    assert found(town)[:4] == [
        (0, "used", "measured", "shop", 500_000_000), (0, "idle", "measured", "", 500_000_000),
        (1, "used", "measured", "shop", 166_666_667), (1, "unallocated", "gap", "", 666_666_667),
    ]  # fmt: skip
    # It is back after all, and says when the copy really ended.
    town.report("node-1", usage("a", NOON, NOON + HOUR))
    town.account(3)
    assert [row for row in found(town) if row[1] == "used"] == [
        (slice_, "used", "measured", "shop", 500_000_000) for slice_ in range(4)
    ]
    assert town.rows("SELECT ended_at, evidence FROM usage_interval") == [(NOON + 20 * MINUTE, "gap")]


def test_a_copy_that_its_node_has_forgotten_is_ended_and_goes_on_when_named_again(town: Ledger) -> None:
    copy = Copy(id="a", instance="i-a", gpu=0, stage="ready")
    other = Copy(id="b", instance="i-b", gpu=0, stage="ready")
    town.report("node-1", usage("a", NOON), copies=[copy])
    town.passes(5 * MINUTE)
    town.report("node-1", copies=[other])
    for _ in range(17):
        town.passes(MINUTE)
        town.report("node-1", copies=[other])
        town.end_usage()
    ((ended_at, evidence),) = town.rows("SELECT ended_at, evidence FROM usage_interval")
    assert (ended_at, evidence) == (NOON + 6 * MINUTE, "gap")
    town.now = NOON + HOUR + 3 * MINUTE
    town.report("node-1", copies=[other])
    town.account(2)
    assert [row[1:3] for row in found(town) if row[0] == 0] == [
        ("used", "measured"), ("unallocated", "gap"), ("idle", "measured"),
    ]  # fmt: skip
    town.report("node-1", copies=[copy])
    town.end_usage()
    town.account(2)
    assert {row[1:3] for row in found(town)} == {("used", "measured"), ("idle", "measured")}


def test_an_end_that_is_told_while_another_is_presumed_counts(town: Ledger) -> None:
    town.report("node-1", usage("a", NOON))
    town.now = NOON + timedelta(hours=25)
    told = Thread(target=lambda: town.report("node-1", usage("a", NOON, NOON + HOUR)))

    def end(connection: Connection) -> None:
        assert closing.end_lost(connection, ["node-1"], 1000) == 1
        told.start()
        sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        until(lambda: town.rows(sql) == [(1,)], "the report waits for the row")

    town.database.write(end)
    told.join()
    town.account(3)
    assert [row for row in found(town) if row[1] == "used"] == [
        (slice_, "used", "measured", "shop", 500_000_000) for slice_ in range(4)
    ]


def test_an_end_outranks_what_was_concluded_from_a_report_of_before(town: Ledger) -> None:
    """A report names the copy; while that is concluded to go on, the next one ends it."""
    copy = Copy(id="a", instance="i-a", gpu=0, stage="ready")
    town.report("node-1", usage("a", NOON))
    town.now = NOON + timedelta(hours=25)
    town.end_usage()
    town.passes(MINUTE)
    town.report("node-1", copies=[copy])
    town.passes(MINUTE)

    def conclude(connection: Connection) -> None:
        assert closing.go_on(connection, ["node-1"]) == 1
        town.passes(-MINUTE / 2)
        ended = Thread(target=lambda: town.report("node-1", usage("a", NOON, NOON + HOUR)))
        ended.start()
        ended.join()

    town.database.write(conclude)
    town.passes(HOUR)
    town.report("node-1")
    town.account(3)
    assert {row[0] for row in found(town) if row[1] == "used"} == {0, 1, 2, 3}


def test_a_price_changes_at_its_moment_and_is_kept_dated(town: Ledger) -> None:
    town.report("node-1", usage("a", NOON, sm=100.0))
    town.now = NOON + 5 * MINUTE
    town.gpu_type(8.0)
    town.now = NOON + 20 * MINUTE
    town.report("node-1")
    town.account()
    assert found(town) == [(0, "used", "measured", "shop", 333_333_333 + 1_333_333_334)]
    assert town.rows("SELECT nano_per_hour, valid_from, valid_to FROM price ORDER BY id") == [
        (4_000_000_000, NOON, NOON + 5 * MINUTE), (8_000_000_000, NOON + 5 * MINUTE, None),
    ]  # fmt: skip


def test_gpus_are_paid_for_from_declaration_to_deletion(town: Ledger) -> None:
    town.now = NOON + 5 * MINUTE
    town.node("node-1", gpus=2, region="eu")
    town.now = NOON + 10 * MINUTE
    town.delete_node("node-1")
    town.now = NOON + 2 * HOUR
    town.account(2)
    assert found(town) == [(0, "unallocated", "gap", "", 333_333_333 + 2 * 333_333_333)]
    assert town.rows("SELECT gpus, region, valid_from, valid_to FROM gpu_owned ORDER BY id") == [
        (1, "default", NOON, NOON + 5 * MINUTE), (2, "eu", NOON + 5 * MINUTE, NOON + 10 * MINUTE),
    ]  # fmt: skip
    assert town.rows("SELECT region, valid_from FROM price ORDER BY id") == [
        ("default", NOON), ("eu", NOON + 5 * MINUTE),
    ]  # fmt: skip


def test_the_named_price_of_a_region_is_the_planners_price(town: Ledger) -> None:
    named = [{"region": "eu", "purchase": "spot", "perHour": 0.5}]
    town.gpu_type(0.1 + 0.2, "t4-16gb", prices=named)
    town.node("node-2", kind="t4-16gb", region="eu", purchase="spot")
    town.node("node-3", kind="t4-16gb", region="us")
    rates = town.rows("SELECT region, purchase, nano_per_hour FROM price WHERE gpu_type = 't4-16gb' ORDER BY region")
    assert rates == [("eu", "spot", 500_000_000), ("us", "onDemand", 300_000_000)]


def test_energy_goes_with_the_time_and_stands_when_its_minutes_are_forgotten(town: Ledger) -> None:
    town.report("node-1", usage("a", NOON))
    town.run("CREATE TABLE gpu_minute_all PARTITION OF gpu_minute DEFAULT")
    town.run(
        "INSERT INTO gpu_minute SELECT :noon + (n - 1) * interval '1 minute', 'node-1', 0, 1, 'ok', 50, 1, 100, 100,"
        " 1000 * n, 50, 1000, '{}' FROM generate_series(0, 40) AS n",
        noon=NOON,
    )
    town.now = NOON + 20 * MINUTE
    town.report("node-1")
    town.account()
    energy = "SELECT kind, sum(energy_mj) FROM {} GROUP BY 1 ORDER BY 1"
    assert town.rows(energy.format("allocation")) == [("idle", 7500), ("used", 7500)]
    town.run("TRUNCATE gpu_minute")
    town.report("node-1", usage("a", NOON, NOON + 5 * MINUTE))
    town.account()
    for table in ("allocation", "cost_hour", "cost_day"):
        assert town.rows(energy.format(table)) == [("idle", 2500), ("unallocated", 10_000), ("used", 2500)]


def test_what_is_allocated_or_dated_cannot_be_changed(town: Ledger) -> None:
    town.now = NOON + 2 * HOUR
    town.account()
    for sql in (
        "UPDATE allocation SET nano = 0", "DELETE FROM allocation", "UPDATE price SET nano_per_hour = 1",
        "DELETE FROM price", "UPDATE gpu_owned SET gpus = 9", "DELETE FROM gpu_owned",
        "INSERT INTO price (gpu_type, region, purchase, nano_per_hour, valid_from, valid_to) "
        "VALUES ('v100-16gb', 'default', 'onDemand', 1, '2026-03-29T13:00Z', '2026-03-29T14:00Z')",
    ):  # fmt: skip
        with pytest.raises(DBAPIError) as refused:
            town.run(sql)
        assert isinstance(refused.value.orig, psycopg.errors.InsufficientPrivilege | psycopg.errors.ExclusionViolation)


def test_nodes_declared_before_there_was_a_ledger_are_accounted_for_from_now_on(town: Ledger) -> None:
    for table in ("gpu_owned", "price", "ledger_node"):
        town.run(f"TRUNCATE {table}")
    town.now = NOON + HOUR + 5 * MINUTE
    town.account()
    town.passes(2 * HOUR)
    town.account()
    assert town.rows("SELECT sum(nano), min(slice) FROM allocation") == [
        (Decimal(3_666_666_667), NOON + HOUR),
    ]  # fmt: skip


def test_energy_that_no_gpu_could_draw_holds_up_no_account(town: Ledger) -> None:
    town.node("node-2")
    town.run("CREATE TABLE gpu_minute_all PARTITION OF gpu_minute DEFAULT")
    for node, counter in (("node-1", "n % 2 * 9223372036854775807"), ("node-2", "1000 * n")):
        town.run(
            "INSERT INTO gpu_minute SELECT :noon + (n - 1) * interval '1 minute', :node, 0, 1, 'ok', 50, 1, 100, 100,"
            f" {counter}, 50, 1000, '{{}}' FROM generate_series(0, 20) AS n",
            noon=NOON, node=node,
        )  # fmt: skip
    town.now = NOON + QUARTER + 4 * MINUTE
    town.report("node-1")
    town.report("node-2")
    town.account()
    assert town.rows("SELECT node, sum(energy_mj) FROM allocation GROUP BY 1 ORDER BY 1") == [
        ("node-1", 0), ("node-2", 15_000),
    ]  # fmt: skip
