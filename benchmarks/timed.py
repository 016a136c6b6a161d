"""Times a plan in a process of its own, which takes a problem and sends a message for each better plan.

The problem is made and parsed elsewhere; compiled loops are loaded before the clock starts; the judge comes after it
has stopped.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeAlias

from app.worker.orders import take_orders
from benchmarks.altered import set_pricing
from solvers.compiled import read_all
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.solve import SolveBudget, solve
from solvers.planning.solved import Progress, SearchStatus

Planner: TypeAlias = "Callable[[Problem, TimedRun, Progress], Plan]"  # sent by its name: a function of a module


@dataclass(frozen=True, slots=True)
class TimedRun:
    """The planner of a run, its limits, and whether to simulate its plan."""

    planner: Planner
    seconds: float
    work: int | None = None
    seed: int = 0
    simulate: bool = False


def plan_jointly(problem: Problem, order: TimedRun, on_better: Progress) -> Plan:
    """Returns the joint planner's plan."""
    budget = SolveBudget(seconds=order.seconds, work=order.work, seed=order.seed)
    return solve(problem, budget, on_better=on_better)


def plan_blindly(problem: Problem, order: TimedRun, on_better: Progress) -> Plan:
    """Plans as if each GPU were paid by itself; the judge bills as the problem says."""
    return plan_jointly(set_pricing(problem, "gpu"), order, on_better)


def main() -> None:
    """Takes (order, problem), sends `loaded`, each better plan, `planned` and `judged`."""
    orders, send = take_orders()

    def report(what: str, **facts: Any) -> None:
        send({"what": what} | facts)

    order: TimedRun
    problem: Problem
    order, problem = next(orders)
    read_all()
    report("loaded")
    began, cpu_began = perf_counter(), cpu_seconds()

    def on_better(status: SearchStatus) -> None:
        facts = {"cost": status.cost, "bound": status.bound, "method": status.method, "serves_all": status.serves_all}
        report("better", at=perf_counter() - began, **facts)

    plan = order.planner(problem, order, on_better)
    seconds = perf_counter() - began
    report("planned", at=seconds, cpu_seconds=cpu_seconds() - cpu_began)
    report("judged", **judge_plan(problem, plan, simulate=order.simulate))


def cpu_seconds() -> float:
    """Returns the processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])


def judge_plan(problem: Problem, plan: Plan, *, simulate: bool) -> dict[str, Any]:
    """Returns what the judge finds, SLOs by the latency table and by simulation if wanted, and what the plan claims."""
    from solvers.planning.judge import judge
    from solvers.planning.search.promise import keep

    verdict = judge(problem, plan, simulate=simulate, keeps=keep)
    claim = plan.certificate
    return {
        "cost": verdict.cost.total,
        "unserved_cost": verdict.cost.unserved,
        "unserved": len(plan.unserved),
        "bound": claim.bound if claim else None,
        "method": claim.method if claim else "",
        "work": claim.work if claim else 0,
        "instances": len(plan.instances),
        "gpus_used": len({instance.place for instance in plan.instances}),
        "violations": [str(violation) for violation in verdict.violations[:5]],
    }


if __name__ == "__main__":
    main()
