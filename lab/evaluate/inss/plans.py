"""Plans of InSS's testbed by each planner: what their instances could serve, and the highest load that they sustain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum

from app.control.formulate.problem import build_problem
from lab.evaluate.inss.claims import InssPlanFigures
from lab.evaluate.inss.experiments import EXPERIMENTS, HEAVY, PLANNED, PLANNERS
from lab.evaluate.testbeds import testbed
from solvers.planners.ask import find_plan
from solvers.planners.names import JOINT
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.solve import SolveBudget, find

WORK = 40  # of the joint planner's search
STEPS_PER_RATE = 16  # loads are whole numbers of sixteenths of the declared rates
MOST_TIMES = 4
SUSTAINED_SHARE = 0.99  # of each service's rate
ThroughputByPlanner = dict[str, float]


def plan_figures(seeds: Sequence[int]) -> InssPlanFigures:
    """Returns all figures that single plans give."""
    return InssPlanFigures(back_to_back(seeds), sustained(PLANNED, seeds), sustained(HEAVY, seeds))


def back_to_back(seeds: Sequence[int]) -> list[ThroughputByPlanner]:
    """Returns for each seed the throughput of plans for six services at their rates, if batches ran back to back."""
    problem = _problem(PLANNED)
    found = []
    for seed in seeds:
        plans = {planner: _plan(problem, planner, seed) for planner in PLANNERS}
        found.append(
            {name: fsum(line.batch * 1000 / line.exec_ms for line in plan.instances) for name, plan in plans.items()}
        )
    return found


def sustained(experiment: str, seeds: Sequence[int]) -> list[ThroughputByPlanner]:
    """Returns for each seed the most requests a second, in the declared mix, of which each service gets 99 %."""
    problem = _problem(experiment)
    asked = fsum(service.rate_per_second for service in problem.services.values())
    return [
        {planner: asked * _times(problem, planner, seed) / STEPS_PER_RATE for planner in PLANNERS} for seed in seeds
    ]


def _times(problem: Problem, planner: str, seed: int) -> int:
    """Finds the highest load by halving, in sixteenths: more load is taken to be harder."""
    low, high = 0, MOST_TIMES * STEPS_PER_RATE
    while low < high:
        middle = (low + high + 1) // 2
        times = middle / STEPS_PER_RATE
        rates = {name: service.rate_per_second * times for name, service in problem.services.items()}
        loaded = problem.with_rates(rates)
        if all(
            entry.rate_per_second <= (1 - SUSTAINED_SHARE) * rates[entry.service]
            for entry in _plan(loaded, planner, seed).unserved
        ):
            low = middle
        else:
            high = middle - 1
    return low


def _problem(experiment: str) -> Problem:
    found = next(known for known in EXPERIMENTS if known.name == experiment)
    return build_problem(testbed("inss", replace(found, times=1.0).rates))


def _plan(problem: Problem, planner: str, seed: int) -> Plan:
    budget = SolveBudget(seconds=None, work=WORK, seed=seed)
    if planner == JOINT:
        return find(problem, budget, alone=True).plan
    return find_plan(problem, planner, budget, alone=True, bounds=False).plan
