"""One timed plan in a process of its own: a problem comes in on stdin, and each better plan goes out as a line of JSON.

The problem is made and parsed elsewhere; compiled loops are loaded before the clock starts; the judge comes after it
has stopped.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeAlias

from solvers.compiled import read_all
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem

Tell: TypeAlias = Callable[
    [float, float, float | None, str], None
]  # cost, bound, method: seconds are told by our clock
Planner: TypeAlias = "Callable[[Problem, TimedRun, Tell], Plan]"


@dataclass(frozen=True, slots=True)
class TimedRun:
    """What to plan, by whom, and for how long."""

    planner: str  # a key of PLANNERS
    seconds: float
    work: int | None = None
    seed: int = 0
    simulate: bool = False


def _ours() -> Planner:
    from solvers.planning.solve import SolveBudget, solve

    def plan(problem: Problem, order: TimedRun, tell: Tell) -> Plan:
        budget = SolveBudget(seconds=order.seconds, work=order.work, seed=order.seed)
        return solve(problem, budget, on_better=tell)

    return plan


def _hetsev() -> Planner:
    from benchmarks.hetsev import solve

    return lambda problem, order, tell: solve(problem)


PLANNERS: dict[str, Callable[[], Planner]] = {"ours": _ours, "hetsev": _hetsev}


def main() -> None:
    """Read (order, problem), answer `loaded`, plan, and say how it went."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints is not an answer

    def say(what: str, **facts: Any) -> None:
        lines.write(json.dumps({"what": what} | facts) + "\n")

    order: TimedRun
    problem: Problem
    order, problem = pickle.load(sys.stdin.buffer)  # noqa: S301 (from the process that started us)
    planner = PLANNERS[order.planner]()
    read_all()
    say("loaded")
    began = perf_counter()

    def tell(seconds: float, cost: float, bound: float | None, method: str) -> None:
        say("better", at=perf_counter() - began, cost=cost, bound=bound, method=method)

    plan = planner(problem, order, tell)
    seconds = perf_counter() - began
    say("planned", at=seconds)
    say("judged", **judged(problem, plan, simulate=order.simulate))


def judged(problem: Problem, plan: Plan, *, simulate: bool) -> dict[str, Any]:
    """What the judge finds, SLOs by the latency table and by simulation where asked for, and what the plan claims."""
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
