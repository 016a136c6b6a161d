"""Money adds up whatever happened (I7): to the last billionth, by quarter-hour, hour, day and month, in any zone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.app.ledger.history import History, forgotten, histories
from tests.app.ledger.judge import judged, total
from tests.app.ledger.town import Ledger, ledger
from tests.support.postgres import DatabaseServer
from tests.support.soak import scaled

AT_ONCE = scaled(20, 4)  # a server's passes over the ledger are most of the work, and one is for all that are there
# Clocks are put forward in Berlin the next night; a day of 2016 that ended with a leap second has 86,400 s here too.
STARTS = (datetime(2026, 3, 28, 20, tzinfo=UTC), datetime(2026, 10, 24, 20, tzinfo=UTC))
PARTS = """
    SELECT slice, node, gpu, CASE kind WHEN 'used' THEN tenant ELSE '__' || kind || '__' END AS tenant, service,
           CAST(sum(nano) AS bigint) AS nano
    FROM allocation WHERE node LIKE :nodes GROUP BY 1, 2, 3, 4, 5 HAVING sum(nano) <> 0
"""
SUMS = """
    SELECT date_trunc(:period, {at}, :zone) AS start, CAST(sum(nano) AS bigint) AS nano
    FROM {table} WHERE node LIKE :nodes GROUP BY 1 ORDER BY 1
"""
GAPS = """
    SELECT node, sum(gpu_microseconds) FILTER (WHERE evidence = 'gap') AS gap, sum(gpu_microseconds) AS time
    FROM allocation WHERE node LIKE :nodes GROUP BY node
"""


@pytest.fixture(scope="module")
def town(postgres: DatabaseServer) -> Iterator[Ledger]:
    url = postgres.create()
    with ledger(url, STARTS[0]) as made:
        yield made
    postgres.drop(url)


@pytest.mark.slow
@settings(
    max_examples=scaled(10_000, 8) // AT_ONCE,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    deadline=None,
)
@given(st.integers(0, 2**32), st.sampled_from(STARTS), st.integers(10, 40))
def test_money_adds_up(town: Ledger, seed: int, start: datetime, events: int) -> None:
    town.now = start
    for made in histories(town, seed, events, AT_ONCE):
        check(town, made, start)
    forgotten(town)


def check(town: Ledger, made: History, start: datetime) -> None:
    """All of one history is as the judge has it, and adds up."""
    mine = {"nodes": made.agents[0].node.rpartition("-")[0] + "-%"}
    ends = accounted_until(town, made)
    held = list(made.held())
    wanted: dict[tuple[Any, ...], int] = {}
    for agent in made.agents:
        paid = [one for one in made.paid if one.node == agent.node]
        verdict = judged(paid, made.prices, held, start, ends[agent.node])
        wanted |= {key: nano for key, nano in verdict.parts.items() if nano}
    found = {tuple(row[:5]): row.nano for row in town.rows(PARTS, **mine)}
    assert found == wanted, different(found, wanted)
    check_sums(town, made, ends, mine)
    check_gaps(town, made, mine)


def accounted_until(town: Ledger, made: History) -> dict[str, datetime]:
    rows = town.rows("SELECT node, allocated_until FROM ledger_node")
    ends = {row.node: row.allocated_until for row in rows}
    assert all(ends[agent.node] > town.now - timedelta(hours=2) for agent in made.agents)
    return ends


def check_sums(town: Ledger, made: History, ends: dict[str, datetime], mine: dict[str, str]) -> None:
    """Slices, hours and days add up to GPU-hours x price, in zones whose days begin at other times."""
    for table, at, period, zone in (
        ("cost_hour", "hour", "hour", "UTC"),
        ("cost_day", "day", "day", "UTC"),
        ("cost_day", "day", "month", "UTC"),
        ("cost_hour", "hour", "day", "Europe/Berlin"),
        ("allocation", "slice", "day", "Asia/Kathmandu"),
        ("allocation", "slice", "month", "America/St_Johns"),
    ):
        rows = town.rows(SUMS.format(table=table, at=at), period=period, zone=zone, **mine)
        found = [(row.start, row.nano) for row in rows]
        starts = [start for start, _ in found]
        wanted = defaultdict[datetime, int](int)
        for begins, stops in zip(starts, [*starts[1:], datetime(9000, 1, 1, tzinfo=UTC)], strict=True):
            for agent in made.agents:
                paid = [one for one in made.paid if one.node == agent.node]
                wanted[begins] += total(paid, made.prices, begins, min(stops, ends[agent.node]))
        assert found == list(wanted.items()), (table, period, zone)


def check_gaps(town: Ledger, made: History, mine: dict[str, str]) -> None:
    """Marked is the time of which nobody spoke, and no other."""
    for row in town.rows(GAPS, **mine):
        agent = next(one for one in made.agents if one.node == row.node)
        assert (row.gap or 0) == 0 or agent.dead
        assert not agent.dead or row.gap > 0


def different(found: dict[tuple[Any, ...], int], wanted: dict[tuple[Any, ...], int]) -> list[str]:
    """The first few lines that are not as the judge has them."""
    keys = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    return [f"{key}: {found.get(key)}, wanted {wanted.get(key)}" for key in keys[:8]]
