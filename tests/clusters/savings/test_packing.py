"""What L0 frees, against an exhaustive search in plain code, and the limit against every plan on small estates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from math import ceil
from random import Random

import pytest

from clusters.measured import WorkloadSeries
from tests.clusters.made_up import pod, pod_spec, scaled_object
from tests.clusters.savings.fleets import STEPS, assessed, day, nodes, of_workload, savings_of, served
from tests.support.soak import scaled

PRICE_NANO = 10 * 10**9
PROMISE_MS = 100.0


def draw_day(random: Random, replicas: int) -> WorkloadSeries:
    """A day with a peak, a time with fewer replicas, and now and then a step that misses the promise."""
    peak = random.uniform(5, 50)
    rates = [peak * random.choice((0.2, 0.6, 0.9, 1.0)) for _ in range(STEPS)]
    ready = [replicas] * STEPS
    for step in range(random.randrange(0, 60), random.randrange(60, 70)):
        ready[step] = random.randrange(1, replicas + 1)
    latencies = [random.choice((50.0,) * random.choice((9, 99)) + (200.0,)) for _ in range(STEPS)]
    return day(rates, ready, latencies)


def plain_need(series: WorkloadSeries) -> int:
    """The replicas that the busiest step needs, by the definition alone."""
    steps = [
        (rate or 0.0, int(ready or 0), (latency or 0.0) <= PROMISE_MS)
        for rate, ready, latency in zip(
            series.rates_per_second, series.ready_replicas, series.latency_ms, strict=True
        )
    ]  # fmt: skip
    windows = [
        (rate / ready, ready)
        for rate, ready, kept in steps
        if kept and not any(not ok and more >= ready and load / more <= rate / ready for load, more, ok in steps)
    ]
    most = 0
    for rate, ready, kept in steps:
        count = 1
        while count <= 1000 and not any(
            ready_then <= count and count * each >= rate - 1e-9 for each, ready_then in windows
        ):
            count += 1
        if count > 1000 or (kept and count > ready) or (not kept and count < ready):
            count = ready
        most = max(most, count)
    return most


def spreads(count: int, places: int, most: int) -> Iterator[tuple[int, ...]]:
    """All ways to put so many replicas on so many nodes."""
    yield from (each for each in product(range(most + 1), repeat=places) if sum(each) == count)


Rules = tuple[int, int, int, int]  # now, least, those of other nodes when any is lost, and with those that restart


def left_after_loss(lost: int, gpus: Sequence[int], stands: Sequence[Sequence[int]]) -> Iterator[int]:
    """Gives the replicas of each workload that stand once a node is lost and free GPUs elsewhere took what they can."""
    room = sum(gpus) - gpus[lost]
    for spread in stands:
        back = min(room, spread[lost])
        room -= back
        yield sum(spread) - spread[lost] + back


def fits_some_way(
    places: int, gpus: Sequence[int], rules: Sequence[Rules], stands: Sequence[tuple[int, ...]] = ()
) -> bool:
    """Whether workloads fit on nodes with so many free GPUs, beside those that stand, by trying everything."""
    if len(stands) == len(rules):
        losses = [left_after_loss(lost, gpus, stands) for lost in range(places)]
        return all(left >= rule[3] for loss in losses for left, rule in zip(loss, rules, strict=True))
    now, least, survivors, _ = rules[len(stands)]
    return any(
        count - max(spread) >= survivors
        and all(taken <= free for taken, free in zip(spread, gpus, strict=True))
        and fits_some_way(
            places, [free - taken for taken, free in zip(spread, gpus, strict=True)], rules, [*stands, spread]
        )
        for count in range(least, now + 1)
        for spread in spreads(count, places, max(gpus))
    )  # fmt: skip


@pytest.mark.slow
def test_l0_frees_what_rules_allow_and_no_plan_passes_the_limit() -> None:
    found = best = 0
    for seed in range(scaled(400, 40, 10)):
        random = Random(seed)
        count, gpus = random.choice(((2, 4), (3, 3), (4, 2)))
        items, free = nodes(count, gpus), [at for at in range(count) for _ in range(gpus)]
        random.shuffle(free)
        days, places = {}, {}
        for name in ("search", "ranker"):
            replicas = random.randrange(1, 4)
            places[name], free = free[:replicas], free[replicas:]
            days[name] = draw_day(random, replicas)
            items += served(name, [f"n{at}" for at in places[name]])
        pinned = free[: random.choice((0, 0, 1))]
        items += [pod("lab", "notebook", pod_spec("image:1", 1), f"n{at}") for at in pinned]
        savings = savings_of(items, days)
        needs = {name: plain_need(days[name]) for name in days}
        standing = [at for stands in places.values() for at in stands]

        def room(at: int, pinned: Sequence[int] = pinned, standing: Sequence[int] = standing, gpus: int = gpus) -> int:
            """GPUs of a node that replicas may hold: where a notebook stands, no more come."""
            return standing.count(at) if at in pinned else gpus

        idle = [room(at) - standing.count(at) for at in range(count)]
        today = [[places[name].count(at) for at in range(count)] for name in sorted(places)]
        lost = [list(left_after_loss(at, idle, today)) for at in range(count)]
        rules: list[Rules] = []
        for name, stands in sorted(places.items()):
            now, together = len(stands), max(stands.count(at) for at in stands)
            least = min(now, max(1, needs[name]))
            after = min(max(needs[name], 1), *(each[len(rules)] for each in lost))
            rules.append((now, least, min(max(needs[name], 1), now - together), after))
            saved = of_workload(savings, name)
            assert least <= saved.needed <= now, f"{name} of draw {seed}"
            assert saved.survivors is not None and saved.survivors >= rules[-1][2], f"{name} of draw {seed}"
        most = max(
            size
            for size in range(count + 1)
            for gone in combinations([at for at in range(count) if at not in pinned], size)
            if fits_some_way(
                count - size, [room(at) for at in range(count) if at not in gone] or [0], rules
            )
        )  # fmt: skip
        freed = len(savings.nodes)
        assert freed <= most <= freed + savings.more_nodes, f"draw {seed}"
        found, best = found + freed, best + most
        assert savings.limit_nano_per_hour >= most * PRICE_NANO, f"draw {seed}"
        assert savings.limit_nano_per_hour >= saved_by_the_hour(days, count, gpus, len(pinned)), f"draw {seed}"
    assert found >= 0.9 * best > 0


def saved_by_the_hour(days: dict[str, WorkloadSeries], count: int, gpus: int, pinned: int) -> float:
    """What a plan saves that runs as few whole replicas on as few whole nodes as each step's load allows."""
    cost = 0.0
    for step in range(STEPS):
        held = pinned
        for series in days.values():
            loads = zip(series.rates_per_second, series.ready_replicas, strict=True)
            highest = max((rate or 0.0) / (ready or 1) for rate, ready in loads)
            held += max(0, ceil((series.rates_per_second[step] or 0.0) / highest - 1e-9))
        cost += ceil(held / gpus) * PRICE_NANO / STEPS
    return count * PRICE_NANO - cost - 1


def test_the_limit_lets_go_of_all_that_no_rule_keeps() -> None:
    items = [*nodes(1, 4), *served("search", ["n0"], 4)]
    nothing = day([0.0] * STEPS, [1] * STEPS, [None] * STEPS)
    assert savings_of(items, {"search": nothing}).limit_nano_per_hour == PRICE_NANO
    seldom = day([10.0, *[0.0] * 7] * 12, [1] * STEPS, [50.0, *[None] * 7] * 12)
    for least, share in ((0, 7 / 8), (1, 0)):
        savings = savings_of([*items, *scaled_object("shop", "search", least, 4)], {"search": seldom})
        assert savings.limit_nano_per_hour == pytest.approx(PRICE_NANO * share, abs=100)


def test_the_limit_takes_the_highest_rate_that_one_replica_can_have_served() -> None:
    items = [*nodes(4, 1), *served("search", ["n0", "n1", "n2", "n3"])]
    steady = day([40.0] * STEPS, [4] * STEPS, [50.0] * STEPS)
    assert savings_of(items, {"search": steady}).limit_nano_per_hour < 100
    for change in (
        {"fewest_replicas": (1,) + (4,) * 95},  # for most of a step one may have served it all
        {"fewest_replicas": (2,) * STEPS, "peaks_per_second": (80.0,) + (40.0,) * 95},
    ):
        savings = savings_of(items, {"search": replace(steady, **change)})
        assert savings.limit_nano_per_hour == pytest.approx(30 * 10**9, abs=100)


def test_another_price_and_what_is_committed_move_the_limit_but_never_above_the_bill() -> None:
    items = [*nodes(3, 2), *served("search", ["n0", "n1", "n2"])]
    series = {"search": day([30.0] * STEPS, [3] * 90 + [1] * 6, [50.0] * STEPS)}
    savings = savings_of(items, series)
    assert (savings.nano_per_hour, round(savings.limit_nano_per_hour, -3)) == (PRICE_NANO, 25 * 10**9)
    committed = "prices: [{instanceType: big, perHour: 10}]\nreservations: [{instanceType: big, count: 2, perHour: 6}]"
    savings = savings_of(items, series, committed)
    _, bill = assessed(items, committed)
    assert bill.nano_per_hour == 22 * 10**9
    assert (savings.nano_per_hour, round(savings.limit_nano_per_hour, -3)) == (PRICE_NANO, PRICE_NANO)
