"""A proposed change, and its confirmation by the judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from solvers.planning.explain.applied import Offer, RelaxedCase, applied, serves
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One change: what it says, how large it is, the problem it makes, and the plan that then serves the service."""

    dimension: str
    words: str
    relative: float
    problem: Problem
    plan: Plan


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that serves the service by what is known of its GPUs; the judge has not seen it."""

    dimension: str
    words: str
    relative: float
    changed: RelaxedCase
    offer: Offer


def confirm(one: Proposal) -> Relaxation | None:
    """The change as applied, where the judge finds it right."""
    plan = applied(one.changed, one.offer)
    return Relaxation(one.dimension, one.words, one.relative, one.changed.changed, plan) if plan else None


def propose(dimension: str, words: str, relative: float, changed: RelaxedCase) -> Proposal | None:
    found = serves(changed)
    return Proposal(dimension, words, relative, changed, found) if found else None


def least_number(count: int, holds: Callable[[int], bool]) -> int | None:
    """The first number below `count` from which on it holds, where more is never worse; looked for near 0 first."""
    if count < 1 or not holds(count - 1):
        return None
    low, high, step = -1, count - 1, 1
    while low + step < high:
        if holds(low + step):
            high = low + step
            break
        low, step = low + step, step * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


CLOSE_FACTOR = 1.002  # an SLO is found within this factor, a limit within this part of its raise
