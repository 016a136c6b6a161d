"""Certifies answers: each is judged, and an answer better than its own bound exposes a bug in a solver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

NEAR = 1e-9  # relative: by how much two orders of adding the same floats may differ


@dataclass(frozen=True, slots=True)
class Proof:
    """The judged value of an answer, the bound that no answer can pass, and the method that found both."""

    value: float  # a cost or a worth, in the unit of its problem
    bound: float | None  # of the problem, not of this answer; None: unknown
    method: str
    work: int = 0  # steps that the method took

    @property
    def gap(self) -> float | None:
        """The distance between value and bound, relative to the bound."""
        if self.bound is None:
            return None
        distance = abs(self.value - self.bound)
        if distance == 0:
            return 0.0
        return distance / abs(self.bound) if self.bound else inf


class SolverBug(Exception):
    """A solver contradicts the judge. The fault is in the solver, not in the problem, and there is no answer."""


def must_be_right(method: str, violations: Sequence[str]) -> None:
    """Raises SolverBug if the judge found a broken rule in an answer that should break none."""
    if violations:
        raise SolverBug(f"{method} returned an invalid answer: {'; '.join(violations)}")


def below(bound: float, cost: float, method: str) -> float:
    """Returns the lower bound of a cost. It may lie above the cost only by the rounding of floats."""
    if bound > cost + NEAR * max(abs(bound), abs(cost)):
        raise SolverBug(f"the lower bound is {bound!r}, but {method} costs {cost!r}")
    return min(bound, cost)


def above(bound: float, worth: float, method: str) -> float:
    """Returns the upper bound of a worth. It may lie below the worth only by the rounding of floats."""
    if bound < worth - NEAR * max(abs(bound), abs(worth)):
        raise SolverBug(f"the upper bound is {bound!r}, but {method} is worth {worth!r}")
    return max(bound, worth)
