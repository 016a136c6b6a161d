"""Nodes that are billed whole cost what a plain count says, however a plan came about; jobs open them whole, too."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from solvers.planning.judge import JudgedPlan, PlanEdit, judge
from solvers.planning.judge.verdict import Violation
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Node, PlacedJob, Problem
from tests.solvers.planning.random_problems import random_problem
from tests.solvers.planning.small_world import instance, plan, problem
from tests.support.soak import scaled

SEEDS = scaled(400, 40)


def counted(problem: Problem, instances: tuple[Instance, ...]) -> float:
    """Returns what the GPUs of these instances cost, without energy: GPU by GPU, and node by node."""
    total = 0.0
    for node in problem.nodes.values():
        used = {instance.gpu for instance in instances if instance.node == node.name}
        if node.pricing == "node" and used:
            total += node.price_per_hour * len(node.gpus)
        elif used:
            total += node.price_per_hour * len(used)
    return total


def counted_jobs(problem: Problem, placed: Plan) -> float:
    """Returns what is opened for jobs alone."""
    total = 0.0
    for node in problem.nodes.values():
        served = {instance.gpu for instance in placed.instances if instance.node == node.name}
        used = {job.gpu for job in placed.jobs if job.node == node.name}
        if node.purchase in ("owned", "reserved"):
            continue
        if node.pricing == "gpu":
            total += node.price_per_hour * len(used - served)
        elif used and not served:
            total += node.price_per_hour * len(node.gpus)
    return total


def scattered(r: Random, problem: Problem) -> Plan:
    """Returns instances and jobs on any GPUs; most break a rule, and all have a price."""
    places = [(node.name, gpu) for node in problem.nodes.values() for gpu in node.gpus]
    lines, jobs = [], []
    for number in range(r.randint(0, 5)):
        node, gpu = r.choice(places)
        name = r.choice(sorted(problem.services))
        lines.append(instance(name, node, gpu, id=f"i{number}", clock_mhz=problem.type_of(node).top_clock_mhz))
    for name in sorted(problem.jobs):
        node, gpu = r.choice(places)
        jobs.append(PlacedJob(name, node, gpu, 10, 1.0))
    return Plan(tuple(lines), tuple(jobs))


def by_gpu(problem: Problem) -> Problem:
    policy = replace(problem.policy, pricing="gpu", energy_price_per_kwh=0.0, power_budget_w=None)
    return replace(problem, policy=policy, state=None)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_plan_costs_what_a_plain_count_says_also_after_an_edit(seed: int) -> None:
    problem, r = by_gpu(random_problem(seed)), Random(seed)
    before, after = scattered(r, problem), scattered(r, problem)
    judged = JudgedPlan(problem, before)
    edit = PlanEdit(before.instances, after.instances, before.jobs, after.jobs)
    for verdict, placed in ((judged.verdict(), before), (judged.apply(edit), after)):
        assert verdict.cost.resource == pytest.approx(counted(problem, placed.instances))
        assert verdict.cost.job == pytest.approx(counted_jobs(problem, placed))


def test_where_shares_are_priced_nodes_are_not() -> None:
    shared = replace(problem(pricing="share"), nodes=billed_whole(problem()))
    by_share = judge(problem(pricing="share"), plan(), simulate=False).cost
    assert judge(shared, plan(), simulate=False).cost == by_share


def test_a_job_pays_nothing_beside_services_and_all_of_a_node_that_it_opens() -> None:
    world = replace(problem(), nodes=billed_whole(problem()))
    n1, n2 = (world.nodes[name] for name in ("n1", "n2"))
    placed = plan()
    beside = judge(world, placed, simulate=False)
    assert beside.cost.resource == n1.price_per_hour * n1.gpu_count + n2.price_per_hour * n2.gpu_count
    assert beside.cost.job == judge(problem(), placed, simulate=False).cost.job


def rented(price: float | None) -> tuple[Problem, Plan]:
    """A job alone on a node of two GPUs at 2 an hour each."""
    world = problem()
    name = next(iter(world.jobs))
    job = replace(world.jobs[name], deadline=None, max_price_per_hour=price)
    nodes = {name: replace(node, purchase="onDemand") for name, node in billed_whole(world).items()}
    placed = PlacedJob(name, "n1", 0, 20, 4.0)
    return replace(world, nodes=nodes, jobs={name: job}, services={}, state=None), Plan((), (placed,))


def rules(found: tuple[Violation, ...]) -> set[str]:
    return {violation.rule for violation in found}


@pytest.mark.parametrize(("price", "may"), [(None, False), (3.9, False), (4.0, True)])
def test_a_job_opens_a_node_only_if_it_may_pay_all_of_it(price: float | None, may: bool) -> None:
    verdict = judge(*rented(price), simulate=False)
    assert ("job_may_open_node" not in rules(verdict.violations)) == may
    assert "job_may_open" not in rules(verdict.violations)
    assert verdict.cost.job == 4.0


def billed_whole(problem: Problem) -> dict[str, Node]:
    return {name: replace(node, pricing="node") for name, node in problem.nodes.items()}
