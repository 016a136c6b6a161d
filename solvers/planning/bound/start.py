"""Finds first prices, at which every service's best GPU earns its cost and GPUs are not over-used."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from solvers.planning.bound.even import break_even
from solvers.planning.bound.fleet import BoundFleet, PriceEvaluation, look_at
from solvers.planning.bound.market import draw_earned
from solvers.planning.fleet.grids import SM, Floats
from solvers.planning.search.prices import resource_dual

DUAL_STEPS = 200
PACE_SHARE = 0.1
TOWARDS_SHARE = 0.3
SOFT_SHARE = 0.03  # distance from breaking even at which a market still gets some of a service's money


def even_prices(f: BoundFleet, evaluation: PriceEvaluation, extra: Floats) -> tuple[Floats, Floats]:
    """Returns the price at which each service breaks even on each market, the others' given, and the least."""
    even = np.full((len(f.need), len(f.markets)), np.inf)
    steps = f.priced_steps(evaluation.prices)
    for m in f.markets:
        cost = float(f.fixed[m.pools].min()) + float(extra[m.number])
        worth = float(evaluation.worth[m.number])
        if worth <= 0.0:
            continue
        found = np.full(m.last - m.first, np.inf)
        rows = len(m.turns) + 1
        before, behind = np.zeros((rows, SM)), np.zeros((rows, SM))
        for c in m.classes:
            draw_earned(m, evaluation.prices, steps, f.scratch, c)
            earned_lo, earned_hi = f.scratch.earned_lo[: len(m.memory_gib)], f.scratch.earned_hi[: len(m.memory_gib)]
            sigma, mu = float(c.own[0]), float(c.own[1])
            sm_price = max(m.share_price - mu * m.room_gib, 0.0) / 100.0
            fixed = max(mu * m.room_gib - m.share_price, 0.0)
            for rates, earned, total in ((c.at_lo, earned_lo, c.lo), (c.at_hi, earned_hi, c.hi)):
                break_even(
                    m.profile, m.energy, rates, earned, m.group, m.turns, m.added, m.memory_gib, sigma, mu, sm_price,
                    worth - fixed - sigma * (total - m.idle), f.scratch.values, before, behind, found,
                )  # fmt: skip
        found *= cost / worth  # worths scale with prices
        whole = np.where(m.alone > 0.0, (cost + m.share_price) / np.maximum(m.alone, 1e-300), np.inf)
        np.minimum.at(even[:, m.number], m.service, np.minimum(found, whole))
    return even, np.minimum(even.min(axis=1, initial=np.inf), f.most_price)


def demand(f: BoundFleet, prices: Floats, even: Floats, extra: Floats) -> Floats:
    """Returns the GPUs in demand on each market: services spend where their prices are closest to breaking even."""
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.where(np.isfinite(even), even / np.maximum(even.min(axis=1, keepdims=True), 1e-300) - 1.0, np.inf)
    weight = np.exp(-np.minimum(np.maximum(off, 0.0) / SOFT_SHARE, 700.0))
    weight[~np.isfinite(even)] = 0.0
    total = weight.sum(axis=1, keepdims=True)
    weight = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
    cost = np.array([float(f.fixed[m.pools].min()) + m.share_price for m in f.markets]) + extra
    served = np.where(prices < f.most_price, prices * f.need, 0.0)
    found: Floats = (weight * served[:, None]).sum(axis=0) / cost
    return found


def evened(f: BoundFleet, evaluation: PriceEvaluation, extra: Floats, steps: int) -> Iterator[PriceEvaluation]:
    """Moves prices step by step towards where every service breaks even."""
    count = np.array([f.count[m.pools].sum() for m in f.markets])
    scale = max(float(f.fixed.max(initial=0.0)), *(m.share_price for m in f.markets), 1e-9)
    for step in range(steps):
        even, least = even_prices(f, evaluation, extra)
        wanted = demand(f, least, even, extra)
        extra = np.maximum(
            0.0, extra + PACE_SHARE * scale / (1 + step / 10) * np.clip((wanted - count) / count, -1.0, 1.0)
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where((evaluation.prices > 0.0) & np.isfinite(least), least / evaluation.prices, 1.0)
        evaluation = look_at(f, np.minimum(evaluation.prices * np.clip(ratio, 0.2, 5.0) ** TOWARDS_SHARE, f.most_price))
        yield evaluation


def first_prices(f: BoundFleet) -> Floats:
    """Returns prices from a dual with a variable a market, raised where demand exceeds supply."""
    count = np.array([f.count[m.pools].sum() for m in f.markets])
    price = np.array(
        [m.share_price + float(f.fixed[m.pools] @ f.count[m.pools]) / float(f.count[m.pools].sum()) for m in f.markets]
    )
    found, _ = resource_dual(shares(f), price, count, f.need, f.most_price, DUAL_STEPS)
    return found


def shares(f: BoundFleet) -> Floats:
    """Returns the least part of a GPU, by SMs or memory, for a request a second: [service, market]."""
    share = np.full((len(f.need), len(f.markets)), 1e30)
    sm = np.arange(SM) / 100.0
    for m in f.markets:
        if m.first == m.last:
            continue
        middle = m.classes[len(m.classes) // 2].at_lo.astype(np.float64)
        taken = np.maximum(sm[None, :], (m.memory_gib / m.room_gib)[m.profile][:, None])
        least = np.full(middle.shape, np.inf)
        np.divide(taken, middle, out=least, where=middle > 1e-12)
        least = np.minimum(least.min(axis=1), np.where(m.alone > 0.0, 1.0 / np.maximum(m.alone, 1e-300), np.inf))
        np.minimum.at(share[:, m.number], m.service, np.minimum(least, 1e30))
    return share
