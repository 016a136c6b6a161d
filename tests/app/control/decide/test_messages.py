"""A plan of a cycle says what made it worthwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.control.decide.batches import spell_gain
from app.control.decide.decide import draft_changes
from app.control.decide.least_change import follow_rates
from app.control.decide.messages import explain_decisions, true_reason
from app.control.domain.decision import Decision
from app.control.domain.events import Reason
from app.control.domain.snapshot import ExpectedLoad, Snapshot
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from solvers.planning.plan import Cost
from tests.app.control.decide.test_batches import SECONDS, SOLVER, START, fleet, under_load


@pytest.fixture(scope="module")
def planned() -> Snapshot:
    started = fleet()
    question = formulate(started)
    decision = draft_changes(started, question, SOLVER.solve(question.problem, seconds=SECONDS, work=1))
    return under_load(replace(started, in_force=decision.desired, target=1), 1.0)


def decided(snapshot: Snapshot) -> tuple[Question, Decision]:
    question = formulate(snapshot)
    answer = SOLVER.follow(*follow_rates(question), seconds=SECONDS)
    return question, draft_changes(snapshot, question, answer)


def risen(planned: Snapshot, names: tuple[str, ...], factor: float) -> Snapshot:
    loads = {name: ExpectedLoad(planned.expected[name].rate_per_second * factor) for name in names}
    return replace(planned, expected={**planned.expected, **loads})


def message(question: Question, decision: Decision) -> str:
    (found,) = explain_decisions(Snapshot(START, 1), question, [decision])
    return found.message


def test_a_plan_for_more_load_names_the_service_and_both_rates(planned: Snapshot) -> None:
    name = sorted(planned.expected)[0]
    question, decision = decided(risen(planned, (name,), 3.0))
    expected = question.problem.services[name].rate_per_second
    carried = sum(line.rate_per_second for line in question.plan_in_force.instances if line.service == name)
    rates = f"{expected:.1f} requests a second are expected, {carried:.1f} were planned for"
    assert message(question, decision) == f"{name}: {rates}"


def test_two_rates_that_differ_by_little_do_not_look_the_same(planned: Snapshot) -> None:
    name = min(planned.expected, key=lambda name: planned.expected[name].rate_per_second)
    question, decision = decided(risen(planned, (name,), 1.0005))
    expected, were = message(question, decision).split(": ")[1].split(", ")
    assert expected.split()[0] != were.split()[0]


def test_the_three_largest_shortfalls_are_named_and_the_others_counted(planned: Snapshot) -> None:
    question, decision = decided(risen(planned, tuple(sorted(planned.expected))[:5], 3.0))
    lacks = sorted(question.plan_in_force.unserved, key=lambda lack: -lack.rate_per_second)
    assert len(lacks) == 5
    parts = message(question, decision).split("; ")
    assert [part.split(":")[0] for part in parts] == [lack.service for lack in lacks[:3]]
    assert parts[-1].endswith(" were planned for and 2 more")


def test_a_plan_that_only_saves_says_how_much(planned: Snapshot) -> None:
    quiet = under_load(planned, 0.3)
    question = formulate(quiet)
    decision = draft_changes(quiet, question, SOLVER.solve(question.problem, seconds=SECONDS, work=4))
    assert decision.verdict
    saved = question.verdict.cost.total - decision.verdict.cost.total
    assert saved > 0
    assert message(question, decision) == f"it saves {saved:.2f} an hour"


def test_a_plan_that_neither_saves_nor_adds_capacity_says_nothing(planned: Snapshot) -> None:
    assert message(*decided(planned)) == ""


def test_a_message_or_a_reason_that_a_plan_has_stays(planned: Snapshot) -> None:
    question, decision = decided(planned)
    assert message(question, replace(decision, message="a batch of moves")) == "a batch of moves"
    question, decision = decided(risen(planned, tuple(planned.expected), 3.0))
    assert message(question, replace(decision, message="a batch")) == f"{message(question, decision)}; a batch"
    assert message(question, replace(decision, reason=Reason.FLEET_APPLIED)) == ""


@pytest.mark.parametrize(
    ("target", "reason", "found"),
    [
        (0, Reason.OPERATOR, Reason.FIRST_PLAN),
        (0, Reason.CYCLE, Reason.FIRST_PLAN),
        (0, Reason.FLEET_APPLIED, Reason.FLEET_APPLIED),
        (7, Reason.OPERATOR, Reason.OPERATOR),
        (7, Reason.FIRST_PLAN, Reason.CYCLE),
    ],
)
def test_the_first_plan_alone_is_called_for_by_the_lack_of_one(target: int, reason: Reason, found: Reason) -> None:
    assert true_reason(reason, replace(fleet(), target=target)) is found


def edit(world: Snapshot, *kinds: str) -> Snapshot:
    """Returns the world after the first object of each kind was changed."""
    first = [next(item for item in world.declared if item.kind == kind) for kind in kinds]
    changed = [replace(item, spec={**item.spec, "x": 1}) if item in first else item for item in world.declared]
    return replace(world, declared=tuple(changed), target=7)


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        (("Service",), Reason.SERVICE_APPLIED),
        (("Service", "Node"), Reason.FLEET_APPLIED),
        (("Node",), Reason.FLEET_APPLIED),
        ((), Reason.CYCLE),  # only statuses changed, which woke the planner
    ],
)
def test_an_edit_is_called_what_it_is(kinds: tuple[str, ...], found: Reason) -> None:
    assert true_reason(Reason.FLEET_APPLIED, edit(fleet(), *kinds), fleet().declared) is found
    assert true_reason(Reason.FLEET_APPLIED, edit(fleet(), *kinds)) is Reason.FLEET_APPLIED, (
        "the world before is unknown"
    )


def test_what_a_person_changed_is_named(planned: Snapshot) -> None:
    edited = edit(planned, "Service")
    question, decision = decided(edited)
    made = replace(decision, reason=Reason.SERVICE_APPLIED)
    (found,) = explain_decisions(edited, question, [made], planned.declared)
    name = next(item.full_name for item in planned.declared if item.kind == "Service")
    assert found.message == f"Service {name} was changed"


def test_a_plan_for_a_node_that_is_taken_back_says_so(planned: Snapshot) -> None:
    node = next(node for node, wanted in planned.in_force.items() if wanted.instances)
    nodes = {**planned.nodes, node: replace(planned.nodes[node], reclaimed_at=planned.at)}
    leaving = replace(planned, nodes=nodes)
    assert true_reason(Reason.OPERATOR, leaving) is Reason.RECLAIM_NOTICE
    question, decision = decided(planned)
    (found,) = explain_decisions(leaving, question, [replace(decision, reason=Reason.RECLAIM_NOTICE)])
    assert found.message == f"the cloud takes node {node} back"


def test_a_service_that_nothing_carries_any_more_is_named_without_a_rate_of_zero(planned: Snapshot) -> None:
    question, decision = decided(replace(planned, in_force={}))
    first = message(question, decision).split("; ")[0]
    assert first.endswith(" requests a second are expected, and no instance that stays serves them")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (Cost(5.0, 0.0), Cost(3.5, 0.0), "saves 1.50 an hour"),
        (Cost(5.0, 90_000.0), Cost(5.5, 10.0), "serves more requests, and costs 0.50 an hour more"),
        (Cost(5.0, 90_000.0), Cost(4.5, 0.0), "serves more requests, and saves 0.50 an hour"),
        (Cost(5.0, 0.0), Cost(2.0, 0.1), "saves 3.00 an hour, and serves fewer requests"),
    ],
)
def test_a_penalty_is_never_said_to_be_money(before: Cost, after: Cost, said: str) -> None:
    assert spell_gain(before, after) == said
