"""Searches for the division that lets the fleet cost least, with a bound that no division of it can beat.

First the planner has every node in all ways at once. What it uses is the first division to try, and its certificate's
bound holds for every division. Then single nodes are divided, or not, as long as that makes the fleet cheaper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from app.control.answer.division.check import find_faults
from app.control.answer.division.divided import divide_fleet, price_idle_devices, relax_fleet
from app.control.answer.division.layouts import DivisibleFleet, MigLayout
from app.control.answer.division.least_cost import raise_bound
from app.control.answer.whatif.compare import FindPlan, WhatIfSide
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.search.promise import keep
from solvers.proof import below

Division = Mapping[str, MigLayout]

MOST_TRIES = 40  # of divisions
MOST_SIMULATED_COPIES = 200  # of a proposal: with more, the latency function alone judges
EQUAL_SHARE = 1e-6


@dataclass(frozen=True, slots=True)
class DividedFleet:
    """A division, the plan on it, and what the fleet costs then: all of a divided GPU where one device is used."""

    division: Division
    side: WhatIfSide
    cost: float

    @property
    def paid_per_hour(self) -> float:
        """Returns the cost without the price of what is unserved."""
        certificate = self.side.plan.certificate
        assert certificate
        return self.cost - certificate.cost.unserved

    @property
    def unserved_per_second(self) -> float:
        return sum(entry.rate_per_second for entry in self.side.plan.unserved)


@dataclass(frozen=True, slots=True)
class FoundDivision:
    """The best division, the undivided fleet, and a bound of both; `refused` says why others were not kept."""

    best: DividedFleet
    undivided: DividedFleet
    bound: float | None
    refused: tuple[str, ...]

    @property
    def saves_per_hour(self) -> float:
        return self.undivided.paid_per_hour - self.best.paid_per_hour

    @property
    def serves_more_per_second(self) -> float:
        return self.undivided.unserved_per_second - self.best.unserved_per_second

    @property
    def known_bound(self) -> float | None:
        """Returns the bound where it is money alone: while something is unserved, it holds a penalty."""
        return None if self.undivided.side.plan.unserved else self.bound


@dataclass(slots=True)
class DivisionSearch:
    """The search on one fleet. `is_late` ends it; what was found by then counts."""

    problem: Problem
    before: WhatIfSide
    fleet: DivisibleFleet
    solve: FindPlan
    is_late: Callable[[], bool]
    _known: dict[tuple[tuple[str, str], ...], DividedFleet | None] = field(default_factory=dict)
    _refused: list[str] = field(default_factory=list)

    def find(self) -> FoundDivision:
        """Returns the cheapest division that was found; the undivided fleet where none is cheaper."""
        undivided = DividedFleet({}, self.before, self.before.cost)
        relaxed = relax_fleet(self.problem, self.fleet, self.before.cost)
        plan = self.solve(relaxed.problem) if relaxed.candidates else None
        if plan is None:
            return FoundDivision(undivided, undivided, None, ())
        side = WhatIfSide(relaxed.problem, plan).or_better(self.before.plan)
        certificate = side.plan.certificate
        bound = certificate.bound if certificate and relaxed.is_complete else None
        if bound is not None and not self.before.plan.unserved:
            bound = raise_bound(self.problem, bound)
        best = self._improve(self._choose_better(undivided, self._try(*relaxed.seat(side.plan))), bound)
        if bound is not None:
            bound = below(bound, best.cost, "a division")
        return FoundDivision(best, undivided, bound, tuple(dict.fromkeys(self._refused)))

    def _improve(self, best: DividedFleet, bound: float | None) -> DividedFleet:
        """Divides single nodes, or not, as long as that is cheaper; at the bound it only divides fewer."""
        while not self.is_late():
            better, is_least = best, bound is not None and best.cost <= bound * (1 + EQUAL_SHARE)
            for division in self._list_smaller(best.division) if is_least else self._list_neighbours(best.division):
                if len(self._known) >= MOST_TRIES or self.is_late():
                    break
                better = self._choose_better(better, self._try(division, None))
            if better is best:
                break
            best = better
        return best

    def _choose_better(self, best: DividedFleet, other: DividedFleet | None) -> DividedFleet:
        """Returns the cheaper one; of two alike, the one that divides fewer nodes."""
        equal = EQUAL_SHARE * best.paid_per_hour  # what is unserved may cost a thousand times as much
        if other is None or other.cost > best.cost + equal:
            return best
        is_cheaper = other.cost < best.cost - equal
        return other if is_cheaper or len(other.division) < len(best.division) else best

    def _list_smaller(self, division: Division) -> Iterator[Division]:
        """Yields the division with one node less."""
        for group in self.fleet.groups:
            for layout in group.layouts:
                same = [name for name in group.nodes if division.get(name) == layout]
                if same:
                    yield {name: known for name, known in division.items() if name != same[-1]}

    def _list_neighbours(self, division: Division) -> Iterator[Division]:
        """Yields the division with one node less, more, or divided otherwise."""
        yield from self._list_smaller(division)
        for group in self.fleet.groups:
            whole = next((name for name in group.nodes if name not in division), None)
            for layout in group.layouts:
                if whole is not None:
                    yield {**division, whole: layout}
                others = [name for name in group.nodes if division.get(name, layout) != layout]
                if others:
                    yield {**division, others[-1]: layout}

    def _try(self, division: Division, known: Plan | None) -> DividedFleet | None:
        """Returns the fleet with this division; None where it is undivided, known already, or not right."""
        key = tuple(sorted((name, layout.gpu_type) for name, layout in division.items()))
        if not division or key in self._known:
            return None
        self._known[key] = None
        divided = divide_fleet(self.problem, division)
        plan = self.solve(divided)
        if plan is None:
            return None
        side = WhatIfSide(divided, plan).or_better(known)
        used = {line.node for line in side.plan.instances}
        if not division.keys() <= used:
            kept = {name: layout for name, layout in division.items() if name in used}
            return self._try(kept, side.plan)
        faults = [*find_faults(self.problem, self.before.plan, divided, side.plan, division), *find_violations(side)]
        if faults:
            self._refused += faults[:1]
            return None
        found = DividedFleet(division, side, side.cost + price_idle_devices(divided, side.plan, division))
        self._known[key] = found
        return found


def find_violations(side: WhatIfSide) -> list[str]:
    """Returns the rules that the plan breaks, by the judge alone."""
    simulate = len(side.plan.instances) <= MOST_SIMULATED_COPIES
    verdict = judge(side.problem, side.plan, simulate=simulate, keeps=None if simulate else keep)
    return [str(violation) for violation in verdict.violations]


def count_layouts(division: Division) -> Counter[tuple[str, str]]:
    """Returns how many nodes are divided in each way, by their GPU type and the profile."""
    return Counter((layout.whole_type, layout.profile.name) for layout in division.values())
