"""What is added beside a running plan: nothing else changes, the judge finds nothing new, and no less is served."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

import pytest

from app.control.formulate.problem import build_problem
from cli.up.fleet import fleet_file
from simulation.world import of_files
from solvers.hetsev.adding import METHOD, Adder, add_missing
from solvers.planning.judge import judge
from solvers.planning.judge.services import AVAILABILITY_RULES
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem, RunningState
from solvers.planning.search.promise import keep
from tests.solvers.planning.capped import with_caps
from tests.solvers.planning.random_problems import random_problem
from tests.solvers.planning.without_bound import plan_without_bound
from tests.support.soak import scaled

SEEDS = scaled(400, 40)
RISE = 1.6


@cache
def running(seed: int) -> Problem:
    """A random problem that runs the joint planner's plan."""
    problem = random_problem(seed)
    plan = plan_without_bound(replace(problem, state=None), 2, seed)
    now = problem.state.now if problem.state else None
    jobs = {placed.job for placed in plan.jobs}
    return replace(
        problem,
        jobs={name: replace(job, deadline=None) for name, job in problem.jobs.items() if name in jobs},
        state=RunningState(now, plan.instances, plan.jobs),
    )


def risen(problem: Problem, seed: int) -> dict[str, float]:
    draw = Random(seed)
    return {
        name: service.rate_per_second * draw.choice([0.5, 1.0, RISE, 3.0]) for name, service in problem.services.items()
    }


@pytest.mark.slow
def test_alone_it_serves_the_whole_fleet_that_up_declares() -> None:
    plan = add_missing(build_problem(of_files(fleet_file())))

    assert plan.unserved == ()


def unserved(plan: Plan) -> float:
    return sum(entry.rate_per_second for entry in plan.unserved)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_moves_and_the_judge_finds_nothing_new(seed: int) -> None:
    problem = running(seed)
    rates = risen(problem, seed)
    adder = Adder.of(problem)

    plan, _ = adder.add(rates)

    then = problem.with_rates(rates)
    verdict = judge(then, plan, simulate=False, keeps=keep)
    new = [found for found in verdict.violations if (found.where, found.rule) not in adder.known]
    assert not [found for found in new if found.rule not in AVAILABILITY_RULES]
    changes = verdict.changes
    assert (changes.stop, changes.move, changes.resize) == (0, 0, 0)
    assert len(plan.instances) == len(problem.state.running) + changes.start  # type: ignore[union-attr]
    assert plan.certificate is not None
    assert plan.certificate.method == METHOD
    assert plan.certificate.cost.total == pytest.approx(verdict.cost.total)


@pytest.mark.parametrize("seed", range(0, SEEDS, 3))
def test_what_is_added_keeps_the_cap_of_each_gpu(seed: int) -> None:
    problem = replace(with_caps(running(seed), seed), state=None)
    before = plan_without_bound(problem, 2, seed)
    problem = replace(problem, state=RunningState(None, before.instances, before.jobs))
    rates = risen(problem, seed)
    adder = Adder.of(problem)

    plan, _ = adder.add(rates)

    verdict = judge(problem.with_rates(rates), plan, simulate=False, keeps=keep)
    assert not [found for found in verdict.violations if found.rule == "watts_fit"]


@pytest.mark.parametrize("seed", range(0, SEEDS, 4))
def test_a_warm_adder_answers_as_a_fresh_one(seed: int) -> None:
    problem = running(seed)
    warm = Adder.of(problem)
    warm.add(risen(problem, seed + 1))

    again, _ = warm.add(risen(problem, seed))

    fresh = add_missing(problem.with_rates(risen(problem, seed)))
    assert without_seconds(again) == without_seconds(fresh)


def without_seconds(plan: Plan) -> Plan:
    assert plan.certificate
    return replace(plan, certificate=replace(plan.certificate, seconds=0.0))


def test_what_is_missing_is_added_where_there_is_room() -> None:
    lacks = [run_and_rise(seed) for seed in range(SEEDS)]

    served = [after < before for before, after in lacks if before > 0]
    assert all(after <= before * (1 + 1e-9) for before, after in lacks)
    assert sum(served) > len(served) / 2  # most small fleets have some room


def run_and_rise(seed: int) -> tuple[float, float]:
    """Returns what is unserved at higher rates before anything is added, and after."""
    problem = running(seed)
    then = problem.with_rates({name: RISE * service.rate_per_second for name, service in problem.services.items()})
    carried = dict.fromkeys(problem.services, 0.0)
    for line in problem.state.running:  # type: ignore[union-attr]
        carried[line.service] += line.rate_per_second
    lack = sum(max(service.rate_per_second - carried[name], 0.0) for name, service in then.services.items())
    return lack, unserved(add_missing(then))


def test_a_fleet_on_which_nothing_runs_gets_a_plan() -> None:
    problem = replace(random_problem(3), state=None, jobs={})

    plan = add_missing(problem)

    verdict = judge(problem, plan, simulate=False, keeps=keep)
    assert not [found for found in verdict.violations if found.rule not in AVAILABILITY_RULES]
    assert plan.instances


def test_a_second_addition_names_no_instance_as_the_first_did() -> None:
    for seed in (11, 25):
        problem = running(seed)
        policy = replace(problem.policy, same_model_per_gpu=4, clients_per_gpu=48)
        problem = replace(problem, policy=policy)
        for rise in (1.6, 3.0):
            rates = {name: rise * service.rate_per_second for name, service in problem.services.items()}
            plan, _ = Adder.of(problem).add(rates)
            names = [line.id for line in plan.instances]
            assert len(set(names)) == len(names)
            now = problem.state.now if problem.state else None
            problem = replace(problem.with_rates(rates), state=RunningState(now, plan.instances, plan.jobs))
