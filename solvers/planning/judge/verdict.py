"""The judge's verdict: broken rules, the cost, and how well each service's SLO is met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from solvers.planning.plan import Changes, Cost


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """A broken rule in a place; the rule is the name of its function."""

    where: str  # `node-1/0`, `shop/search on node-1/0`, `fleet`
    rule: str
    sentence: str  # with the numbers

    @property
    def owner(self) -> str:
        """The service that breaks it; another place, where it is no service that does."""
        return self.where.partition(" on ")[0]

    def __str__(self) -> str:
        return f"{self.where}: {self.rule}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement on a plan."""

    violations: tuple[Violation, ...]
    cost: Cost
    changes: Changes
    attainment: Mapping[str, float] = field(default_factory=dict)  # each service's worst instance, 0..1
    misstated: tuple[Violation, ...] = ()  # wrong claims besides the decision: predictions, changes, costs

    @property
    def is_right(self) -> bool:
        """Returns whether the plan breaks no rule."""
        return not self.violations
