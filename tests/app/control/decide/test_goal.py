"""A cheaper plan waits until waiting has cost as much as its churn, unless something is needed now."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from math import ceil
from random import Random

import pytest
from msgspec.structs import replace as replace_struct

from app.control.decide.decide import draft_changes
from app.control.decide.effort import effort
from app.control.decide.goal import wait_for_goal
from app.control.domain.decision import Decision
from app.control.domain.regret import LEAD_HOURS, NO_REGRETS
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, Snapshot
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from app.manifests.model import Kind
from simulation.world import read_files
from solvers.planning.plan import Changes
from solvers.planning.problem import PlacedJob
from tests.app.control.decide.conftest import under_loads, wanted_in
from tests.app.control.decide.test_batches import FLEET, SECONDS, SOLVER

CYCLE = timedelta(seconds=15)


@pytest.fixture(scope="module")
def question(full: Snapshot) -> Question:
    return formulate(full)


@pytest.fixture(scope="module")
def saved_per_hour(question: Question, wanted: Decision) -> float:
    assert wanted.verdict
    return question.verdict.cost.total - wanted.verdict.cost.total


def with_price(question: Question, decision: Decision, price: float) -> Decision:
    """Returns the decision with a move alone, whose churn and effort add up to this price."""
    assert decision.value
    changes = Changes(move=1)
    value = replace(decision.value, churn=price - effort(question, changes))
    assert value.churn > 0
    return replace(decision, plan=replace(decision.plan, changes=changes), value=value)


def test_a_plan_is_made_once_waiting_has_cost_its_churn(
    full: Snapshot,
    question: Question,
    wanted: Decision,
    saved_per_hour: float,
) -> None:
    dear = with_price(question, wanted, saved_per_hour * (LEAD_HOURS + 10.5 * CYCLE.total_seconds() / 3600))
    regrets, cycles, snapshot = NO_REGRETS, 0, full
    decision, regrets = wait_for_goal(snapshot, question, dear, dear, regrets, is_brief=False)
    while decision.desired == full.in_force:
        first, due = decision.held_back[-1].message.split("; ")
        assert first == f"a cheaper plan would save {saved_per_hour:.2f} an hour"
        assert due.startswith("it is made once waiting for it has cost as much as its hand-overs: ")
        assert due.endswith(" of 2.03 so far")
        assert not regrets.goal.is_due
        regrets = regrets.waited(snapshot.at)
        cycles += 1
        snapshot = replace(snapshot, at=snapshot.at + CYCLE)
        decision, regrets = wait_for_goal(snapshot, question, dear, dear, regrets, is_brief=False)
    assert cycles == 11
    assert decision.desired == wanted.desired
    assert not regrets.goal.saved_per_hour


def test_the_same_question_calls_for_the_goal_when_it_is_due(
    full: Snapshot,
    question: Question,
    wanted: Decision,
    saved_per_hour: float,
) -> None:
    dear = with_price(question, wanted, saved_per_hour * (LEAD_HOURS + 5.5 * CYCLE.total_seconds() / 3600))
    _, regrets = wait_for_goal(full, question, dear, dear, NO_REGRETS, is_brief=False)
    due = []
    for cycle in range(10):
        now = full.at + cycle * CYCLE
        due.append(regrets.goal.waited(now).is_due)
        regrets = regrets.waited(now)
    assert due.index(True) == 6


@pytest.mark.slow
def test_a_plan_that_pays_soon_or_is_needed_does_not_wait(
    full: Snapshot,
    question: Question,
    wanted: Decision,
    saved_per_hour: float,
) -> None:
    cheap = with_price(question, wanted, saved_per_hour * LEAD_HOURS * 0.9)
    assert wait_for_goal(full, question, cheap, cheap, NO_REGRETS, is_brief=False)[0] is cheap
    name, load = next(iter(full.expected.items()))
    more = replace(full, expected={**full.expected, name: ExpectedLoad(load.rate_per_second * 3)})
    needed = wanted_in(more)
    lacking = formulate(more)
    assert lacking.falls_short
    assert wait_for_goal(more, lacking, needed, needed, NO_REGRETS, is_brief=False)[0] is needed


def test_a_goal_that_is_due_and_cannot_be_made_waits_for_its_churn_again(full: Snapshot) -> None:
    regrets = NO_REGRETS.towards(full.at, 2.0, 0.099, 10.0, is_possible=False)
    assert regrets.goal.is_due
    regrets = regrets.goal_refused()
    cycles = 0
    while not regrets.goal.is_due:
        cycles += 1
        regrets = regrets.waited(full.at + cycles * CYCLE)
    assert cycles == ceil(0.099 / 2.0 / (CYCLE.total_seconds() / 3600))


def test_a_goal_keeps_its_account_through_small_changes_and_loses_what_it_would_have_cost(full: Snapshot) -> None:
    hour = CYCLE.total_seconds() / 3600
    regrets = NO_REGRETS.towards(full.at, 2.0, 9.0, 10.0, is_possible=False)
    regrets = regrets.towards(full.at + CYCLE, 3.0, 9.0, 11.0, is_possible=False)
    assert regrets.goal.regret == pytest.approx(2.0 * hour)
    dearer = regrets.towards(full.at + 2 * CYCLE, -1.0, 9.0, 7.0, is_possible=False)
    assert dearer.goal.regret == pytest.approx(1.0 * hour)
    assert regrets.towards(full.at + 2 * CYCLE, -9.0, 9.0, 7.0, is_possible=False).goal.regret == 0.0
    assert regrets.came_closer(10.0).goal.regret == pytest.approx(2.0 * hour * 2 / 3), "a third of it is saved"
    assert regrets.came_closer(14.0).came_closer(11.0) == regrets, "a batch has undone what a lack had opened"
    assert regrets.came_closer(7.0).goal.saved_per_hour == 0.0


def test_a_brief_search_keeps_the_account_of_the_goal(full: Snapshot, question: Question, wanted: Decision) -> None:
    regrets = NO_REGRETS.towards(full.at, 2.0, 9.0, 10.0, is_possible=False)
    later = replace(full, at=full.at + CYCLE, is_rolling=True)
    found, kept = wait_for_goal(later, question, wanted, wanted, regrets, is_brief=True)
    assert found is wanted
    assert kept.goal.regret == pytest.approx(2.0 * CYCLE.total_seconds() / 3600)


def test_what_is_needed_for_another_reason_than_cost_does_not_wait(
    full: Snapshot, question: Question, wanted: Decision, saved_per_hour: float
) -> None:
    dear = with_price(question, wanted, saved_per_hour)
    assert wait_for_goal(full, question, dear, dear, NO_REGRETS, is_brief=False)[0] is not dear
    node = next(iter(full.nodes.values()))
    draining = replace(full, nodes={**full.nodes, node.name: replace(node, draining_gpus=(0,))})
    assert wait_for_goal(draining, question, dear, dear, NO_REGRETS, is_brief=False)[0] is dear
    job = PlacedJob("shop/train", node.name, 0, 50, 1.0)
    starting = replace(dear, plan=replace(dear.plan, jobs=(job,)))
    assert wait_for_goal(full, question, starting, starting, NO_REGRETS, is_brief=False)[0] is starting
    stale = {
        name: replace(at, instances=tuple(replace_struct(line, template="old") for line in at.instances))
        for name, at in full.in_force.items()
    }
    changed = replace(full, in_force=stale)
    assert wait_for_goal(changed, formulate(changed), dear, dear, NO_REGRETS, is_brief=False)[0] is dear


@pytest.mark.slow
def test_a_cheaper_plan_does_not_come_sooner_because_a_job_moves_too(full: Snapshot) -> None:
    job = next(item for item in read_files(FLEET).of(Kind.JOB) if item.name == "finetune-tagger")
    declared = DeclaredObject(job.kind, job.tenant, job.name, job.spec)
    snapshot = replace(full, declared=(*full.declared, declared))
    question = formulate(snapshot)
    started = draft_changes(snapshot, question, SOLVER.solve(question.problem, seconds=SECONDS, work=10))
    (placed,) = started.plan.jobs
    snapshot = under_loads(replace(snapshot, in_force=started.desired, target=3), Random(3), 0.6, 0.7)
    question, wanted = formulate(snapshot), wanted_in(snapshot)
    assert not question.falls_short
    assert question.plan_in_force.jobs
    assert wanted.verdict
    dear = with_price(question, wanted, question.verdict.cost.total - wanted.verdict.cost.total)
    moved = replace(dear, plan=replace(dear.plan, jobs=(replace(placed, sm_percent=placed.sm_percent + 1),)))
    assert wait_for_goal(snapshot, question, moved, moved, NO_REGRETS, is_brief=False)[0].desired == snapshot.in_force
    another = replace(placed, job="shop/another")
    starting = replace(dear, plan=replace(dear.plan, jobs=(placed, another)))
    assert wait_for_goal(snapshot, question, starting, starting, NO_REGRETS, is_brief=False)[0] is starting
