"""HetSev's greedy as the planner of a timed run: its code and loops are read before the clock starts."""

from __future__ import annotations

from benchmarks.timed import TimedRun
from lab.published.hetsev import solve
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.solved import Progress


def plan_greedily(problem: Problem, order: TimedRun, on_better: Progress) -> Plan:
    """Returns the greedy's plan."""
    return solve(problem)
