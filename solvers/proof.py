"""No answer leaves unjudged, and none is better than its own bound: where one would, a solver is wrong and says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

NEAR = 1e-9  # relative: what two ways of adding the same floats may differ by


@dataclass(frozen=True, slots=True)
class Proof:
    """How good an answer is and how that is known: its judged value, the bound that no answer passes, the method."""

    value: float  # a cost or a worth, in the unit of its problem
    bound: float | None  # of the problem, whichever answer is kept; None: unknown
    method: str
    work: int = 0  # steps that the method took

    @property
    def gap(self) -> float | None:
        """The distance from value to bound, relative to the bound."""
        if self.bound is None:
            return None
        distance = abs(self.value - self.bound)
        if distance == 0:
            return 0.0
        return distance / abs(self.bound) if self.bound else inf

    @property
    def is_proved(self) -> bool:
        """No answer is better."""
        return self.value == self.bound


class SolverBug(Exception):
    """A solver contradicts the judge. No problem is the cause of it, and no answer is to be had."""


def must_be_right(method: str, violations: Sequence[str]) -> None:
    """What the judge found in an answer that was meant to break no rule."""
    if violations:
        raise SolverBug(f"{method} gives an answer that is not right: {'; '.join(violations)}")


def below(bound: float, cost: float, method: str) -> float:
    """The bound of a cost: never above it, but for what adding floats loses."""
    if bound > cost + NEAR * max(abs(bound), abs(cost)):
        raise SolverBug(f"nothing is said to cost less than {bound!r}; {method} costs {cost!r}")
    return min(bound, cost)


def above(bound: float, worth: float, method: str) -> float:
    """The bound of a worth: never below it, but for what adding floats loses."""
    if bound < worth - NEAR * max(abs(bound), abs(worth)):
        raise SolverBug(f"nothing is said to be worth more than {bound!r}; {method} is worth {worth!r}")
    return max(bound, worth)
