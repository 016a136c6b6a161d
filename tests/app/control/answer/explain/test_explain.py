"""Explanations of services, instances and jobs are true: prices are the judge's, and changes have a named purpose."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from app.control.answer.explain.job import why_job
from app.control.answer.explain.service import describe_service, why_service
from app.control.answer.explain.shares import costs_of_services, divide_costs
from app.control.domain.snapshot import JobProgress
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Node, Problem
from solvers.planning.search.promise import keep
from solvers.planning.solve import SolveBudget, solve
from tests.proofs.relaxations import with_its_relaxation
from tests.solvers.planning import small_world
from tests.solvers.planning.explain.test_random import scarce
from tests.solvers.planning.random_problems import NOON, random_problem

QUICK = SolveBudget(seconds=None, work=0)
SEEDS = range(0, 60, 3)


def planned(seed: int) -> tuple[Problem, Plan]:
    problem = scarce(random_problem(seed), Random(seed))
    return problem, solve(problem, QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_the_plan_with_an_alternative_in_place_costs_what_the_explanation_states(seed: int) -> None:
    problem, plan = planned(seed)
    before = judge(problem, plan, simulate=False, keeps=keep).cost.total
    for name in problem.services:
        for shape in why_service(problem, plan, name).shapes:
            for other in shape.found.alternatives:
                if not other.is_right:
                    continue
                rest = [instance for instance in plan.instances if instance is not shape.instance]
                instead = replace(plan, instances=(*rest, *other.instances))
                cost = judge(problem, instead, simulate=False).cost.total
                assert cost - before == pytest.approx(other.adds_per_hour, abs=1e-3 + 1e-6 * before)


@pytest.mark.parametrize("seed", SEEDS)
def test_services_pay_for_all_of_their_gpus_and_nothing_else(seed: int) -> None:
    problem, plan = planned(seed)
    free_of_energy = replace(problem, policy=replace(problem.policy, energy_price_per_kwh=0.0))
    cost = judge(free_of_energy, plan, simulate=False).cost.resource
    assert sum(costs_of_services(problem, plan).values()) == pytest.approx(cost)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("pricing", ["gpu", "share"])
def test_services_pay_for_what_they_use_and_for_what_is_idle_there(seed: int, pricing: Any) -> None:
    problem, plan = planned(seed)
    problem = replace(problem, policy=replace(problem.policy, pricing=pricing))
    used = 0.0
    for node, gpu in {place for line in plan.instances for place in line.places}:
        there = [line for line in plan.instances if (node, gpu) in line.places]
        sm, memory = sum(line.sm_percent for line in there) / 100, sum(line.memory_gib for line in there)
        used += problem.nodes[node].price_per_hour * min(1.0, max(sm, memory / problem.type_of(node).memory_gib))
    costs = divide_costs(problem, plan).values()
    assert sum(cost.per_hour - cost.idle_per_hour for cost in costs) == pytest.approx(used)
    assert all(cost.idle_per_hour >= -1e-9 for cost in costs)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_unserved_service_has_its_reason_and_the_change_named_serves_it(seed: int) -> None:
    problem, plan = planned(seed)
    for left in plan.unserved:
        why = why_service(problem, plan, left.service)
        assert why.missing
        assert why.missing.reason
        sentences = describe_service(problem, why)
        assert any(sentence.startswith("unserved: ") for sentence in sentences)
        found = with_its_relaxation(problem, plan, left.service)
        assert why.missing.is_proved == (found is not None)
        if found:
            changed, served = found
            assert left.service not in {part.service for part in served.unserved}
            assert judge(changed, served, simulate=False, keeps=keep).is_right


@pytest.mark.slow
def test_an_instance_says_what_other_gpu_types_would_cost() -> None:
    problem = small_world.problem()
    dear = Node("dear", "big", (0, 1), cpu_cores=16, host_memory_gib=64, price_per_hour=20)
    cheap = next(node for node in problem.nodes.values() if node.gpu_type == "old")
    problem = replace(problem, nodes={"dear": dear, cheap.name: cheap}, jobs={}, state=None, limits={})
    plan = solve(problem, SolveBudget(seconds=None, work=4))
    assert plan.instances
    why = why_service(problem, plan, plan.instances[0].service)
    sentences = "\n".join(describe_service(problem, why))
    assert "why this GPU: " in sentences
    assert "why this batch: " in sentences
    assert "why this share: " in sentences
    assert "why not cheaper: " in sentences


@pytest.mark.slow
def test_a_job_that_waits_says_why_and_one_that_runs_says_where() -> None:
    for seed in range(40):
        problem, plan = planned(seed)
        for name in problem.jobs:
            why = why_job(problem, plan, name, NOON)
            assert (why.placed is None) == (name not in {job.job for job in plan.jobs})
            assert why.sentences[0].startswith(name)
            assert why.reason


def test_a_finished_job_is_not_called_waiting() -> None:
    problem, plan = planned(0)
    assert why_job(problem, plan, "lab/gone", NOON, JobProgress("finished")).reason == "it is finished"


def test_a_job_that_rests_after_a_failed_attempt_says_why_it_failed() -> None:
    problem, plan = planned(0)
    facts = JobProgress("queued", reason="its tenant's limit is reached", relaxation="limit.gpus: 2 of tenant lab")
    assert why_job(problem, plan, "lab/rests", NOON, facts).sentences == (
        "lab/rests waits: its tenant's limit is reached",
        "least change that helps: limit.gpus: 2 of tenant lab",
    )
    assert why_job(problem, plan, "lab/rests", NOON, replace(facts, swapped_on="n1")).sentences[1] == (
        "its process waits in the host memory of n1, and can go on there without a start"
    )
