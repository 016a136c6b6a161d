"""A plan that only saves waits until waiting has cost as much as its churn, unless something is needed now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from msgspec.structs import replace as replace_struct

from app.control.decide.batches import add_due_batches
from app.control.decide.cost_alone import wait_with_whole_plan
from app.control.decide.decide import draft_changes
from app.control.decide.effort import effort
from app.control.domain.decision import Decision, SolveOutcome, SolverAnswer
from app.control.domain.regret import LEAD_HOURS, NO_REGRETS, RegretAccounts
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, Snapshot
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from app.control.solve.inline import Inline
from app.manifests.model import Kind
from simulation.world import read_files
from solvers.planning.batches.batch import GroupRow, MoveLimit
from solvers.planning.plan import Changes, Plan
from solvers.planning.problem import PlacedJob, Problem
from tests.app.control.decide.conftest import under_loads, wanted_in
from tests.app.control.decide.test_batches import FLEET, SECONDS, SOLVER

CYCLE = timedelta(seconds=15)


class WithoutBatches(Inline):
    """A solver that finds no batch."""

    def find_batches(
        self, problem: Problem, plan: Plan, known: Sequence[GroupRow], *, tries: int, seed: int, seconds: float,
        limit: MoveLimit | None = None,
    ) -> SolverAnswer:  # fmt: skip
        return SolverAnswer(SolveOutcome.SOLVED)


def decide(
    snapshot: Snapshot, question: Question, found: Decision, regrets: RegretAccounts = NO_REGRETS,
    wanted: Decision | None = None,
) -> tuple[Decision, RegretAccounts]:  # fmt: skip
    context = wait_with_whole_plan(snapshot, question, found, wanted or found, SECONDS)
    return add_due_batches(context, regrets, WithoutBatches())


def waits(snapshot: Snapshot, question: Question, found: Decision) -> bool:
    return wait_with_whole_plan(snapshot, question, found, found, SECONDS).whole is found


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
    full: Snapshot, question: Question, wanted: Decision, saved_per_hour: float
) -> None:
    dear = with_price(question, wanted, saved_per_hour * (LEAD_HOURS + 10.5 * CYCLE.total_seconds() / 3600))
    cycles, snapshot = 0, full
    decision, regrets = decide(snapshot, question, dear)
    while decision.desired == full.in_force:
        first, due = decision.held_back[-1].message.split("; ")
        assert first == f"a cheaper plan would save {saved_per_hour:.2f} an hour"
        assert due == "it is made once waiting for it has cost as much as it does"
        assert bool(regrets.due(snapshot.at + CYCLE)) == (cycles == 10), "the same question is asked again then"
        cycles += 1
        snapshot = replace(snapshot, at=snapshot.at + CYCLE)
        decision, regrets = decide(snapshot, question, dear, regrets)
    assert cycles == 11
    assert decision.desired == wanted.desired
    assert not regrets.waiting


def test_its_account_goes_on_while_a_lack_is_answered_or_no_order_of_steps_leads_to_it(
    full: Snapshot, question: Question, wanted: Decision, saved_per_hour: float
) -> None:
    dear = with_price(question, wanted, saved_per_hour)
    _, regrets = decide(full, question, dear)
    later = replace(full, at=full.at + CYCLE)
    cycle = pytest.approx(saved_per_hour * CYCLE.total_seconds() / 3600)
    keeping = replace(dear, desired=full.in_force, plan=question.plan_in_force, verdict=question.verdict)
    _, blocked = decide(later, question, keeping, regrets, wanted=dear)
    assert [entry.regret for entry in blocked.waiting] == [cycle]
    name = next(iter(full.expected))
    lacking = replace(later, expected={**full.expected, name: ExpectedLoad(1e4)})
    context = wait_with_whole_plan(lacking, formulate(lacking), dear, dear, SECONDS)
    assert context.decision is dear
    assert not context.looks_for_whole
    _, turned = decide(later, question, keeping, regrets)
    assert not turned.waiting, "no cheaper plan is wanted any more"


@pytest.mark.slow
def test_a_plan_that_pays_soon_or_is_needed_does_not_wait(
    full: Snapshot, question: Question, wanted: Decision, saved_per_hour: float
) -> None:
    cheap = with_price(question, wanted, saved_per_hour * LEAD_HOURS * 0.9)
    assert decide(full, question, cheap)[0] is cheap
    name, load = next(iter(full.expected.items()))
    more = replace(full, expected={**full.expected, name: ExpectedLoad(load.rate_per_second * 3)})
    needed, lacking = wanted_in(more), formulate(more)
    assert lacking.falls_short
    assert not waits(more, lacking, needed)


def test_what_is_needed_for_another_reason_than_cost_does_not_wait(
    full: Snapshot, question: Question, wanted: Decision, saved_per_hour: float
) -> None:
    dear = with_price(question, wanted, saved_per_hour)
    assert waits(full, question, dear)
    node = next(iter(full.nodes.values()))
    draining = replace(full, nodes={**full.nodes, node.name: replace(node, draining_gpus=(0,))})
    assert not waits(draining, question, dear)
    job = PlacedJob("shop/train", node.name, 0, 50, 1.0)
    assert not waits(full, question, replace(dear, plan=replace(dear.plan, jobs=(job,))))
    stale = {
        name: replace(at, instances=tuple(replace_struct(line, template="old") for line in at.instances))
        for name, at in full.in_force.items()
    }
    changed = replace(full, in_force=stale)
    assert not waits(changed, formulate(changed), dear)


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
    assert waits(snapshot, question, moved)
    another = replace(placed, job="shop/another")
    assert not waits(snapshot, question, replace(dear, plan=replace(dear.plan, jobs=(placed, another))))
