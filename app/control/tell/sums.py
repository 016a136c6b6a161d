"""Sums over the plan in force: most cycles announce the plan of the cycle before, and it has the same sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.control.formulate.tenants import GpuUsage, sum_use_by_service, sum_use_by_tenant
from app.control.tell.rates import cost_rates
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem


@dataclass(frozen=True, slots=True)
class PlanSums:
    """The use and the cost of a plan."""

    problem: Problem
    plan: Plan
    used: Mapping[str, GpuUsage]  # by tenant
    cost_rates: Mapping[str, float]  # by tenant, with idle parts and empty GPUs


def add_up(problem: Problem, plan: Plan, before: PlanSums | None = None) -> PlanSums:
    """Returns the sums of this plan; those `before` if they are of the same objects, which never change."""
    if before and before.problem is problem and before.plan is plan:
        return before
    used = sum_use_by_tenant(problem, sum_use_by_service(problem, plan.instances))
    return PlanSums(problem, plan, used, cost_rates(problem, plan))
