"""Batches save what they say, by the judge of whole plans, and the same question finds the same ones."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from random import Random

import pytest

from benchmarks.families import family
from solvers.planning.batches.batch import Batch, BatchGroup, BatchKind
from solvers.planning.batches.find import find_batches
from solvers.planning.finish import make_batches
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Place, Problem, RunningState
from solvers.planning.replan import Replanner
from solvers.planning.replan.effort import change_price
from solvers.planning.search.promise import keep
from tests.solvers.planning.without_bound import plan_without_bound

TRIES = 16


@pytest.fixture(scope="module")
def dear() -> tuple[Problem, Plan]:
    """A fleet whose plan followed its rates down without moving anything else."""
    problem = family("A", 16, 8, seed=3, load=0.7)
    busy = plan_without_bound(problem, 1)
    replanner = Replanner.of(problem, busy)
    replanner.change({name: service.rate_per_second * 0.6 for name, service in problem.services.items()})
    plan = replanner.plan
    return replace(replanner.problem, state=RunningState(None, plan.instances)), plan


@pytest.fixture(scope="module")
def batches(dear: tuple[Problem, Plan]) -> tuple[Batch, ...]:
    return find_batches(*dear, tries=TRIES, seed=1)


@pytest.mark.slow
def test_each_batch_gives_a_right_plan_that_saves_what_was_measured(
    dear: tuple[Problem, Plan], batches: tuple[Batch, ...]
) -> None:
    problem, plan = dear
    before = judge(problem, plan, simulate=False, keeps=keep)
    assert before.is_right
    assert batches
    for batch in batches:
        made = make_batches(problem, plan, batch.groups)
        assert made, batch
        after = judge(problem, made, keeps=keep)
        assert after.is_right, after.violations
        assert after.cost.total == pytest.approx(before.cost.total - batch.saved_per_hour)
        assert after.cost.churn <= before.cost.churn + batch.churn + 1e-9
        price = change_price(problem.policy.move_price, before.cost.resource, len(plan.instances))
        assert after.changes.made * price <= batch.effort + 1e-9


@pytest.fixture(scope="module")
def short() -> tuple[Problem, Plan]:
    """A fleet that followed its rates and leaves a part of some services unserved."""
    problem = family("A", 8, 8, seed=5, load=1.1)
    busy = plan_without_bound(problem, 1)
    replanner, draw = Replanner.of(problem, busy), Random(5)
    replanner.change(
        {name: service.rate_per_second * draw.choice((0.5, 0.8, 1.5)) for name, service in problem.services.items()}
    )
    return replace(replanner.problem, state=RunningState(None, replanner.plan.instances)), replanner.plan


@pytest.mark.slow
def test_no_batch_serves_one_service_less_so_that_another_is_served_more(short: tuple[Problem, Plan]) -> None:
    problem, plan = short
    before = {lack.service: lack.rate_per_second for lack in plan.unserved}
    assert before
    found = [batch for seed in range(1, 5) for batch in find_batches(problem, plan, tries=24, seed=seed)]
    assert found
    for batch in found:
        made = make_batches(problem, plan, batch.groups)
        assert made
        for lack in made.unserved:
            assert lack.rate_per_second <= before.get(lack.service, 0.0) * (1 + 1e-9), lack.service


@pytest.mark.slow
def test_a_batch_that_was_found_is_found_again_where_it_is_known(
    dear: tuple[Problem, Plan], batches: tuple[Batch, ...]
) -> None:
    assert find_batches(*dear, tries=TRIES, seed=1) == batches
    known = [batch.groups for batch in batches]
    again = {batch.groups: batch for batch in find_batches(*dear, known, tries=0)}
    assert {row: again[row] for row in known} == {batch.groups: batch for batch in batches}


def test_gpus_that_are_gone_or_empty_give_no_batch(dear: tuple[Problem, Plan]) -> None:
    problem, plan = dear
    used = {line.place for line in plan.instances}
    places = [(node.name, index) for node in problem.nodes.values() for index in node.gpus]
    empty = next((place for place in places if place not in used), ("gone", 1))
    for place in (("gone", 0), empty):
        row = (BatchGroup((place,), BatchKind.SOLVED),)
        assert find_batches(problem, plan, [row], tries=0) == ()
        assert make_batches(problem, plan, row) is None


@pytest.mark.slow
def test_an_instance_gives_way_to_what_another_gpu_was_opened_for() -> None:
    problem = family("A", 16, 8, seed=3, load=0.7)
    running = plan_without_bound(problem, 1)
    found = 0
    for name, service in problem.services.items():
        replanner = Replanner.of(problem, running)
        replanner.change({name: service.rate_per_second * 1.4})
        risen = replace(replanner.problem, state=RunningState(None, running.instances))
        before = judge(risen, replanner.plan, simulate=False, keeps=keep)
        for batch in find_batches(risen, replanner.plan, tries=TRIES):
            if [group.kind for group in batch.groups] != [BatchKind.DISPLACING]:
                continue
            made = make_batches(risen, replanner.plan, batch.groups)
            assert made
            after = judge(risen, made, keeps=keep)
            assert after.is_right, after.violations
            assert after.cost.total == pytest.approx(before.cost.total - batch.gain_per_hour)
            place = {line.id: line.place for line in made.instances}
            (leaving,) = batch.groups[0].leaving
            assert all(place.get(line.id) != line.place for line in running.instances if line.id == leaving)
            found += 1
    assert found


def test_an_instance_that_does_not_run_cannot_give_way(dear: tuple[Problem, Plan]) -> None:
    problem, plan = dear
    row = (BatchGroup((plan.instances[0].place,), BatchKind.DISPLACING, ("gone",)),)
    assert make_batches(problem, plan, row) is None


@pytest.mark.slow
def test_a_refill_is_right_and_cheaper_and_leaves_services_alone_that_run_elsewhere(dear: tuple[Problem, Plan]) -> None:
    problem, plan = dear
    before = judge(problem, plan, simulate=False, keeps=keep)
    used = sorted({line.place for line in plan.instances})
    refilled = 0
    for seed, first in enumerate(range(0, len(used), 2)):
        places = set(used[first : first + 4])
        made = make_batches(problem, plan, (BatchGroup(tuple(sorted(places)), BatchKind.REFILLED, seed=seed),))
        if made is None:
            continue
        refilled += 1
        after = judge(problem, made, keeps=keep)
        assert after.is_right, after.violations
        assert after.cost.total < before.cost.total
        concerned = {line.service for line in plan.instances if line.place in places}
        assert _seats(made, concerned) == _seats(plan, concerned)
    assert refilled


def test_what_a_gpu_runs_goes_to_an_empty_one_of_its_pool_as_it_is(dear: tuple[Problem, Plan]) -> None:
    problem, plan = dear
    before = judge(problem, plan, simulate=False, keeps=keep)
    shifted = 0
    for place in sorted({line.place for line in plan.instances}):
        made = make_batches(problem, plan, (BatchGroup((place,), BatchKind.SHIFTED),))
        if made is None:
            continue
        shifted += 1
        after = judge(problem, made, keeps=keep)
        assert after.is_right, after.violations
        assert after.cost.total == pytest.approx(before.cost.total)
        (there,) = {line.place for line in made.instances} - {line.place for line in plan.instances}
        assert place not in {line.place for line in made.instances}
        assert problem.nodes[there[0]].gpu_type == problem.nodes[place[0]].gpu_type
        assert _shapes(made, there) == _shapes(plan, place)
        here = {line.id for line in plan.instances if line.place == place}
        assert {line.id for line in made.instances if line.place == there}.isdisjoint(here)
        seats = [_places(lines, {place, there}) for lines in (plan, made)]
        assert seats[0] == seats[1]
    assert shifted


def test_a_gpu_whose_pool_has_no_empty_one_is_not_shifted(dear: tuple[Problem, Plan]) -> None:
    problem, plan = dear
    used = {line.place for line in plan.instances}
    in_use = {
        name: tuple(index for index in node.gpus if (name, index) in used) for name, node in problem.nodes.items()
    }
    nodes = {name: replace(problem.nodes[name], gpus=gpus) for name, gpus in in_use.items() if gpus}
    for place in used:
        row = (BatchGroup((place,), BatchKind.SHIFTED),)
        assert make_batches(replace(problem, nodes=nodes), plan, row) is None


def _places(plan: Plan, without: Collection[Place]) -> set[tuple[str, Place, int]]:
    return {(line.id, line.place, line.sm_percent) for line in plan.instances if line.place not in without}


def _shapes(plan: Plan, place: Place) -> list[tuple[str, str, int, int]]:
    lines = (line for line in plan.instances if line.place == place)
    return sorted((line.service, line.variant, line.sm_percent, line.batch) for line in lines)


def _seats(plan: Plan, without: Collection[str]) -> set[tuple[str, Place, int]]:
    return {(line.id, line.place, line.sm_percent) for line in plan.instances if line.service not in without}
