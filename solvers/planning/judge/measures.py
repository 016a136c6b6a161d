"""Measures a plan by each thing that an objective may weigh: GPU prices, energy and accuracy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import fsum

from solvers.planning.judge.judged_plan import JudgedPlan
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Problem


@dataclass(frozen=True, slots=True)
class PlanMeasures:
    """The price of a plan's GPUs and its energy in an hour, and the mean accuracy of the requests that it serves."""

    gpus_per_hour: float  # money
    energy_kwh: float  # of GPUs that services run on: idle, and services' busy watts
    accuracy: float | None  # over all requests; None where nothing is served


def measure(problem: Problem, plan: Plan) -> PlanMeasures:
    """Returns the measures of a plan, whatever the problem's objective is."""
    accuracy = mean_accuracy(plan.instances, problem)
    return PlanMeasures(_resource(problem, plan, 1.0, 0.0), _resource(problem, plan, 0.0, 1.0), accuracy)


def mean_accuracy(lines: Iterable[Instance], problem: Problem) -> float | None:
    """Returns the mean accuracy of the requests that these instances serve; None if they serve none."""
    known = {
        (model, variant.name): variant.accuracy for model, variants in problem.models.items() for variant in variants
    }
    rates = [(line.rate_per_second, known[problem.services[line.service].model, line.variant]) for line in lines]
    served = fsum(rate for rate, _ in rates)
    return fsum(rate * accuracy for rate, accuracy in rates) / served if served > 0 else None


def _resource(problem: Problem, plan: Plan, money: float, kwh: float) -> float:
    policy = replace(problem.policy, money_weight=money, energy_price_per_kwh=kwh)
    return (
        JudgedPlan(replace(problem, policy=policy, state=None, jobs={}), replace(plan, jobs=())).verdict().cost.resource
    )
