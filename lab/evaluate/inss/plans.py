"""Plans of InSS's testbed by each planner: what their instances could serve, and the highest load that they sustain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum

from app.control.formulate.problem import build_problem
from lab.baselines.names import IGNITER
from lab.evaluate.inss.experiments import EXPERIMENTS, HEAVY, PLANNED, PLANNERS
from lab.evaluate.sustained import plan_alone, sustained_rates
from lab.evaluate.testbeds import testbed
from lab.evaluate.verdicts import MeasuredFigure, measured_alike
from solvers.planning.problem import Problem

IGNITER_ON_THREE = "igniter on three GPUs"  # as many as it used in the paper; it aims at few


def plan_figures(seeds: Sequence[int]) -> dict[str, MeasuredFigure]:
    """Returns all figures that single plans give."""
    return {
        "back to back": measured_alike([back_to_back(seed) for seed in seeds]),
        "sustained six": _sustained(declared_problem(PLANNED), seeds),
        "sustained eight": _sustained(declared_problem(HEAVY), seeds),
    }


def _sustained(problem: Problem, seeds: Sequence[int]) -> MeasuredFigure:
    """Returns the load that each planner sustains, and iGniter in the paper's reading, too."""
    (three,) = sustained_rates(leave_out_node(problem), (IGNITER,), seed=0).values()
    return measured_alike([sustained_rates(problem, PLANNERS, seed) | {IGNITER_ON_THREE: three} for seed in seeds])


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
