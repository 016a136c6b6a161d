"""The dual bound of the joint plan: every kind of GPU with its classes, and the bound that prices of rates prove."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.planning.bound.lines import full_ratios
from solvers.planning.bound.market import (
    AcceptedRates,
    GpuClass,
    KnapsackScratch,
    Market,
    MarketLook,
    RealPattern,
    markets,
    most_pressure,
    new_class,
    part_of_class,
    scratch,
)
from solvers.planning.duals import NEED_SHARE, SAFETY_SHARE
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.pressures import Pressure
from solvers.planning.search.arrays import world
from solvers.planning.search.tables import Tables
from solvers.planning.step_prices import StepPrices, priced_steps
from solvers.planning.steps import NO_STEPS, RateSteps, worths

STEPS_A_WORK = 100  # of exact searches


@dataclass
class BoundFleet:
    """Everything that the bound reads, and the classes, which become more."""

    tables: Tables
    accepted: AcceptedRates
    need: Floats
    most_price: Floats  # no price above this is of use: leaving a service out costs no more
    markets: list[Market]
    scratch: KnapsackScratch
    count: Floats  # GPUs of each pool
    fixed: Floats  # what using a GPU of a pool costs, whatever its share
    steps: RateSteps = NO_STEPS
    least_unserved: float = 1.0  # requests a second: a smaller unserved rate costs as much as this

    def priced_steps(self, prices: Floats) -> StepPrices:
        """Returns the steps that have a price: prices of rates come first, then those of steps."""
        return priced_steps(self.steps, prices[len(self.need) :], len(self.need))

    def limited(self, prices: Floats) -> Floats:
        """Returns the prices, those of rates no higher than what leaving a service out costs."""
        services = len(self.need)
        return np.concatenate([np.minimum(prices[:services], self.most_price), prices[services:]])

    def money(self, prices: Floats) -> Floats:
        """Returns what all of each service's rate and steps are worth."""
        services = len(self.need)
        of_steps = prices[services:] * self.steps.least
        found: Floats = prices[:services] * self.need + np.bincount(self.steps.service, of_steps, minlength=services)
        return found

    @property
    def scales(self) -> bool:
        """Returns whether the worth of a GPU is in proportion to the prices of rates."""
        return not any(m.share_price > 0.0 or m.energy.any() for m in self.markets)

    def work_of_class(self, m: Market) -> int:
        """Returns the steps of work that the lines of a class take: about a microsecond each."""
        return (m.last - m.first) * 60


def fleet(t: Tables) -> BoundFleet:
    """Returns every pool of the fleet, in one class each of all pressures."""
    w = world(t)
    full_ratio = np.zeros((len(t.loads), len(t.batches)))
    full_ratios(w, full_ratio)
    need = t.rate * NEED_SHARE
    made = markets(t, w, full_ratio, need)
    shared_need = np.where(t.is_dedicated, 0.0, need)
    s = scratch(made, has_both=t.has_both)
    policy = t.problem.policy
    idle = [t.problem.gpu_types[pool.gpu_type].idle_w * policy.energy_price_per_kwh / 1000.0 for pool in t.pools]
    whole = [pool.price_per_hour if policy.pricing == "gpu" else 0.0 for pool in t.pools]
    f = BoundFleet(
        tables=t,
        accepted=AcceptedRates(w, full_ratio, shared_need, np.where(t.survives, shared_need, 0.0)),
        need=need,
        most_price=t.unserved_price * np.maximum(need, 1.0) / need,
        markets=made,
        scratch=s,
        count=np.array([len(pool.gpus) for pool in t.pools], dtype=np.float64),
        fixed=np.array(whole) + np.array(idle),
    )
    runs: NDArray[np.bool_] = np.any(np.isfinite(t.exec_ms), axis=1)
    for m in made:
        used = np.unique(t.offer_profile[m.first : m.last])
        m.classes = [class_of(f, m, 0j, most_pressure(m, s, runs[used]))]
    return f


def class_of(f: BoundFleet, m: Market, lo: Pressure, hi: Pressure) -> GpuClass:
    """Makes a class of a market, without prices yet."""
    return new_class(f.accepted, m, lo, hi)


@dataclass(frozen=True)
class PriceEvaluation:
    """The bound that prices of rates prove, and the patterns that keep it from being higher."""

    prices: Floats  # of rates, and then of steps
    worth: Floats  # of a GPU of each market
    bound: float
    patterns: list[RealPattern]
    work: int


def look_at(f: BoundFleet, prices: Floats, *, least: float = -np.inf, most_work: float = np.inf) -> PriceEvaluation:
    """Computes the bound of these prices; not exactly where it is no more than `least` anyway, or needs too much work.

    How far a GPU's worth is below its cost does not count, unless it is paid in any case.
    """
    steps = f.priced_steps(prices)
    looks = [
        MarketLook(
            f.accepted, m, prices, steps, f.scratch, float(f.fixed[m.pools].min(initial=np.inf))
        )
        for m in f.markets
    ]  # fmt: skip
    real = np.array([look.real for look in looks])
    if scale_prices(f, prices, real)[1] > least:
        left = most_work * STEPS_A_WORK
        for look in looks:
            look.search_exactly(in_all=left)
            left -= look.steps_done
    worth = np.array([look.worth for look in looks])
    work = sum(
        len(m.classes) * ((m.last - m.first) // 10 + 50) + 30 * len(look.patterns) + look.steps_done // STEPS_A_WORK
        for m, look in zip(f.markets, looks, strict=True)
    )
    patterns = [p for look in looks for p in look.patterns]
    return PriceEvaluation(prices, worth, value(f, prices, worth), patterns, work)


def value(f: BoundFleet, prices: Floats, worth: Floats) -> float:
    """Returns the Lagrangian bound: the worth of rates less the worth of GPUs beyond their cost."""
    served = worth_of_rates(f, prices)
    beyond = np.maximum(worth[market_of(f)] - f.fixed, 0.0) * f.count
    size = float(served.sum() + (np.abs(worth[market_of(f)]) + f.fixed) @ f.count)
    return float(served.sum() - beyond.sum()) - SAFETY_SHARE * size


def market_of(f: BoundFleet) -> Ints:
    """Returns the market of each pool."""
    of = np.zeros(len(f.count), dtype=np.int64)
    for m in f.markets:
        of[m.pools] = m.number
    return of


def worth_of_rates(f: BoundFleet, prices: Floats) -> Floats:
    """Returns the least that each service's rate brings in or costs unserved, over all unserved amounts."""
    services = len(f.need)
    unserved = f.tables.unserved_price
    found = worths(prices[:services], f.need, unserved, f.steps, prices[services:], f.least_unserved)
    least: Floats = found.least(np.ones(1), services)[0]
    return least


def scale_prices(f: BoundFleet, prices: Floats, worth: Floats) -> tuple[float, float]:
    """Returns the multiple of these prices with the best bound, and that bound, where worths scale with prices."""
    best, by = value(f, prices, worth), 1.0
    if not f.scales:
        return by, best
    of = worth[market_of(f)]
    for factor in np.unique(f.fixed[of > 0.0] / of[of > 0.0]):
        bound = value(f, prices * factor, worth * factor)
        if bound > best:
            best, by = bound, float(factor)
    return by, best


def part(f: BoundFleet, m: Market, c: GpuClass, of: tuple[Pressure, Pressure], prices: Floats) -> tuple[GpuClass, int]:
    """Returns a part of a class, finer where that counts at these prices, and how many lines it looked at."""
    steps = f.priced_steps(prices)
    return part_of_class(f.accepted, m, c, of, prices, steps)
