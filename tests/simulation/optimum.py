"""The cheapest way through a known day: enumerates every plan at every step, for a very small fleet.

It takes services with one shape each on GPUs of one type without interference: a plan is then a multiset of the
instances on each GPU, and the best sequence of plans a shortest path. No planner can know the day; this bound tells
what it pays in churn for not knowing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, pairwise, permutations

import numpy as np

Layout = tuple[frozenset[str], ...]  # instances on each GPU


@dataclass(frozen=True, slots=True)
class ServiceShape:
    """The only shape of a service: an instance's size and the load it serves."""

    sm_percent: float
    rate_per_second: float


@dataclass(frozen=True, slots=True)
class Day:
    """A fleet of equal GPUs, its services, and their rates in every step."""

    gpus: int
    price_per_hour: float
    move_price: float
    step_hours: float
    shapes: Mapping[str, ServiceShape]
    rates: Sequence[Mapping[str, float]]
    by_share: bool = False  # charges for the SM% in use, not for whole GPUs


@dataclass(frozen=True, slots=True)
class PlanSequence:
    """A plan for every step, their cost, and the cost of changes in between. The first plan is free."""

    plans: tuple[Layout, ...]
    cost: float
    churn: float


def optimum(day: Day) -> PlanSequence:
    """Returns the sequence of least cost and churn."""
    layouts = _layouts(day)
    changes = _changes(day, layouts)
    totals = np.zeros(len(layouts))
    came: list[np.ndarray] = []
    for step, rates in enumerate(day.rates):
        costs = np.array([_cost(day, layout, rates) for layout in layouts]) * day.step_hours
        if step:
            through = totals[:, None] + changes
            came.append(through.argmin(axis=0))
            totals = through.min(axis=0) + costs
        else:
            totals = costs
    at = int(totals.argmin())
    if not np.isfinite(totals[at]):
        raise ValueError(f"{day.gpus} GPUs cannot serve every step of this day")
    path = [at]
    for before in reversed(came):
        path.append(int(before[path[-1]]))
    path.reverse()
    churn = float(sum(changes[a, b] for a, b in pairwise(path)))
    return PlanSequence(tuple(layouts[index] for index in path), float(totals[at]) - churn, churn)


def churn_between(day: Day, before: Layout, after: Layout) -> float:
    """Returns the price of new instances; GPUs are equal, so they are paired at the least cost."""
    new = min(
        sum(day.shapes[name].sm_percent for gpu, was in zip(after, order, strict=True) for name in gpu - was)
        for order in permutations(before)
    )
    return day.move_price * day.price_per_hour * new / 100


def _layouts(day: Day) -> list[Layout]:
    names = sorted(day.shapes)
    subsets = [frozenset(some) for size in range(len(names) + 1) for some in combinations(names, size)]
    fitting = [some for some in subsets if sum(day.shapes[name].sm_percent for name in some) <= 100]
    return list(combinations_with_replacement(fitting, day.gpus))


def _cost(day: Day, layout: Layout, rates: Mapping[str, float]) -> float:
    """Returns the cost per hour; infinite if a service is not served fully."""
    for name, shape in day.shapes.items():
        if sum(name in gpu for gpu in layout) * shape.rate_per_second < rates[name] * (1 - 1e-9):
            return float("inf")
    if day.by_share:
        return day.price_per_hour * sum(day.shapes[name].sm_percent for gpu in layout for name in gpu) / 100
    return day.price_per_hour * sum(bool(gpu) for gpu in layout)


def _changes(day: Day, layouts: Sequence[Layout]) -> np.ndarray:
    """Returns the cost of every change between two plans."""
    names = sorted(day.shapes)
    sizes = np.array([day.shapes[name].sm_percent for name in names])
    has = np.array([[[name in gpu for name in names] for gpu in layout] for layout in layouts])
    best = np.full((len(layouts), len(layouts)), np.inf)
    for order in permutations(range(day.gpus)):
        before = has[:, order]
        new = (has[None] & ~before[:, None]) @ sizes
        best = np.minimum(best, new.sum(axis=2))
    return best * day.move_price * day.price_per_hour / 100
