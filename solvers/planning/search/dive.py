"""Finds prices by column generation, then a plan by diving: keeps the LP's whole columns and solves for the rest.

A filling of the fleet at the LP's prices gives the LP many columns at once, each for what those before it left over.
Diving continues the same way: it rounds columns, the largest first, and makes new ones for the needs that remain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.search.limits import busy_part, idle_w
from solvers.planning.search.master import PatternMaster, ResourcePrices
from solvers.planning.search.workshop import ColumnKey, PatternColumn, Workshop

SMOOTHING_SHARE = 0.5  # of the old prices in the new: the LP's own jump about
ENOUGH_SHARE = 1e-4  # of the LP's cost: rounds that gain less are the last
PATIENCE_ROUNDS = 3
MISSED_NEEDS = 1e-6  # needs, in all: less is no shortage
LEAST_WEIGHT = 1e-9  # of a column: less is not in the LP's answer


@dataclass(frozen=True, slots=True)
class DiveLimits:
    """Limits of a dive: more rounds and a smaller step cost time and find more."""

    rounds: int  # of new columns between two roundings
    up: float  # of the fractional columns, rounded up each time
    useful: float  # of its price: a column that is worth less by then is not rounded up


SHALLOW = DiveLimits(rounds=1, up=0.5, useful=0.5)
WATT_SHARE = 0.985  # of a budget
DEAR_FACTOR, DEARER_FACTOR, DEAREST_FACTOR, TRUE_FACTOR = 4.0, 16.0, 1e6, 1e9


@dataclass
class Dive:
    """The current prices, and the columns that they were computed from."""

    rate: Floats
    extra: Floats
    dear: float = DEAR_FACTOR  # times its price costs a missed request a second the LP, up to what it truly costs
    watt: float = 0.0  # of a busy watt, under a budget
    busy: float = 1.0  # the part of the time that residents are
    columns: dict[ColumnKey, PatternColumn] = field(default_factory=dict)

    def take(self, prices: ResourcePrices, first: bool, wanted: Floats) -> None:
        keep = 0.0 if first else SMOOTHING_SHARE
        new = np.where(wanted > 0, prices.rate, self.rate)
        self.rate = keep * self.rate + (1 - keep) * new
        self.extra = keep * self.extra + (1 - keep) * prices.extra
        self.watt = keep * self.watt + (1 - keep) * prices.watt


def penalties(shop: Workshop, course: Dive) -> Floats:
    """Returns the price of a missed request a second in the LP: high enough, and at most its true price.

    True prices of unserved rates far exceed all others and drown them; only fleets that are too small need them.
    """
    rate = course.rate
    floor = float(rate[rate > 0].min()) if (rate > 0).any() else 1.0
    return np.minimum(shop.t.unserved_price, course.dear * np.maximum(rate, floor))


def _set_prices(shop: Workshop, course: Dive) -> None:
    shop.pools.extra[:] = course.extra
    shop.w = shop.w._replace(watt_price=shop.w.energy_price + course.watt)


def watts_left(shop: Workshop, course: Dive, used: Ints) -> float:
    """Returns the busy watts that the budget leaves besides these GPUs."""
    if shop.t.problem.policy.power_budget_w is None:
        return np.inf
    course.busy = busy_part(shop) or course.busy
    room = shop.t.problem.policy.power_budget_w * WATT_SHARE - idle_w(shop.t)
    return max(room / course.busy - float(shop.costs(used)[1].sum()), 0.0)


def generate(
    shop: Workshop, course: Dive, rounds: int, *, tells_shortage: bool = False
) -> Iterator[ResourcePrices | None]:
    """Fills the empty fleet and computes prices, round by round; after each the board holds that filling.

    Yields None when the board is filled, then the LP's prices; ends when nothing more is gained. What is still
    missing at 64 times its price then costs the LP what it truly costs, if this `tells_shortage`.
    """
    everything = shop.t.rate
    master = _master(shop, course, everything, shop.counts)
    best, stalled = np.inf, 0
    number = 0
    while number < rounds:
        shop.clear_all()
        _set_prices(shop, course)
        used = shop.fill(course.rate, everything.copy())
        columns = shop.columns(used)
        yield None  # the board may be pruned now
        master.add(columns)
        prices = master.solve()
        course.take(prices, number == 0, everything)
        number += 1
        stalled = 0 if prices.cost < best * (1 - ENOUGH_SHARE) else stalled + 1
        best = min(best, prices.cost)
        course.columns = {c.key: c for c, x in zip(master.columns, prices.weight, strict=True) if x > LEAST_WEIGHT}
        if (stalled > 1 or number == rounds) and prices.missing.sum() > MISSED_NEEDS and course.dear < DEAREST_FACTOR:
            # Is the fleet too small, or was missing it too cheap? Many rounds that still miss it decide.
            if tells_shortage:
                course.dear, number = TRUE_FACTOR if course.dear > DEAR_FACTOR else DEAR_FACTOR * DEARER_FACTOR, 0
            else:
                course.dear *= DEARER_FACTOR
            master = _master(shop, course, everything, shop.counts)
            best, stalled = np.inf, 0
        yield prices
        if stalled >= PATIENCE_ROUNDS:
            return


def dive(
    shop: Workshop, course: Dive, prices: ResourcePrices, columns: list[PatternColumn], depth: DiveLimits
) -> Iterator[int]:
    """Rounds the LP's columns step by step until nothing is needed; yields how many services still need some."""
    shop.clear_all()
    for column, x in zip(columns, prices.weight, strict=True):
        for _ in range(int(x + 1e-6)):
            shop.place(column)
    shop.restack()
    yield from finish(shop, course, columns, depth)


def finish(shop: Workshop, course: Dive, alive: list[PatternColumn], depth: DiveLimits) -> Iterator[int]:
    """Meets the need that is left: solves an LP over old and new columns, rounds a few, and repeats."""
    while True:
        need = shop.need
        short = int((need > 0).sum())
        yield short
        if not short:
            return
        empties = shop.pools.empties.astype(np.float64)
        master = PatternMaster(
            need, penalties(shop, course), empties, watts_left(shop, course, shop.used), shop.w.offer_service
        )
        master.add(alive)
        for _ in range(depth.rounds):
            _set_prices(shop, course)
            used = shop.fill(course.rate, need.copy())
            master.add(shop.columns(used))
            shop.clear(used)
            prices = master.solve()
            course.take(prices, False, need)
        if not _round(shop, course, master, prices, depth):
            shop.fill(course.rate, need.copy())
            shop.restack()
            yield 0
            return
        alive = [c for c, x in zip(master.columns, prices.weight, strict=True) if x > LEAST_WEIGHT]


def _round(shop: Workshop, course: Dive, master: PatternMaster, prices: ResourcePrices, depth: DiveLimits) -> int:
    """Places whole columns and the largest of the others on GPUs; returns how many."""
    order = np.argsort(-prices.weight, kind="stable")
    fractional = int(((prices.weight > 1e-6) & (prices.weight < 0.999)).sum())
    up = max(1, int(depth.up * fractional))
    placed = 0
    for index in order:
        x = float(prices.weight[index])
        if x <= 1e-6 or (x < 0.999 and up == 0):
            break
        column = master.columns[index]
        if x < 0.999:
            up -= 1
        services = shop.w.offer_service[column.offers]
        for _ in range(max(1, int(x + 1e-3))):
            missing = np.maximum(shop.t.rate[services] - shop.board.cover[services], 0.0)
            worth = float((course.rate[services] * np.minimum(column.caps, missing)).sum())
            price = column.cost + course.extra[column.pool]
            if worth >= depth.useful * price and shop.place(column):
                placed += 1
    shop.restack()
    return placed


def _master(shop: Workshop, course: Dive, need: Floats, counts: Floats) -> PatternMaster:
    watts = watts_left(shop, course, np.zeros(0, dtype=np.int64))
    master = PatternMaster(need, penalties(shop, course), counts, watts, shop.w.offer_service)
    master.add(list(course.columns.values()))
    return master


def columns_of(course: Dive) -> list[PatternColumn]:
    """Returns the columns of the last LP's basis."""
    return list(course.columns.values())
