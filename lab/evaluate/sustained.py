"""Raises the load of a testbed, in its declared mix, until a planner's one plan leaves a service short.

Where a paper's figure is throughput, a load that every planner serves says nothing: no one can serve more than comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import fsum
from typing import TypeAlias

from lab.evaluate.verdicts import MeasuredFigure, measured_alike
from solvers.planners.ask import find_plan
from solvers.planners.names import JOINT
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.solve import SolveBudget, find

WORK = 40  # of the joint planner's search
STEPS_PER_RATE = 16  # loads are whole numbers of sixteenths of the declared rates
SUSTAINED_SHARE = 0.99  # of each service's rate
PlanAlone: TypeAlias = Callable[[Problem, str, int], Plan]  # by a planner's name and a seed


def sustained_figure(problems: Mapping[int, Problem], planners: Sequence[str]) -> MeasuredFigure:
    """Returns the most requests a second, in the mix of a seed's problem, of which each service gets 99 %."""
    return measured_alike([sustained_rates(problem, planners, seed) for seed, problem in problems.items()])


def sustained_rates(
    problem: Problem, planners: Sequence[str], seed: int, plan: PlanAlone | None = None
) -> dict[str, float]:
    """Returns the highest sustained load of each planner.

    All loads are tried, from one that nobody sustains downwards: some planners fail at a load and carry a higher one.
    """
    asked = fsum(service.rate_per_second for service in problem.services.values())

    def sustains(planner: str, steps: int) -> bool:
        times = steps / STEPS_PER_RATE
        rates = {name: service.rate_per_second * times for name, service in problem.services.items()}
        unserved = (plan or plan_alone)(problem.change_rates(rates), planner, seed).unserved
        return all(entry.rate_per_second <= (1 - SUSTAINED_SHARE) * rates[entry.service] for entry in unserved)

    most = STEPS_PER_RATE
    while any(sustains(planner, most) for planner in planners):
        most *= 2

    def find_steps(planner: str) -> int:
        return next((steps for steps in range(most - 1, 0, -1) if sustains(planner, steps)), 0)

    return {planner: asked * find_steps(planner) / STEPS_PER_RATE for planner in planners}


def plan_alone(problem: Problem, planner: str, seed: int) -> Plan:
    """Returns a planner's plan of an empty fleet."""
    budget = SolveBudget(seconds=None, work=WORK, seed=seed)
    if planner == JOINT:
        return find(problem, budget, alone=True).plan
    return find_plan(problem, planner, budget, alone=True, bounds=False).plan
