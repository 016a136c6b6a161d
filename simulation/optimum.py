"""The cheapest way through a day, known beforehand: every plan at every step, enumerated, for a fleet this small.

For services with one shape each, on GPUs of one type where nobody slows anybody: a plan is then a multiset of what
stands on each GPU, and the best sequence of plans a shortest path. No planner can know the day; what one pays in churn
for not knowing it is measured against this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, pairwise, permutations

import numpy as np

Standing = tuple[frozenset[str], ...]  # what stands on each GPU


@dataclass(frozen=True, slots=True)
class ServiceShape:
    """The one way in which a service runs: what an instance takes, and what it carries."""

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
    by_share: bool = False  # pays for the SM% that stand, not for whole GPUs


@dataclass(frozen=True, slots=True)
class PlanSequence:
    """A plan for every step, what they cost, and what changing from one to the next cost. The first is free."""

    plans: tuple[Standing, ...]
    cost: float
    churn: float


def optimum(day: Day) -> PlanSequence:
    """The course of least cost and churn together."""
    standings = _standings(day)
    changes = _changes(day, standings)
    totals = np.zeros(len(standings))
    came: list[np.ndarray] = []
    for step, rates in enumerate(day.rates):
        costs = np.array([_cost(day, standing, rates) for standing in standings]) * day.step_hours
        if step:
            through = totals[:, None] + changes
            came.append(through.argmin(axis=0))
            totals = through.min(axis=0) + costs
        else:
            totals = costs
    at = int(totals.argmin())
    if not np.isfinite(totals[at]):
        raise ValueError(f"{day.gpus} GPUs do not serve every step of this day")
    path = [at]
    for before in reversed(came):
        path.append(int(before[path[-1]]))
    path.reverse()
    churn = float(sum(changes[a, b] for a, b in pairwise(path)))
    return PlanSequence(tuple(standings[one] for one in path), float(totals[at]) - churn, churn)


def churn_between(day: Day, before: Standing, after: Standing) -> float:
    """The price of what is new on its GPU; GPUs are equal, so they pair up as it is cheapest."""
    new = min(
        sum(day.shapes[name].sm_percent for gpu, was in zip(after, order, strict=True) for name in gpu - was)
        for order in permutations(before)
    )
    return day.move_price * day.price_per_hour * new / 100


def _standings(day: Day) -> list[Standing]:
    names = sorted(day.shapes)
    subsets = [frozenset(some) for size in range(len(names) + 1) for some in combinations(names, size)]
    fitting = [some for some in subsets if sum(day.shapes[name].sm_percent for name in some) <= 100]
    return list(combinations_with_replacement(fitting, day.gpus))


def _cost(day: Day, standing: Standing, rates: Mapping[str, float]) -> float:
    """Per hour; infinite where a service is not carried whole."""
    for name, shape in day.shapes.items():
        if sum(name in gpu for gpu in standing) * shape.rate_per_second < rates[name] * (1 - 1e-9):
            return float("inf")
    if day.by_share:
        return day.price_per_hour * sum(day.shapes[name].sm_percent for gpu in standing for name in gpu) / 100
    return day.price_per_hour * sum(bool(gpu) for gpu in standing)


def _changes(day: Day, standings: Sequence[Standing]) -> np.ndarray:
    """What every change costs, by standing before and after."""
    names = sorted(day.shapes)
    sizes = np.array([day.shapes[name].sm_percent for name in names])
    has = np.array([[[name in gpu for name in names] for gpu in standing] for standing in standings])
    best = np.full((len(standings), len(standings)), np.inf)
    for order in permutations(range(day.gpus)):
        before = has[:, order]
        new = (has[None] & ~before[:, None]) @ sizes
        best = np.minimum(best, new.sum(axis=2))
    return best * day.move_price * day.price_per_hour / 100
