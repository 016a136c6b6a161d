"""Measures changes of rates on a running plan: how long they take, what moves, and how far costs drift.

Each round gives new rates to some of the services, between 0.8 and 1.25 times the declared: the fleet's load stays
where it was, and every round starts where the previous round ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from time import process_time
from typing import Any, Protocol

import numpy as np

from solvers.planning.judge import judge
from solvers.planning.judge.changes import changes_on
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Problem
from solvers.planning.search.promise import keep

SWING_FACTOR = 1.25


class WarmPlan(Protocol):
    """A running plan that takes new rates."""

    def change(self, rates: Mapping[str, float]) -> tuple[str, ...]: ...  # why a full plan is due

    @property
    def plan(self) -> Plan: ...


@dataclass(frozen=True, slots=True)
class PlanMoves:
    """The changes between two plans."""

    started: int
    stopped: int
    resized: int
    untouched_moved: int  # instances of services without a new rate that started, stopped or were resized


def new_rates(problem: Problem, changed: float, rng: np.random.Generator) -> dict[str, float]:
    """Returns other rates for a part of the services of the declared problem."""
    names = sorted(problem.services)
    count = max(1, round(changed * len(names)))
    picked = rng.choice(len(names), size=count, replace=False)
    factors = SWING_FACTOR ** rng.uniform(-1, 1, size=count)
    return {
        names[index]: problem.services[names[index]].rate_per_second * float(factor)
        for index, factor in zip(sorted(picked.tolist()), factors, strict=True)
    }


def count_moves(before: Plan, after: Plan, touched: Collection[str]) -> PlanMoves:
    """Compares by GPU: a service in the same shape stays, in another shape it is resized; the rest starts and stops."""
    was, now = _group_by_gpu(before), _group_by_gpu(after)
    started, stopped, resized, untouched_moved = 0, 0, 0, 0
    for place in was.keys() | now.keys():
        old, new = was.get(place, []), now.get(place, [])
        found = changes_on(new, old)
        started, stopped, resized = started + len(found.starts), stopped + len(found.stops), resized + found.resize
        untouched = changes_on(
            [instance for instance in new if instance.service not in touched],
            [instance for instance in old if instance.service not in touched],
        )
        untouched_moved += len(untouched.starts) + len(untouched.stops) + untouched.resize
    return PlanMoves(started, stopped, resized, untouched_moved)


def run_rounds(
    problem: Problem, plan: Plan, replans: WarmPlan, changed: float, count: int, seed: int, clock: Callable[[], float]
) -> Iterator[tuple[Problem, dict[str, Any]]]:
    """Yields round by round the problem of that moment, and the row."""
    rng = np.random.default_rng(seed)
    current = problem
    for number in range(count):
        rates = new_rates(problem, changed, rng)
        began, began_cpu = clock(), process_time()
        reasons = replans.change(rates)
        ms, cpu_ms = (clock() - began) * 1000, (process_time() - began_cpu) * 1000
        after = replans.plan
        current = current.change_rates(rates)
        verdict = judge(current, after, simulate=False, keeps=keep)
        found = count_moves(plan, after, rates.keys())
        row = {
            "round": number,
            "ms": ms,
            "cpu_ms": cpu_ms,
            "started": found.started,
            "stopped": found.stopped,
            "resized": found.resized,
            "untouched_moved": found.untouched_moved,
            "cost": verdict.cost.total,
            "unserved": len(after.unserved),
            "violations": [str(violation) for violation in verdict.violations[:5]],
            "full_plan_due": list(reasons[:2]),
        }
        yield current, row
        plan = after


def percentiles(values: Collection[float]) -> dict[str, float]:
    """Returns p50, p99 and the largest of the measured values."""
    ordered = sorted(values)
    return {
        name: ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
        for name, percent in (("p50_ms", 50), ("p99_ms", 99), ("max_ms", 100))
    }


def _group_by_gpu(plan: Plan) -> dict[tuple[str, int], list[Instance]]:
    found: dict[tuple[str, int], list[Instance]] = defaultdict(list)
    for instance in plan.instances:
        found[instance.place].append(instance)
    return found
