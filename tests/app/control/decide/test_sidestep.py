"""A sidestep leads to a cheaper plan that has no order of steps from what runs, and can be replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from app.control.decide.batch_drafts import BatchContext, decide_with_batches
from app.control.decide.decide import hold_back, keep_in_force
from app.control.decide.sidestep import _BlockedChanges, find_sidestep
from app.control.domain.decision import Decision
from app.control.domain.desired import Desired, NodeDesired
from app.control.domain.snapshot import Rest, Snapshot
from app.control.formulate.formulate import formulate
from app.control.rollout import order
from app.control.rollout.changes import changes
from app.control.rollout.rules_of import rules_of
from solvers.planning.judge import judge
from solvers.planning.problem import Place
from solvers.planning.search.promise import keep
from tests.app.control.decide.conftest import wanted_in
from tests.app.control.decide.test_batches import SECONDS, SOLVER
from tests.app.control.rollout.fleets import a_job, replace_struct


@pytest.fixture(scope="module")
def context(full: Snapshot, wanted: Decision) -> BatchContext:
    question = formulate(full)
    held = hold_back(full, question, wanted)
    assert held.desired == full.in_force, "no order of steps leads to the wanted plan"
    return BatchContext(full, question, held, SECONDS)


@pytest.fixture(scope="module")
def found(context: BatchContext, wanted: Decision) -> Decision:
    sidestep = find_sidestep(context, wanted, SOLVER)
    assert sidestep
    return sidestep


def with_more_gpus(snapshot: Snapshot, count: int) -> Snapshot:
    """Returns the snapshot with so many more GPUs on each node with L4s."""
    more = [
        replace(item, spec={**item.spec, "gpus": item.spec["gpus"] + count})
        if item.kind == "Node" and item.spec["gpuType"] == "l4-24gb"
        else item
        for item in snapshot.declared
    ]
    return replace(snapshot, declared=tuple(more))


def candidates(context: BatchContext, wanted: Decision) -> list[tuple[Sequence[str], tuple[Place, ...]]]:
    return list(_BlockedChanges(context.snapshot, context.question.problem, wanted.desired).candidates())


@pytest.mark.slow
def test_a_sidestep_opens_the_way_to_a_cheaper_plan(context: BatchContext, wanted: Decision, found: Decision) -> None:
    rules = rules_of(context.snapshot.declared)
    assert order(context.snapshot.in_force, wanted.desired, rules).stuck
    assert not order(context.snapshot.in_force, found.desired, rules).stuck
    assert not order(found.desired, wanted.desired, rules).stuck
    verdict = judge(context.question.problem, found.plan, keeps=keep)
    assert verdict.is_right, verdict.violations
    assert not found.plan.unserved
    assert found.verdict
    assert wanted.verdict
    assert found.verdict.cost.churn + wanted.verdict.cost.churn < 0.2 * found.verdict.cost.total
    assert "move aside" in found.message


@pytest.mark.slow
def test_the_next_plan_takes_the_way(context: BatchContext, found: Decision) -> None:
    then = replace(context.snapshot, in_force=found.desired, target=3, at=context.snapshot.at + timedelta(minutes=2))
    decision = hold_back(then, formulate(then), wanted_in(then))
    before = context.question.verdict.cost.total
    assert decision.verdict
    assert decision.verdict.cost.total < 0.9 * before


def test_a_sidestep_is_made_of_its_groups_alone(context: BatchContext, found: Decision) -> None:
    again = decide_with_batches(context, SOLVER.groups_of(found), SOLVER)
    assert again and again.desired == found.desired
    assert again.plan.instances == found.plan.instances


def test_no_sidestep_is_looked_for_while_plans_roll_or_where_something_changes_anyway(
    context: BatchContext, wanted: Decision, found: Decision
) -> None:
    rolling = replace(context, snapshot=replace(context.snapshot, is_rolling=True))
    assert find_sidestep(rolling, wanted, SOLVER) is None
    assert find_sidestep(replace(context, decision=found), wanted, SOLVER) is None


@pytest.mark.slow
def test_no_sidestep_is_made_for_a_plan_that_saves_less_than_its_churn(context: BatchContext, wanted: Decision) -> None:
    now = context.question.value_in_force
    assert now.per_horizon
    poor = replace(wanted, value=replace(now, per_horizon=now.per_horizon - 0.01))
    assert find_sidestep(context, poor, SOLVER) is None


def test_no_sidestep_is_made_while_a_service_rests_that_the_wanted_plan_changes(
    context: BatchContext, wanted: Decision
) -> None:
    until = context.snapshot.at + timedelta(minutes=5)
    resting = replace(context, snapshot=replace(context.snapshot, resting={wanted.services[0]: Rest(until)}))
    assert find_sidestep(resting, wanted, SOLVER) is None


@pytest.mark.slow
def test_a_sidestep_waits_for_a_rest_only_where_a_copy_starts_again(
    context: BatchContext, wanted: Decision, found: Decision
) -> None:
    change = next(change for change in changes(context.snapshot.in_force, wanted.desired) if change.takes_room)
    until = context.snapshot.at + timedelta(minutes=5)
    for place, is_there in ((change.place, True), (("another-node", 0), False)):
        resting = replace(context.snapshot, resting={change.owner: Rest(until, (place,))})
        failed = replace(context.snapshot, failed_places={change.owner: (place,)})
        for snapshot in (resting, failed):
            other = find_sidestep(replace(context, snapshot=snapshot), wanted, SOLVER)
            assert (other is None) is is_there
            assert is_there or (other and other.desired == found.desired)


@pytest.mark.slow
def test_no_copy_moves_aside_to_where_one_of_its_service_failed_lately(
    context: BatchContext, wanted: Decision, found: Decision
) -> None:
    aside = next(change for change in changes(context.snapshot.in_force, found.desired) if change.takes_room)
    failed = replace(context.snapshot, failed_places={aside.owner: (aside.place,)})
    other = find_sidestep(replace(context, snapshot=failed), wanted, SOLVER)
    starts = [change for change in changes(failed.in_force, other.desired) if change.takes_room] if other else []
    assert (aside.owner, aside.place) not in {(change.owner, change.place) for change in starts}


def test_no_copy_moves_aside_for_a_plan_that_modes_make_only_in_part(context: BatchContext, wanted: Decision) -> None:
    snapshot = context.snapshot
    name = wanted.services[0]
    declared = tuple(
        replace(item, spec={**item.spec, "mode": "advisory"})
        if item.kind == "Service" and item.full_name == name
        else item
        for item in snapshot.declared
    )
    assert declared != snapshot.declared
    careful = replace(context, snapshot=replace(snapshot, declared=declared))
    assert find_sidestep(careful, wanted, SOLVER) is None


@pytest.mark.slow
def test_a_copy_moves_to_an_empty_gpu_if_no_gpu_in_use_has_room(
    full: Snapshot, wanted: Decision, context: BatchContext
) -> None:
    larger = with_more_gpus(full, 1)
    question = formulate(larger)
    empty = {(node.name, gpu) for node in question.problem.nodes.values() for gpu in node.gpus}
    empty -= {line.place for line in question.plan_in_force.instances}
    assert empty
    given = replace(context, snapshot=larger, question=question)
    places = [place for _, group in candidates(given, wanted) for place in group]
    assert empty & set(places)


@pytest.mark.slow
def test_no_copy_moves_aside_to_any_gpu_of_a_job_on_several(
    full: Snapshot, wanted: Decision, context: BatchContext
) -> None:
    larger = with_more_gpus(full, 2)
    question = formulate(larger)
    used = {line.place for line in question.plan_in_force.instances}
    node = next(node for node in question.problem.nodes.values() if node.gpu_type == "l4-24gb")
    gpus = tuple(gpu for gpu in node.gpus if (node.name, gpu) not in used)[:2]
    job = replace_struct(a_job("train", gpu=gpus[0], sm=100), gpus=gpus)

    def beside_job(desired: Desired) -> Desired:
        there = desired.get(node.name, NodeDesired())
        return {**desired, node.name: replace(there, instances=(*there.instances, job))}

    given = replace(context, snapshot=replace(larger, in_force=beside_job(larger.in_force)), question=question)
    places = {
        place for _, group in candidates(given, replace(wanted, desired=beside_job(wanted.desired))) for place in group
    }
    assert places
    assert not places & {(node.name, gpu) for gpu in gpus}


@pytest.mark.slow
def test_a_fleet_that_runs_nothing_yet_has_no_copy_to_move_aside(full: Snapshot) -> None:
    idle = replace(full, in_force={node: replace(at, instances=()) for node, at in full.in_force.items()})
    question, wanted = formulate(idle), wanted_in(idle)
    unchanged = BatchContext(idle, question, keep_in_force(idle, question, wanted), SECONDS)
    assert find_sidestep(unchanged, wanted, SOLVER) is None
