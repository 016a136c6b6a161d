"""What is added beside a running plan: nothing else changes, the judge finds nothing new, and no less is served."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.control.formulate.problem import build_problem
from cli.up.fleet import fleet_file
from simulation.world import read_files
from solvers.hetsev.fleet import METHOD, FleetDelta, add_missing
from solvers.planning.availability import Availability
from solvers.planning.judge import judge
from solvers.planning.judge.plan_lines import shape_of
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
    plan = add_missing(build_problem(read_files(fleet_file())))

    assert plan.unserved == ()


def unserved(plan: Plan) -> float:
    return sum(entry.rate_per_second for entry in plan.unserved)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_moves_and_the_judge_finds_nothing_new(seed: int) -> None:
    problem = running(seed)
    rates = risen(problem, seed)
    delta = FleetDelta.of(problem)

    plan, _ = delta.add(rates)

    then = problem.change_rates(rates)
    verdict = judge(then, plan, simulate=False, keeps=keep)
    new = [found for found in verdict.violations if (found.where, found.rule) not in delta.known]
    assert not [found for found in new if found.rule not in AVAILABILITY_RULES]
    changes = verdict.changes
    assert (changes.stop, changes.move, changes.resize) == (0, 0, 0)
    assert len(plan.instances) == len(problem.state.running) + changes.start  # type: ignore[union-attr]
    assert plan.certificate is not None
    assert plan.certificate.method == METHOD
    assert plan.certificate.cost.total == pytest.approx(verdict.cost.total)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, SEEDS - 1), rises=st.lists(st.sampled_from((0.3, 1.0, 1.1, RISE, 4.0)), min_size=5, max_size=5),
    spread=st.sampled_from(("gpu", "node", "region")), spot=st.sampled_from((0.0, 1.0)),
)  # fmt: skip
def test_whatever_rises_no_rule_is_broken_and_what_runs_keeps_its_place_and_shape(
    seed: int, rises: list[float], spread: Literal["gpu", "node", "region"], spot: float
) -> None:
    rules = Availability(spread=spread, max_spot_share=spot)
    problem = running(seed)
    services = {name: replace(service, availability=rules) for name, service in problem.services.items()}
    problem = replace(problem, services=services)
    delta = FleetDelta.of(problem)
    rates = {
        name: service.rate_per_second * rise
        for (name, service), rise in zip(services.items(), rises * len(services), strict=False)
    }

    plan, _ = delta.add(rates)

    then = problem.change_rates(rates)
    found = judge(then, plan, simulate=False, keeps=keep).violations
    assert not [f for f in found if (f.where, f.rule) not in delta.known and f.rule not in AVAILABILITY_RULES]
    before = {line.id: line for line in problem.state.running}  # type: ignore[union-attr]
    assert before.keys() <= {line.id for line in plan.instances}
    for line in plan.instances:
        if was := before.get(line.id):
            assert shape_of(line) == shape_of(was)
    missing = {entry.service: entry.rate_per_second for entry in plan.unserved}
    for name, service in then.services.items():
        served = sum(line.rate_per_second for line in plan.instances if line.service == name)
        assert served + missing.get(name, 0.0) == pytest.approx(service.rate_per_second, rel=1e-5)
    was_served = {name: sum(line.rate_per_second for line in before.values() if line.service == name) for name in rates}
    for name in rates:  # what was served before is served still
        left = rates[name] - missing.get(name, 0.0)
        assert left >= min(was_served[name], rates[name]) * (1 - 1e-5) or name in delta.late


@pytest.mark.parametrize("seed", range(0, SEEDS, 3))
def test_what_is_added_keeps_the_cap_of_each_gpu(seed: int) -> None:
    problem = replace(with_caps(running(seed), seed), state=None)
    before = plan_without_bound(problem, 2, seed)
    problem = replace(problem, state=RunningState(None, before.instances, before.jobs))
    rates = risen(problem, seed)
    delta = FleetDelta.of(problem)

    plan, _ = delta.add(rates)

    verdict = judge(problem.change_rates(rates), plan, simulate=False, keeps=keep)
    assert not [found for found in verdict.violations if found.rule == "watts_fit"]


@pytest.mark.parametrize("seed", range(0, SEEDS, 4))
def test_a_warm_delta_answers_as_a_fresh_one(seed: int) -> None:
    problem = running(seed)
    warm = FleetDelta.of(problem)
    warm.add(risen(problem, seed + 1))

    again, _ = warm.add(risen(problem, seed))

    fresh = add_missing(problem.change_rates(risen(problem, seed)))
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
    then = problem.change_rates({name: RISE * service.rate_per_second for name, service in problem.services.items()})
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
            plan, _ = FleetDelta.of(problem).add(rates)
            names = [line.id for line in plan.instances]
            assert len(set(names)) == len(names)
            now = problem.state.now if problem.state else None
            problem = replace(problem.change_rates(rates), state=RunningState(now, plan.instances, plan.jobs))
