"""Measures a plan by each thing that an objective may weigh: GPU prices, energy and accuracy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum

from solvers.planning.judge.judged_plan import JudgedPlan
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem


@dataclass(frozen=True, slots=True)
class PlanMeasures:
    """What a plan pays for GPUs and draws in an hour, and the mean accuracy of the requests that it serves."""

    gpus_per_hour: float  # money
    energy_kwh: float  # of GPUs that services run on: idle, and services' busy watts
    accuracy: float | None  # over all requests; None where nothing is served
    served_per_second: float


def measure(problem: Problem, plan: Plan) -> PlanMeasures:
    """Returns the measures of a plan, whatever the problem's objective is."""
    accuracy, served = mean_accuracy(problem, plan)
    return PlanMeasures(_resource(problem, plan, 1.0, 0.0), _resource(problem, plan, 0.0, 1.0), accuracy, served)


def mean_accuracy(problem: Problem, plan: Plan, service: str = "") -> tuple[float | None, float]:
    """Returns the mean accuracy of served requests, of all services or of one, and how many a second are served."""
    lines = [line for line in plan.instances if not service or line.service == service]
    served = fsum(line.rate_per_second for line in lines)
    if served <= 0:
        return None, 0.0
    known = {
        (model, variant.name): variant.accuracy for model, variants in problem.models.items() for variant in variants
    }
    sums = fsum(line.rate_per_second * known[problem.services[line.service].model, line.variant] for line in lines)
    return sums / served, served


def _resource(problem: Problem, plan: Plan, money: float, kwh: float) -> float:
    policy = replace(problem.policy, money_weight=money, energy_price_per_kwh=kwh)
    return (
        JudgedPlan(replace(problem, policy=policy, state=None, jobs={}), replace(plan, jobs=())).verdict().cost.resource
    )
