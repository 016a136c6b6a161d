"""A proposed change, and its confirmation by the judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from solvers.planning.explain.applied import Offer, RelaxedCase, apply_offer, find_whole_offer
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A change: its words, its size, the problem with it, and the plan that then serves the service."""

    dimension: str
    words: str
    relative: float
    problem: Problem
    plan: Plan


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that serves the service as far as its GPUs are known; the judge has yet to confirm it."""

    dimension: str
    words: str
    relative: float
    changed: RelaxedCase
    offer: Offer


def confirm(proposal: Proposal) -> Relaxation | None:
    """Applies a change; returns it if the judge accepts the plan."""
    plan = apply_offer(proposal.changed, proposal.offer)
    if plan is None:
        return None
    return Relaxation(proposal.dimension, proposal.words, proposal.relative, proposal.changed.changed, plan)


def propose(dimension: str, words: str, relative: float, changed: RelaxedCase) -> Proposal | None:
    found = find_whole_offer(changed)
    return Proposal(dimension, words, relative, changed, found) if found else None


def least_number(count: int, holds: Callable[[int], bool]) -> int | None:
    """Returns the first number below `count` from which on it holds; looks near 0 first."""
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
