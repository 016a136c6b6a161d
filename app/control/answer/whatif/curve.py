"""Draws the least change beside the best plan: the cheapest plans found that move at most so many other services."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf

from app.control.decide.least_change import follow_rates
from app.control.formulate.question import Question
from app.control.solve import orders
from solvers.planners.names import JOINT
from solvers.planning.batches.batch import Batch, MoveLimit
from solvers.planning.judge.changes import moved_services
from solvers.planning.plan import Plan

MOST_OTHERS = (0, 3, 10)  # services beside those of the change; the last point of a curve has no limit
TRIES = 48  # groups of GPUs in each search for batches
MOST_SEARCHES = 8  # for each point of the curve
MOST_MADE = 3  # batches of a search, until one of them saves


@dataclass(frozen=True, slots=True)
class MovePoint:
    """The cheapest plan found that moves at most so many other services."""

    most: int | None  # None: any number
    plan: Plan
    moved: frozenset[str]  # beside those of the change


def can_draw(question: Question) -> bool:
    """Returns whether there is a curve: the joint planner plans, and something runs that could move."""
    state = question.problem.state
    return question.problem.policy.planner == JOINT and state is not None and bool(state.running)


@dataclass(slots=True)
class LeastChange:
    """Plans for a changed world, by how many services they move beside those that the change is about."""

    question: Question
    own: frozenset[str]
    seconds: float
    seed: int = 0
    is_counted: bool = False  # the work is bounded by the number of searches alone
    _found: list[MovePoint] = field(default_factory=list)

    def draw(self, best: Plan) -> list[MovePoint]:
        """Returns the points of the curve; fewer if nothing serves without more moves. `best` may move anything."""
        deadline = inf if self.is_counted else time.monotonic() + self.seconds
        for plan in (best, self.question.plan_in_force, self._follow()):
            self._take(plan)
        for most in MOST_OTHERS[1:]:
            for _ in range(MOST_SEARCHES):
                left = deadline - time.monotonic()
                if left <= 0 or not self._improve(most, left):
                    break
        limits: tuple[int | None, ...] = (*MOST_OTHERS, None)
        return [replace(point, most=most) for most in limits if (point := self._cheapest(most))]

    def _follow(self) -> Plan | None:
        """Returns the running plan with the changes that the services of the change need, and no others."""
        problem, plan, rates = follow_rates(self.question)
        return orders.follow_rates(orders.prepare_replanner(orders.Prepare(problem, plan)), orders.Follow(rates)).plan

    def _improve(self, most: int, seconds: float) -> bool:
        """Makes the best plan within the limit cheaper by a batch of moves; returns whether one was found."""
        start, cheapest = self._cheapest(most), self._cheapest(None)
        if start is None or cheapest is None or _rank(start)[:2] <= _rank(cheapest)[:2]:
            return False
        limit = MoveLimit(self.own | start.moved, most - len(start.moved))
        order = orders.FindBatches(
            self.question.problem, start.plan, (), TRIES, self.seed, None if self.is_counted else seconds, limit=limit
        )
        for batch in _most_saving(orders.batches_found(order).batches):
            made = orders.batches_made(orders.MakeBatches(self.question.problem, start.plan, batch.groups)).plan
            if self._take(made) and self._cheapest(most) is not start:
                return True
        return False

    def _take(self, plan: Plan | None) -> bool:
        """Keeps a plan that the judge accepts."""
        verdict = self.question.verdict_on(plan) if plan else None
        if plan is None or verdict is None or not verdict.is_right:
            return False
        known = plan.certificate
        plan = replace(plan, changes=verdict.changes, certificate=known and replace(known, cost=verdict.cost))
        state = self.question.problem.state
        moved = moved_services(plan.instances, state.running if state else ()) - self.own
        self._found.append(MovePoint(None, plan, moved))
        return True

    def _cheapest(self, most: int | None) -> MovePoint | None:
        """Returns the plan within the limit that leaves least unserved, and of those the cheapest."""
        allowed = [point for point in self._found if most is None or len(point.moved) <= most]
        return min(allowed, key=_rank, default=None)


def _most_saving(batches: tuple[Batch, ...]) -> Iterator[Batch]:
    yield from sorted(batches, key=lambda batch: (-batch.gain_per_hour, batch.groups))[:MOST_MADE]


def _rank(point: MovePoint) -> tuple[float, float, int]:
    """Ranks by what is unserved, then by money, then by moves; sums of floats that differ by rounding are equal."""
    certificate = point.plan.certificate
    cost = certificate.cost if certificate else None
    return (inf, inf, 0) if cost is None else (round(cost.unserved, 6), round(cost.resource, 6), len(point.moved))
