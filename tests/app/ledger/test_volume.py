"""Money adds up whatever a node claims, and however much of it (I7): a plain recomputation comes to the same."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from agents.contract.reports import UsageInterval
from app.ledger.allocation import TooMuchUsage, allocate
from tests.app.ledger.judge import EPOCH, MICROSECOND, Held, Paid, Priced, judged
from tests.app.ledger.test_allocation import KIND, SPAN, START, facts_of, us
from tests.app.ledger.town import Ledger, ledger, usage
from tests.support.soak import scaled

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = 60 * MINUTE
CHANGE = START + 80 * MINUTE
PRICE = [Priced(KIND, 3_333_333_333, START - HOUR, CHANGE), Priced(KIND, 7_777_777_777, CHANGE)]

PARTS = """
    SELECT slice, node, gpu, CASE kind WHEN 'used' THEN tenant ELSE '__' || kind || '__' END AS tenant, service,
           CAST(sum(nano) AS bigint) AS nano
    FROM allocation GROUP BY 1, 2, 3, 4, 5 HAVING sum(nano) <> 0
"""
STORED = "SELECT * FROM usage_interval JOIN assigned USING (node, instance, gpu)"


def believed(claims: Sequence[tuple[str, Held]]) -> list[Held]:
    """Of each instance on each GPU the two that began last, in every stretch between any two changes; in plain loops.

    A claim is an instance and what it held.
    """
    found = []
    for place in sorted({(held.node, held.gpu) for _, held in claims}):
        here = [(instance, held) for instance, held in claims if (held.node, held.gpu) == place]
        mine = [(instance, held) for instance, held in here if held.start < held.stop]
        moments = sorted({edge for _, held in mine for edge in (held.start, held.stop)})
        for begins, ends in pairwise(moments):
            of: dict[str, list[Held]] = defaultdict(list)
            for instance, held in mine:
                if held.start <= begins and ends <= held.stop:
                    of[instance].append(held)
            for held_now in of.values():
                newest = sorted(held_now, key=lambda held: held.id)
                newest.sort(key=lambda held: held.start, reverse=True)
                found += [replace(held, start=begins, stop=ends) for held in newest[:2]]
    return found


def adversarial(rng: random.Random, count: int) -> list[tuple[str, Held]]:
    """Claims of a few instances: nested, touching, equal, empty, a microsecond apart, for ever."""
    found = []
    for number in range(count):
        start = START + rng.choice([rng.uniform(0, 1) * SPAN, rng.randrange(13) * 15 * MINUTE, timedelta()])
        start += rng.randrange(3) * MICROSECOND
        quarters = rng.randrange(5) * 15 * MINUTE
        lasts = rng.choice([timedelta(), MICROSECOND, rng.uniform(0, 1) * SPAN, quarters, 99 * HOUR])
        instance = f"i-{rng.randrange(4)}"
        held = Held(
            f"copy-{number}", "node-1", rng.randrange(2), instance[-1:], "a", rng.choice([0.0, 5.0, 33.3, 100.0]),
            rng.choice([0.0, 1.9, 16.0, 1e12]), rng.random() < 0.05, start, start + lasts,
        )  # fmt: skip
        found.append((instance, held))
    return found


@pytest.mark.parametrize("pricing", ["gpu", "node"])
@pytest.mark.parametrize("count", [1, 2, 5, 12, scaled(120, 60)])  # few claims leave GPUs empty, many hide that
@pytest.mark.parametrize("seed", range(scaled(300, 5, 1)))
def test_case_17_overlapping_claims_are_divided_as_a_plain_recomputation_divides_them(
    seed: int, count: int, pricing: str
) -> None:
    claims = adversarial(random.Random(seed), count)
    facts = facts_of(PRICE, [held for _, held in claims], timedelta())
    instances = {held.id: instance for instance, held in claims}
    placed = [replace(interval, instance=instances[interval.id]) for interval in facts.usage]
    facts = replace(facts, usage=placed, pricing=pricing)
    found: dict[tuple[Any, ...], int] = defaultdict(int)
    for line, amount in allocate(facts, us(START), us(START + SPAN)).items():
        tenant = line.tenant if line.kind == "used" else f"__{line.kind}__"
        found[EPOCH + line.slice * MICROSECOND, "node-1", line.gpu, tenant, line.service] += amount.nano
    paid = [Paid("node-1", gpu, KIND, 16.0, START) for gpu in range(2)]
    verdict = judged(paid, PRICE, believed(claims), START, START + SPAN, pricing)
    assert {key: nano for key, nano in found.items() if nano} == {
        key: nano for key, nano in verdict.parts.items() if nano
    }


@pytest.mark.slow
def test_twice_as_many_claims_are_twice_as_much_work_and_not_four_times() -> None:
    """Each begins in the other and none ends: all are there at once, and two of them pay."""

    def suffices(count: int, parts: int) -> bool:
        step = SPAN / count
        claims = [
            Held(f"copy-{n}", "node-1", 0, "t", "a", 50.0, 2.0, False, START + n * step, START + 2 * SPAN)
            for n in range(count)
        ]
        facts = facts_of(PRICE, claims, timedelta())
        facts = replace(facts, usage=[replace(interval, instance="i-1") for interval in facts.usage])
        try:
            allocate(facts, us(START), us(START + SPAN), parts)
        except TooMuchUsage:
            return False
        return True

    assert suffices(1000, 3200)
    assert suffices(4000, 12_200)
    assert not suffices(4000, 11_000)


@pytest.fixture
def town(database_url: str) -> Iterator[Ledger]:
    with ledger(database_url, NOON) as made:
        made.gpu_type(4.0)
        yield made


def lies(rng: random.Random, node: str, count: int) -> list[UsageInterval]:
    """What a node claims: its own instances and others', in the past and in the future, often the same again."""
    found = []
    for _ in range(count):
        start = NOON + rng.choice([rng.uniform(-1, 3) * HOUR, rng.randrange(12) * 15 * MINUTE])
        stop = rng.choice([None, start, start + rng.uniform(0, 2) * HOUR, start + 20 * timedelta(seconds=1)])
        made = usage(f"{node}-{rng.randrange(count)}", start, stop, sm=rng.choice([0.0, 40.0, 100.0]), tenant="shop")
        found.append(msgspec.structs.replace(made, instance=f"{node}-{rng.choice('abx')}"))
    return found


@pytest.mark.slow
def test_case_17_of_thousands_of_lies_money_sees_what_was_stored_and_adds_up(town: Ledger) -> None:
    rng = random.Random(17)
    nodes = [f"liar-{number}" for number in range(3)]
    for node in nodes:
        town.node(node)
        own = [usage(f"{letter}", NOON, sm=60.0) for letter in "ab"]
        town.assign(node, *[msgspec.structs.replace(interval, instance=f"{node}-{interval.id}") for interval in own])
    for _ in range(12):
        town.passes(20 * MINUTE)
        for node in nodes:
            town.claim(node, *lies(rng, node, scaled(4096, 300)))
        town.account()
    town.passes(3 * MINUTE)
    town.account(3)
    claims = [
        (row.instance, Held(row.id, row.node, row.gpu, "shop", "search", min(row.sm_percent, 60.0), row.memory_gib,
                            False, max(row.started_at, row.first_at), row.ended_at or NOON + 4 * HOUR))
        for row in town.rows(STORED.replace("*", "usage_interval.*, first_at"))
    ]  # fmt: skip
    ((memory, ends),) = town.rows(
        "SELECT DISTINCT memory_gib, allocated_until FROM gpu_owned JOIN ledger_node USING (node)"
    )
    paid = [Paid(node, 0, KIND, memory, NOON) for node in nodes]
    verdict = judged(paid, [Priced(KIND, 4_000_000_000, NOON)], believed(claims), NOON, ends)
    found = {tuple(row[:5]): row.nano for row in town.rows(PARTS)}
    assert found == {key: nano for key, nano in verdict.parts.items() if nano}
    assert sum(found.values()) == len(nodes) * 4_000_000_000 * ((ends - NOON) // MINUTE) // 60
    assert len(claims) > 100
