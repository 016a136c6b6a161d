"""A recorded decision is repeated from the record alone, and differences are named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from app.control.answer.replay import Record, ReplayRefused, difference, read_record, replay, write_record
from app.control.domain.decision import Draft, PlanningLane, SolveOutcome, SolverAnswer, SolverOrder
from app.control.domain.snapshot import ExpectedLoad
from app.control.fast import CapacityNeed, StepTrigger
from app.control.fast.base import step_base
from app.control.fast.drafting import draft_step, note_calls
from app.control.formulate.formulate import formulate
from app.control.solve.inline import Inline
from app.control.solve.recorded import RecordingSolver
from app.control.solve.solver import Solver
from app.control.solve.versions import versions
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from tests.proofs.replays import decisions


class Silent(Inline):
    """A solver that must not be asked."""

    def repeat(self, problem: Problem, counted: Mapping[str, Any], *, seconds: float) -> SolverAnswer:
        raise AssertionError("asked for a plan")

    def add(self, problem: Problem, *, seconds: float) -> SolverAnswer:
        raise AssertionError("asked to add")

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer:
        raise AssertionError("asked to follow")


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Eight cycles of one small world, the fourth and eighth by the fast lane."""
    solver = Solver()
    try:
        return list(decisions(8, solver))
    finally:
        solver.close()


@pytest.mark.slow
def test_every_decision_comes_out_the_same_from_its_json(records: list[Record]) -> None:
    assert {record.lane for record in records} == {PlanningLane.FULL, PlanningLane.FAST}
    assert SolverOrder.SOLVE in {draft.order for record in records for draft in record.drafts}
    for record in records:
        assert replay(read_record(write_record(record)), Inline()).is_identical, record.generation


def test_another_plan_on_record_is_named_by_its_first_difference(records: list[Record]) -> None:
    record = next(record for record in records if record.plan and record.plan.instances)
    assert record.plan
    first, *others = record.plan.instances
    forged = replace(record.plan, instances=(replace(first, sm_percent=first.sm_percent + 1), *others))
    replayed = replay(replace(record, plan=forged), Inline())
    assert not replayed.is_identical
    wanted = f"plan.instances[0].sm_percent: {first.sm_percent + 1} on record, {first.sm_percent} now"
    assert replayed.difference == wanted


def test_a_record_of_an_older_form_of_problems_is_refused_by_name(records: list[Record]) -> None:
    older = {name: version for name, version in records[0].versions.items() if name != "problem"}
    with pytest.raises(ReplayRefused, match="problem is 2 here and was not recorded"):
        replay(replace(records[0], versions=older), Silent())


def test_another_snapshot_gives_another_plan(records: list[Record]) -> None:
    record = next(
        record for record in records if record.lane is PlanningLane.FULL and record.plan and record.plan.instances
    )
    expected = {name: ExpectedLoad(3 * load.rate_per_second) for name, load in record.snapshot.expected.items()}
    forged = replace(record, snapshot=replace(record.snapshot, expected=expected))
    assert not replay(forged, Inline()).is_identical


def test_other_versions_are_refused_by_name(records: list[Record]) -> None:
    old = replace(records[0], versions={**versions(), "numpy": "1.0", "gpuwright": "0.0.1"})
    with pytest.raises(ReplayRefused) as refused:
        replay(old, Silent())
    here = versions()
    assert str(refused.value) == (
        f"plan 1 was made by other versions: gpuwright is {here['gpuwright']} here and was 0.0.1; "
        f"numpy is {here['numpy']} here and was 1.0"
    )


@pytest.mark.parametrize("outcome", [SolveOutcome.CRASHED, SolveOutcome.OUT_OF_TIME, SolveOutcome.WRONG])
def test_a_killed_solver_is_replayed_as_its_recorded_outcome(records: list[Record], outcome: SolveOutcome) -> None:
    killed = replace(records[0], outcome=outcome, plan=None, desired=None)
    replayed = replay(read_record(write_record(killed)), Silent())
    assert (replayed.is_identical, replayed.message) == (
        True,
        f"the cycle made no plan ({outcome}), as the record says",
    )


class Late(Inline):
    """A solver that follows no rates in time."""

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer:
        return SolverAnswer(SolveOutcome.OUT_OF_TIME)


def test_where_the_solver_failed_a_quick_step_then_it_fails_it_again(records: list[Record]) -> None:
    """Out of time is no property of a problem: it is on record, and no solver is asked."""
    failed = 0
    for quick in (record for record in records if record.lane is PlanningLane.FAST):
        base = step_base(quick.snapshot, formulate(quick.snapshot))
        for name, service in base.question.problem.services.items():
            rate, recording = service.rate_per_second * 9, RecordingSolver(Late())
            needs = [CapacityNeed(name, StepTrigger.LOAD_ROSE, rate, rate, "load rose")]
            if (drafted := draft_step(base, needs, recording, quick.snapshot.at, None)) and recording.drafts:
                found, called = drafted.decision, note_calls(quick.snapshot, needs)
                desired, drafts = dict(found.desired), tuple(recording.drafts)
                record = replace(quick, snapshot=called, plan=found.plan, desired=desired, drafts=drafts)
                assert replay(read_record(write_record(record)), Silent()).is_identical
                failed += 1
    assert failed


def test_a_record_without_drafts_is_refused(records: list[Record]) -> None:
    with pytest.raises(ReplayRefused, match="the drafts of plan 1 are not on record"):
        replay(replace(records[0], drafts=()), Silent())


def test_another_order_than_on_record_is_a_difference(records: list[Record]) -> None:
    added = (Draft(SolverOrder.FOLLOW, SolveOutcome.SOLVED),)
    replayed = replay(replace(records[0], drafts=added), Silent())
    assert replayed.difference == "the solver is asked for solve now, and was for follow"


def test_a_quick_step_beside_instances_on_a_cordoned_gpu_comes_out_the_same(records: list[Record]) -> None:
    replayed = 0
    for quick in (record for record in records if record.lane is PlanningLane.FAST):
        for node, gpu in {
            (node, line.gpu) for node, all_ in quick.snapshot.in_force.items() for line in all_.instances
        }:
            facts = replace(quick.snapshot.nodes[node], cordoned_gpus=(gpu,))
            snapshot = replace(quick.snapshot, nodes={**quick.snapshot.nodes, node: facts})
            base = step_base(snapshot, formulate(snapshot))
            rates = {name: carried * 1.4 for name, carried in base.elsewhere.items()}
            needs = [CapacityNeed(name, StepTrigger.LOAD_ROSE, rate, rate, "load rose") for name, rate in rates.items()]
            recording = RecordingSolver(Inline())
            if drafted := draft_step(base, needs, recording, snapshot.at, None):
                found, called = drafted.decision, note_calls(snapshot, needs)
                desired, drafts = dict(found.desired), tuple(recording.drafts)
                record = replace(quick, snapshot=called, plan=found.plan, desired=desired, drafts=drafts)
                assert replay(read_record(write_record(record)), Inline()).is_identical
                replayed += 1
    assert replayed


def test_what_no_solver_found_is_not_found_again(records: list[Record]) -> None:
    with pytest.raises(ReplayRefused, match=r"no solver made plan \d+: its lane is rollback"):
        replay(replace(records[0], lane=PlanningLane.ROLLBACK, drafts=()), Silent())


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"generation": 1, "lane": "other"}'])
def test_what_is_no_record_is_refused(body: bytes) -> None:
    with pytest.raises(ReplayRefused, match="not a record of a decision"):
        read_record(body)


@pytest.mark.parametrize(
    ("then", "now", "expected"),
    [
        ((1, 2), (1, 2), ""),
        ((1, 2), (1, 3), "it[1]: 2 on record, 3 now"),
        ((1, 2), (1,), "it: 2 on record, 1 now"),
        ({"a": 1}, {"b": 1}, "it: a is gone"),
        ({"a": (1,)}, {"a": ("1",)}, "it.a[0]: 1 on record, '1' now"),
        ({}, {"b": 1}, "it: b is new"),
    ],
)
def test_the_first_difference_is_named(then: Any, now: Any, expected: str) -> None:
    assert difference(then, now, "it") == expected
