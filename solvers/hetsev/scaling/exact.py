"""HetSev's integer program, by OR-Tools (SCIP) and by PuLP (CBC)."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

from solvers.hetsev.scaling.problem import Actions, ScalingBudget, ScalingProblem

PASSED_OVER = {"cbc": 1e-5, "ortools": 1e-6}  # a solver may miss an answer cheaper by at most this
SOLVERS = tuple(PASSED_OVER)
LET_GO = 1e-6  # relative: the share of the arrivals that the judge ignores


@dataclass(frozen=True, slots=True)
class ExactScaling:
    """The answer of a solver: actions, if it found any, a lower bound, and whether it proved them optimal."""

    actions: dict[str, int] | None
    bound: float | None
    is_proved: bool


def solve(problem: ScalingProblem, budget: ScalingBudget) -> ExactScaling:
    """Solves within the budget. The bound is the cost of a proved optimum, else that of the LP relaxation or the
    search; it is lowered by the solver's tolerance."""
    if budget.solver not in SOLVERS:
        raise ValueError(f"solver {budget.solver} is unknown; there are {', '.join(SOLVERS)}")
    if not problem.types:
        return ExactScaling({}, problem.unserved_price * problem.arrivals_per_second, True)
    if budget.solver == "ortools":
        found = _solve_by_ortools(problem, budget.nodes)
    else:
        with warnings.catch_warnings():
            # PuLP 3 warns of PuLP 4, which has no CBC for Python 3.11.
            warnings.simplefilter("ignore", DeprecationWarning)
            found = _solve_by_pulp(problem, budget.nodes)
    bound = _cost(problem, found.actions) if found.is_proved and found.actions is not None else found.bound
    if bound is not None:
        bound -= PASSED_OVER[budget.solver] * max(1.0, abs(bound))
    return ExactScaling(found.actions, bound, found.is_proved)


def _sum_needed(problem: ScalingProblem) -> float:
    return problem.arrivals_per_second * (1 - LET_GO)


def _cost(problem: ScalingProblem, actions: Actions) -> float:
    """Returns the program's objective at whole numbers: the solver's own value carries its rounding."""
    total = served = 0.0
    for kind in problem.types:
        change = actions[kind.name]
        total += kind.cost_per_hour * (change + problem.unpredictability * kind.launch_seconds * max(change, 0))
        if problem.keeps_promise(kind):
            served += kind.throughput_per_second * (kind.running + change)
    return total + problem.unserved_price * max(0.0, _sum_needed(problem) - served)


def _most(problem: ScalingProblem, index: int) -> int:
    """Returns the most instances of a type that a sensible answer starts: limited by arrivals and by what exists."""
    kind = problem.types[index]
    if not problem.keeps_promise(kind):  # (4)
        return 0
    most = math.ceil(problem.arrivals_per_second / kind.throughput_per_second)
    if kind.most is not None:
        most = min(most, kind.most - kind.running)
    return max(most, 0)


def _solve_by_pulp(problem: ScalingProblem, nodes: int | None) -> ExactScaling:
    import pulp  # it takes a second to import, and only this solver needs it

    model = pulp.LpProblem("scaling", pulp.LpMinimize)
    change = []
    started = []
    for index, kind in enumerate(problem.types):
        change.append(pulp.LpVariable(f"x{index}", -kind.running, _most(problem, index), pulp.LpInteger))  # (3)
        started.append(pulp.LpVariable(f"started{index}", 0))
        model += started[index] >= change[index]
    unserved = pulp.LpVariable("unserved", 0)
    arrivals = max(problem.arrivals_per_second, 1e-9)
    carried = pulp.lpSum(
        kind.throughput_per_second / arrivals * (kind.running + change[index])
        for index, kind in enumerate(problem.types)
        if problem.keeps_promise(kind)
    )
    model += carried + unserved >= _sum_needed(problem) / arrivals  # (1), scaled: tolerances are absolute
    model += (
        pulp.lpSum(
            kind.cost_per_hour * (x + problem.unpredictability * kind.launch_seconds * new)
            for kind, x, new in zip(problem.types, change, started, strict=True)
        )
        + problem.unserved_price * arrivals * unserved
    )
    is_limited = nodes is not None
    # PuLP reports "Optimal" even when a limit stopped it, so its status counts only if there was no limit.
    bound = _solve_relaxation(pulp, model, change) if is_limited else None
    status = model.solve(pulp.PULP_CBC_CMD(msg=False, gapRel=0.0, gapAbs=1e-9, threads=1, maxNodes=nodes))
    values = [x.varValue for x in change]
    if status != pulp.LpStatusOptimal or not all(_is_whole(value) for value in values):  # stopped without an answer
        return ExactScaling(None, bound, False)
    actions = {kind.name: round(value) for kind, value in zip(problem.types, values, strict=True)}
    return ExactScaling(actions, bound, not is_limited)


def _is_whole(value: float | None) -> bool:
    return value is not None and abs(value - round(value)) < 1e-4


def _solve_relaxation(pulp: Any, model: Any, change: list[Any]) -> float | None:
    """Returns the cost of the LP relaxation, a bound that holds wherever a search was stopped."""
    for x in change:
        x.cat = pulp.LpContinuous
    status = model.solve(pulp.HiGHS(msg=False, threads=1))
    bound = float(pulp.value(model.objective)) if status == pulp.LpStatusOptimal else None
    for x in change:
        x.cat = pulp.LpInteger
    return bound


def _solve_by_ortools(problem: ScalingProblem, nodes: int | None) -> ExactScaling:
    from ortools.linear_solver import pywraplp

    model: Any = pywraplp.Solver.CreateSolver("SCIP")
    arrivals = max(problem.arrivals_per_second, 1e-9)
    infinity = model.infinity()
    change = [
        model.IntVar(-kind.running, _most(problem, index), f"x{index}") for index, kind in enumerate(problem.types)
    ]
    started = [model.NumVar(0, infinity, f"started{index}") for index in range(len(problem.types))]
    unserved = model.NumVar(0, infinity, "unserved")
    for new, x in zip(started, change, strict=True):
        model.Add(new >= x)
    able = [(kind, x) for kind, x in zip(problem.types, change, strict=True) if problem.keeps_promise(kind)]
    carried = sum((kind.throughput_per_second / arrivals * (kind.running + x) for kind, x in able), unserved)
    model.Add(carried >= _sum_needed(problem) / arrivals)  # (1)
    cost = problem.unserved_price * arrivals * unserved
    for kind, x, new in zip(problem.types, change, started, strict=True):
        cost += kind.cost_per_hour * x + kind.cost_per_hour * problem.unpredictability * kind.launch_seconds * new
    model.Minimize(cost)
    settings = "limits/gap = 0\nnumerics/feastol = 1e-9\n"
    model.SetSolverSpecificParametersAsString(settings + ("" if nodes is None else f"limits/nodes = {nodes}\n"))
    status = model.Solve()
    if status not in (model.OPTIMAL, model.FEASIBLE):
        return ExactScaling(None, None, False)
    actions = {kind.name: round(x.solution_value()) for kind, x in zip(problem.types, change, strict=True)}
    return ExactScaling(actions, model.Objective().BestBound(), status == model.OPTIMAL)
