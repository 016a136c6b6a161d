"""A question about a fleet of which nothing has changed is recognized, and is the one that would be formulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from datetime import timedelta
from random import Random

import pytest

from app.control.decide.assigning import assign_plan
from app.control.domain.snapshot import (
    DeclaredObject,
    ExpectedLoad,
    NodeStatus,
    Snapshot,
    TenantSpending,
)
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from solvers.planning.judge import judge
from solvers.planning.search.promise import keep
from tests.app.control.decide.test_choosing import SERVICES, plan, world
from tests.support.corrections import slower
from tests.support.soak import scaled

FREE = world(SERVICES)
BUDGET = DeclaredObject("Tenant", "", "shop", {"budget": {"perMonth": 100.0}, "overBudget": "degrade"})
ALLOWED = replace(FREE, declared=(*FREE.declared, BUDGET), tenants={"shop": TenantSpending(1.0)})
TRAIN = DeclaredObject("Job", "shop", "train", {
    "type": "training", "steps": 1000, "deadline": "2026-06-02T12:00:00Z",
    "profiles": {"small": {"stepsPerSecond": {"10": 1.0, "100": 5.0}, "memoryGib": 1.0}},
})  # fmt: skip


def with_plan(snapshot: Snapshot, seed: int) -> Snapshot:
    question = formulate(snapshot)
    rates = {name: service.rate_per_second for name, service in question.problem.services.items()}
    return replace(snapshot, in_force=assign_plan(snapshot, question, plan(Random(seed), rates, whole=False)))


RUNNING = with_plan(ALLOWED, 1)


def later(snapshot: Snapshot, seconds: float = 30.0) -> Snapshot:
    return replace(snapshot, at=snapshot.at + timedelta(seconds=seconds))


def formulated_afresh(snapshot: Snapshot) -> Question:
    """Formulates from other objects of the same content, which are not recognized."""
    return formulate(replace(snapshot, declared=(*snapshot.declared,)))


def test_measured_bursts_are_planned_for_unless_more_are_declared() -> None:
    name = "shop/a"
    rate = formulate(FREE).problem.services[name].rate_per_second
    steady = replace(FREE, expected={**FREE.expected, name: ExpectedLoad(rate)})
    bursty = replace(steady, expected={**steady.expected, name: ExpectedLoad(rate, variation=0.3)})
    assert formulate(steady).problem.services[name].variation == 0.0
    assert formulate(bursty).problem.services[name].variation == 0.3  # another question, though its rates are the same
    declared = tuple(
        replace(item, spec={**item.spec, "burstiness": 20.0}) if (item.tenant, item.name) == ("shop", "a") else item
        for item in bursty.declared
    )
    assert formulate(replace(bursty, declared=declared)).problem.services[name].variation > 0.3


def test_an_unchanged_fleet_has_its_last_question_with_its_verdict_at_the_time_of_now() -> None:
    first = formulate(RUNNING)
    verdict = first.verdict
    again = formulate(later(replace(RUNNING, in_force={**RUNNING.in_force})))
    assert again.verdict is verdict
    assert again.plan_in_force is first.plan_in_force
    assert again.problem.state is not None
    assert again.problem.state.now == later(RUNNING).at
    assert again == formulated_afresh(later(RUNNING))


def test_what_is_found_out_later_is_known_of_the_next_question_too() -> None:
    formulate(later(RUNNING, 60))
    second = formulate(later(RUNNING, 90))
    verdict = second.verdict
    assert formulate(later(RUNNING, 120)).verdict is verdict


def test_questions_before_and_after_decisions_are_known_side_by_side() -> None:
    others = [with_plan(ALLOWED, seed) for seed in (2, 3)]
    questions = [formulate(snapshot) for snapshot in (RUNNING, *others)]
    again = [formulate(later(snapshot)) for snapshot in (RUNNING, *others)]
    assert all(one.problem.services is other.problem.services for one, other in zip(questions, again, strict=True))
    assert len({id(question.problem.services) for question in questions}) == len(questions)


def faster(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, expected={**snapshot.expected, "shop/a": ExpectedLoad(55.0)})


CHANGES: Mapping[str, Callable[[Snapshot], Snapshot]] = {
    "rate": faster,
    "node": lambda known: replace(known, nodes={**known.nodes, "n1": NodeStatus("n1", "reporting", failed_gpus=(1,))}),
    "plan": lambda known: with_plan(known, 2),
    "correction": lambda known: replace(known, corrections={"m-a/v/small": slower(1.2)}),
    "spent": lambda known: replace(known, tenants={"shop": TenantSpending(200.0)}),
    "declared": lambda known: replace(known, declared=tuple(i for i in known.declared if i.name != "d")),
    "job": lambda known: replace(known, declared=(*known.declared, TRAIN)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_changes_is_asked_about(change: Callable[[Snapshot], Snapshot]) -> None:
    before = formulate(RUNNING)
    changed = later(change(RUNNING))
    found = formulate(changed)
    assert found.fingerprint != before.fingerprint
    assert found == formulated_afresh(changed)


def test_a_question_with_jobs_is_formulated_each_time() -> None:
    snapshot = replace(RUNNING, declared=(*RUNNING.declared, TRAIN))
    first = formulate(snapshot)
    assert first.problem.jobs
    assert formulate(snapshot) is not first
    assert formulate(later(snapshot, 12 * 3600)) == formulated_afresh(later(snapshot, 12 * 3600))


@pytest.mark.parametrize("seed", range(scaled(200, 20)))
def test_recognized_questions_are_those_that_would_be_formulated(seed: int) -> None:
    r, snapshot = Random(seed), RUNNING
    known = [snapshot]
    for _ in range(12):
        step = r.choice(["later", "back", *CHANGES])
        if step == "back":
            snapshot = replace(r.choice(known), at=snapshot.at)
        elif step in CHANGES:
            snapshot = CHANGES[step](snapshot)
        known.append(snapshot := later(snapshot))
        found, afresh = formulate(snapshot), formulated_afresh(snapshot)
        assert [getattr(found, field.name) for field in fields(found)] == [
            getattr(afresh, field.name) for field in fields(afresh)
        ]
        assert found.fingerprint == afresh.fingerprint
        assert found.verdict == judge(afresh.problem, afresh.plan_in_force, simulate=False, keeps=keep)
        assert found.value_in_force == afresh.value_in_force
