"""A steady hour under `pricing: share` is booked as the planner priced it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from app.control.formulate.problem import build_problem
from app.ledger.allocation import allocate
from app.ledger.facts import HOUR, GpuRate, NodeUsage, OwnedGpus, Usage
from app.manifests.offline import Input, load
from app.manifests.prices import NANO, nano_per_hour
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.solve import SolveBudget, solve

QUICKSTART = Path(__file__).parents[3] / "examples" / "quickstart.yaml"


def booked(problem: Problem, plan: Plan) -> tuple[int, int]:
    """What services are booked for an hour of the plan, in billionths; and how many parts were rounded for it."""
    total, parts = 0, 0
    for name, node in problem.nodes.items():
        way = (node.gpu_type, node.region, node.purchase)
        usage = [
            Usage(one.id, one.id, one.gpu, "", one.service, "", "", one.sm_percent, one.memory_gib,
                  problem.services[one.service].is_dedicated, 0, HOUR)
            for one in plan.instances
            if one.node == name
        ]  # fmt: skip
        owned = OwnedGpus(1, node.gpu_count, *way, problem.type_of(name).memory_gib, 0)
        facts = NodeUsage([owned], {way: [GpuRate(nano_per_hour(node.price_per_hour), 0)]}, usage)
        used = [amount.nano for line, amount in allocate(facts, 0, HOUR).items() if line.kind == "used"]
        total, parts = total + sum(used), parts + len(used)
    return total, parts


@pytest.mark.slow
def test_a_steady_hour_costs_what_the_plan_says() -> None:
    whole = build_problem(load([Input("quickstart.yaml", QUICKSTART.read_bytes())]))
    problem = replace(whole, policy=replace(whole.policy, pricing="share", energy_price_per_kwh=0.0), jobs={})
    plan = solve(problem, SolveBudget(seconds=None, work=10))
    assert plan.certificate is not None
    planned = Fraction(plan.certificate.cost.resource) * NANO
    total, parts = booked(problem, plan)
    assert len(plan.instances) > 5
    assert abs(total - planned) <= parts
