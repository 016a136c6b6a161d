"""Raises the bound of every division to the least sum of whole GPUs and nodes at or above it: devices are not paid."""

from __future__ import annotations

from collections import Counter
from math import gcd, inf

from solvers.planning.duals import Attainable
from solvers.planning.judge.billing import is_billed_whole, whole_price
from solvers.planning.problem import Problem

UNITS_A_PRICE = 10_000  # prices that are no multiples of 1 / this are not rounded to
MOST_UNITS = 200_000


def raise_bound(problem: Problem, bound: float) -> float:
    """Returns the least cost at or above the bound that a plan which serves all can have; `problem` is undivided."""
    policy = problem.policy
    if policy.pricing == "share" or policy.energy_price_per_kwh or policy.money_weight != 1:
        return bound
    if any(node.pricing == "paid" for node in problem.nodes.values()):
        return bound
    units: Counter[int] = Counter()
    for node in problem.nodes.values():
        is_whole = is_billed_whole(node, policy)
        price = whole_price(node) if is_whole else node.price_per_hour
        unit = round(price * UNITS_A_PRICE)
        if abs(unit / UNITS_A_PRICE - price) > 1e-9 * price:
            return bound
        units[unit] += 1 if is_whole else node.gpu_count
    if not units:
        return bound
    divisor = gcd(*units)
    if sum(unit // divisor * number for unit, number in units.items()) > MOST_UNITS:
        return bound
    sums = 1
    for unit, number in units.items():
        left, step = number, 1
        while left > 0:  # 1, 2, 4, ... at a time: every number up to all of them
            take = min(step, left)
            sums |= sums << (unit // divisor * take)
            left, step = left - take, 2 * step
    least_price = min(map(policy.price_unserved, problem.services.values()), default=inf)
    return Attainable(sums, divisor / UNITS_A_PRICE, least_price).above(bound, 0.0)
