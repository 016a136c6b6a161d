"""Plans of InSS's testbed by each planner: what their instances could serve, and the highest load that they sustain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum

from app.control.formulate.problem import build_problem
from lab.baselines.names import GSLICE, IGNITER
from lab.baselines.sharing import plan_gslice_largest_first
from lab.evaluate.inss.experiments import EXPERIMENTS, HEAVY, PLANNED, PLANNERS
from lab.evaluate.sustained import plan_alone, sustained_rates
from lab.evaluate.testbeds import testbed
from lab.evaluate.verdicts import MeasuredFigure, measured_alike
from solvers.planners.ask import judge_draft
from solvers.planning.plan import Plan
from solvers.planning.planner_draft import PlannerBudget
from solvers.planning.problem import Problem

IGNITER_ON_THREE = "igniter on three GPUs"  # as many as it used in the paper; it aims at few
GSLICE_LARGEST_FIRST = "gslice, largest first"  # its paper places nothing on several GPUs


def plan_figures(seeds: Sequence[int]) -> dict[str, MeasuredFigure]:
    """Returns all figures that single plans give."""
    return {
        "back to back": measured_alike([back_to_back(seed) for seed in seeds]),
        "sustained six": _sustained(declared_problem(PLANNED), seeds),
        "sustained eight": _sustained(declared_problem(HEAVY), seeds),
    }


def _sustained(problem: Problem, seeds: Sequence[int]) -> MeasuredFigure:
    """Returns the load that each planner sustains, and two of them in other readings, which no seed changes."""
    readings = {
        IGNITER_ON_THREE: sustained_rates(leave_out_node(problem), (IGNITER,), 0)[IGNITER],
        GSLICE_LARGEST_FIRST: sustained_rates(problem, (GSLICE,), 0, _plan_largest_first)[GSLICE],
    }
    return measured_alike([sustained_rates(problem, PLANNERS, seed) | readings for seed in seeds])


def _plan_largest_first(problem: Problem, planner: str, seed: int) -> Plan:
    draft = plan_gslice_largest_first(problem, {}, PlannerBudget(seed=seed))
    return judge_draft(problem, planner, draft)[0]


def leave_out_node(problem: Problem) -> Problem:
    """Returns the testbed without its last node, so that three of the four GPUs are left."""
    nodes = dict(problem.nodes)
    nodes.pop(max(nodes))
    return replace(problem, nodes=nodes)


def back_to_back(seed: int) -> dict[str, float]:
    """Returns the throughput of plans for six services at their rates, if batches ran back to back."""
    problem = declared_problem(PLANNED)
    plans = {planner: plan_alone(problem, planner, seed) for planner in PLANNERS}
    return {name: fsum(line.batch * 1000 / line.exec_ms for line in plan.instances) for name, plan in plans.items()}


def declared_problem(experiment: str) -> Problem:
    """Returns the services of an experiment at their declared rates."""
    found = next(known for known in EXPERIMENTS if known.name == experiment)
    return build_problem(testbed("inss", replace(found, times=1.0).rates))
