"""Compares what may follow when all rates of a running fleet move: a repair, a plan from nothing, a search.

Each is made in this process alone, within as many steps or seconds of a processor, and judged beside what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from time import process_time
from typing import Any

from benchmarks.altered import move_rates
from solvers.compiled import read_all
from solvers.planning.drafting.drafts import SearchDraft, drafts, prepare
from solvers.planning.finish import finish_plan
from solvers.planning.judge import judge
from solvers.planning.plan import Plan, ServicePlan
from solvers.planning.problem import Problem, RunningState
from solvers.planning.replan.running import choose_beside_running, fit, repair_running
from solvers.planning.replan.search import search
from solvers.planning.search.promise import keep
from solvers.planning.search.realise import instances
from solvers.planning.search.tables import Tables, tables


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Ends a search by its steps, or by the seconds of a processor that it took."""

    cpu_seconds: float
    work: int | None
    seed: int

    def best(self, making: Iterator[SearchDraft]) -> tuple[SearchDraft, int]:
        """Returns the cheapest draft, and the steps that were made."""
        began, best, steps = process_time(), None, 0
        for draft in making:
            if self.work is not None and draft.work > self.work:
                break
            steps = draft.work
            if draft.method and (best is None or draft.cost < best.cost):
                best = draft
            if best and self.work is None and process_time() > began + self.cpu_seconds:
                break
        assert best, "every search makes a first draft"
        return best, steps


def running_plan(problem: Problem, limits: SearchLimits) -> Plan:
    """Returns a plan from nothing, once all loops are compiled: no clock is to measure that."""
    read_all()
    t = tables(problem)
    best, _ = limits.best(drafts(prepare(t), limits.seed))
    return finish_plan(t, best, None, best.method)


def compare(problem: Problem, plan: Plan, share: float, limits: SearchLimits) -> Iterator[dict[str, Any]]:
    """Yields a row for each way to follow, from this plan, rates that all moved by up to this share."""
    moved = replace(move_rates(problem, limits.seed, share), state=RunningState(None, plan.instances))
    t = tables(moved)  # before the clock starts: all ways need them
    ways: dict[str, Callable[[Tables, SearchLimits], tuple[ServicePlan, int]]] = {
        "repaired": _repair,
        "from nothing": _plan_from_nothing,
        "from what runs": _search,
    }
    for name, way in ways.items():
        began = process_time()
        services, steps = way(t, limits)
        seconds = process_time() - began
        yield {"way": name, "steps": steps, "cpu_seconds": round(seconds, 2)} | _judged(moved, services)


def _repair(t: Tables, _: SearchLimits) -> tuple[ServicePlan, int]:
    return repair_running(t), 0


def _plan_from_nothing(t: Tables, limits: SearchLimits) -> tuple[ServicePlan, int]:
    best, steps = limits.best(drafts(prepare(t), limits.seed))
    return fit(t, *instances(t, best.placed)), steps


def _search(t: Tables, limits: SearchLimits) -> tuple[ServicePlan, int]:
    best, steps = limits.best(search(t, limits.seed))
    return choose_beside_running(t, *instances(t, best.placed)), steps


def _judged(problem: Problem, services: ServicePlan) -> dict[str, Any]:
    """Returns the figures of these services beside what runs, by the judge."""
    plan = Plan(tuple(services.instances), unserved=tuple(services.unserved))
    verdict = judge(problem, plan, simulate=False, keeps=keep)
    cost, changes = verdict.cost, verdict.changes
    return {
        "cost": cost.total,
        "churn": cost.churn,
        "value": cost.value(problem.policy) if verdict.is_right else inf,
        "copies": len(plan.instances),
        "handed_over": changes.made,
        "handed_share": round(changes.made / max(1, len(plan.instances)), 3),
        "unserved": len(plan.unserved),
        "violations": [str(violation) for violation in verdict.violations[:5]],
    }
