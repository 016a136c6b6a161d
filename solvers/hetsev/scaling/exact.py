"""HetSev's integer program as written, by PuLP (CBC or HiGHS) and by OR-Tools (SCIP)."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

from solvers.hetsev.scaling.problem import RESOURCES, Actions, ScalingBudget, ScalingProblem

PASSED_OVER = {"cbc": 1e-5, "highs": 1e-6, "ortools": 1e-6}  # a solver may miss what is cheaper by no more than this
SOLVERS = tuple(PASSED_OVER)
LET_GO = 1e-6  # relative: of the arrivals, what the judge calls nothing


@dataclass(frozen=True, slots=True)
class ExactScaling:
    """What a solver says: actions, or none; a lower bound; and whether it calls them optimal."""

    actions: dict[str, int] | None
    bound: float | None
    is_proved: bool


def solve(problem: ScalingProblem, budget: ScalingBudget) -> ExactScaling:
    """Solve within the budget. The bound is the cost of what is proved, else that of the LP relaxation or the search;
    either keeps clear of the solver's tolerances."""
    if budget.solver not in SOLVERS:
        raise ValueError(f"solver {budget.solver} is unknown; there are {', '.join(SOLVERS)}")
    if not problem.types:
        return ExactScaling({}, problem.unserved_price * problem.arrivals_per_second, True)
    if budget.solver == "ortools":
        found = _by_ortools(problem, budget.nodes)
    else:
        with warnings.catch_warnings():
            # PuLP 3 warns of PuLP 4, which has no CBC for Python 3.11.
            warnings.simplefilter("ignore", DeprecationWarning)
            found = _by_pulp(problem, budget.solver, budget.nodes)
    bound = _cost(problem, found.actions) if found.is_proved and found.actions is not None else found.bound
    if bound is not None:
        bound -= PASSED_OVER[budget.solver] * max(1.0, abs(bound))
    return ExactScaling(found.actions, bound, found.is_proved)


def _needed(problem: ScalingProblem) -> float:
    return problem.arrivals_per_second * (1 - LET_GO)


def _cost(problem: ScalingProblem, actions: Actions) -> float:
    """The program's objective at whole numbers: a solver's own is as exact as its variables are whole."""
    total = carried = 0.0
    for kind in problem.types:
        change = actions[kind.name]
        total += kind.cost_per_hour * (change + problem.unpredictability * kind.launch_seconds * max(change, 0))
        if problem.keeps_promise(kind):
            carried += kind.throughput_per_second * (kind.running + change)
    return total + problem.unserved_price * max(0.0, _needed(problem) - carried)


def _most(problem: ScalingProblem, index: int) -> int:
    """How many of a type any sensible answer starts: what the arrivals need, and what there is."""
    kind = problem.types[index]
    if not problem.keeps_promise(kind):  # (4)
        return 0
    most = math.ceil(problem.arrivals_per_second / kind.throughput_per_second)
    if kind.most is not None:
        most = min(most, kind.most - kind.running)
    return max(most, 0)


def _limits(problem: ScalingProblem) -> list[tuple[str, float]]:
    """(resource, what running and started instances may take): more than now only if there is room for it."""
    limits = []
    for resource in RESOURCES:
        there = getattr(problem.totals, resource)
        now = sum(getattr(kind, resource) * kind.running for kind in problem.types)
        if there < math.inf:
            limits.append((resource, max(there, now)))
    return limits


def _by_pulp(problem: ScalingProblem, solver: str, nodes: int | None) -> ExactScaling:
    import pulp  # a second of imports that only this solver needs

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
    model += carried + unserved >= _needed(problem) / arrivals  # (1), scaled: tolerances are absolute
    for resource, there in _limits(problem):  # (2)
        taken = pulp.lpSum(getattr(k, resource) * (k.running + x) for k, x in zip(problem.types, change, strict=True))
        model += taken <= there
    model += (
        pulp.lpSum(
            kind.cost_per_hour * (x + problem.unpredictability * kind.launch_seconds * new)
            for kind, x, new in zip(problem.types, change, started, strict=True)
        )
        + problem.unserved_price * arrivals * unserved
    )
    is_limited = nodes is not None
    # PuLP calls what it holds at a limit "Optimal", so its word counts only where nothing could have cut it short.
    bound = _relaxed(pulp, model, change) if is_limited else None
    try:
        status = model.solve(_pulp_solver(pulp, solver, nodes))
    except KeyError:  # PuLP has no name for what HiGHS says at a limit
        return ExactScaling(None, bound, False)
    values = [x.varValue for x in change]
    if status != pulp.LpStatusOptimal or not all(_is_whole(value) for value in values):  # cut before it had an answer
        return ExactScaling(None, bound, False)
    actions = {kind.name: round(value) for kind, value in zip(problem.types, values, strict=True)}
    return ExactScaling(actions, bound, not is_limited)


def _is_whole(value: float | None) -> bool:
    return value is not None and abs(value - round(value)) < 1e-4


def _pulp_solver(pulp: Any, solver: str, nodes: int | None) -> Any:
    if solver == "highs":
        options = {} if nodes is None else {"mip_max_nodes": nodes}
        # Presolve off: HiGHS 1.14.0 cuts off optima where a continuous column, as our shortfall, stands in one row.
        return pulp.HiGHS(msg=False, gapRel=0.0, gapAbs=1e-9, threads=1, presolve="off", **options)
    return pulp.PULP_CBC_CMD(msg=False, gapRel=0.0, gapAbs=1e-9, threads=1, maxNodes=nodes)


def _relaxed(pulp: Any, model: Any, change: list[Any]) -> float | None:
    """The cost of the program without its integers: a bound that holds wherever a search was cut."""
    for x in change:
        x.cat = pulp.LpContinuous
    status = model.solve(pulp.HiGHS(msg=False, threads=1))
    bound = float(pulp.value(model.objective)) if status == pulp.LpStatusOptimal else None
    for x in change:
        x.cat = pulp.LpInteger
    return bound


def _by_ortools(problem: ScalingProblem, nodes: int | None) -> ExactScaling:
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
    model.Add(carried >= _needed(problem) / arrivals)  # (1)
    for resource, there in _limits(problem):  # (2)
        pairs = zip(problem.types, change, strict=True)
        model.Add(sum(getattr(kind, resource) * (kind.running + x) for kind, x in pairs) <= there)
    paid = problem.unserved_price * arrivals * unserved
    for kind, x, new in zip(problem.types, change, started, strict=True):
        paid += kind.cost_per_hour * x + kind.cost_per_hour * problem.unpredictability * kind.launch_seconds * new
    model.Minimize(paid)
    settings = "limits/gap = 0\nnumerics/feastol = 1e-9\n"
    model.SetSolverSpecificParametersAsString(settings + ("" if nodes is None else f"limits/nodes = {nodes}\n"))
    status = model.Solve()
    if status not in (model.OPTIMAL, model.FEASIBLE):
        return ExactScaling(None, None, False)
    actions = {kind.name: round(x.solution_value()) for kind, x in zip(problem.types, change, strict=True)}
    return ExactScaling(actions, model.Objective().BestBound(), status == model.OPTIMAL)
