"""The cost rate of a plan is divided as money is: every part of every GPU has an owner."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from app.control.tell.rates import IDLE, OTHERS, UNALLOCATED, cost_rates, top_tenants
from app.ledger.division import shares_of
from app.ledger.facts import Usage
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Job, PlacedJob, Problem
from tests.app.control.answer.savings.test_baselines import fleet

# (service, GPU of n-1, SM%, GiB): shared by memory, by SMs, dedicated; the fourth GPU has a job and the others nothing.
HELD = [("shop/a", 0, 10, 9.0), ("lab/d", 0, 30, 1.0), ("shop/b", 1, 50, 2.0), ("shop/c", 2, 40, 2.0)]
JOB = PlacedJob("lab/train", "n-1", 3, 25, 2.0)


def world() -> tuple[Problem, Plan]:
    problem = fleet()
    instances = [
        Instance(f"i-{n}", service, "n-1", gpu, "fp16", 1, 0.0, sm, gib, 1000.0, 1.0)
        for n, (service, gpu, sm, gib) in enumerate(HELD)
    ]
    job = Job("lab/train", "lab", "training", 1000.0, profiles={})
    return replace(problem, jobs={"lab/train": job}), Plan(tuple(instances), jobs=(JOB,))


def test_the_plans_cost_is_divided_as_the_ledger_divides_it() -> None:
    problem, plan = world()
    price, memory = problem.nodes["n-1"].price_per_hour, problem.type_of("n-1").memory_gib
    held = [(problem.services[instance.service].tenant, instance.gpu, instance.sm_percent, instance.memory_gib,
             problem.services[instance.service].is_dedicated) for instance in plan.instances]  # fmt: skip
    held.append(("lab", JOB.gpu, JOB.sm_percent, JOB.memory_gib, False))
    wanted: dict[str, float] = defaultdict(float)
    for gpu in problem.nodes["n-1"].gpus:
        residents = [
            Usage(str(n), "", gpu, tenant, "", "", "", float(sm), gib, dedicated, 0, 1)
            for n, (tenant, at, sm, gib, dedicated) in enumerate(held)
            if at == gpu
        ]
        if not residents:
            wanted[UNALLOCATED] += price
            continue
        shares = shares_of(residents, memory)
        for name, part in zip([*(resident.tenant for resident in residents), IDLE], shares.parts, strict=True):
            wanted[name] += price * part / shares.whole
    wanted[UNALLOCATED] += problem.nodes["n-2"].gpu_count * problem.nodes["n-2"].price_per_hour
    found = cost_rates(problem, plan)
    assert found == pytest.approx(dict(wanted))
    assert sum(found.values()) == pytest.approx(
        sum(node.gpu_count * node.price_per_hour for node in problem.nodes.values())
    )


def test_metrics_name_the_dearest_and_sum_up_the_others() -> None:
    rates = {f"tenant-{n}": float(n) for n in range(10)} | {IDLE: 0.5, UNALLOCATED: 0.25}
    found = top_tenants(rates, most=3)
    assert found == {"tenant-9": 9, "tenant-8": 8, "tenant-7": 7, IDLE: 0.5, UNALLOCATED: 0.25, OTHERS: 21}
    assert sum(found.values()) == pytest.approx(sum(rates.values()))
    assert top_tenants({"shop": 1.0}) == {"shop": 1.0}
