"""Batches of moves make a dear plan cheaper, keep every service's capacity at each step, and can be replayed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.control.decide.batch_drafts import MOST_REHEARSED, URGENT_SECONDS, BatchContext, decide_with_batches
from app.control.decide.batches import TRIES, URGENT_TRIES, add_due_batches, spell_batches
from app.control.decide.decide import draft_changes, hold_back
from app.control.decide.least_change import follow_rates
from app.control.domain.decision import Decision, SolveOutcome, SolverAnswer
from app.control.domain.desired import Desired
from app.control.domain.regret import LEAST_WAITING, NO_REGRETS
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, NodeStatus, Rest, Snapshot
from app.control.formulate.formulate import formulate
from app.control.rollout.changes import InstanceChange, changes
from app.control.rollout.declared_rules import read_rules
from app.control.rollout.ordering.finding import order
from app.control.solve.inline import Inline
from app.manifests.model import Kind
from simulation.world import read_files
from solvers.planning.batches.batch import Batch, GroupRow, MoveLimit
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Instance, Problem
from tests.app.control.rollout.stepping import steps_of

START = datetime(2026, 6, 1, tzinfo=UTC)
FLEET = Path("examples/fleet.yaml")


class Keeping(Inline):
    """A solver that keeps the groups of the batches that it made."""

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[tuple[Instance, ...], GroupRow] = {}

    def make_batches(self, problem: Problem, plan: Plan, groups: GroupRow, *, seconds: float) -> SolverAnswer:
        answer = super().make_batches(problem, plan, groups, seconds=seconds)
        if answer.plan:
            self._made[answer.plan.instances] = groups
        return answer

    def groups_of(self, found: Decision) -> GroupRow:
        assert found.answer.plan
        return self._made[found.answer.plan.instances]


SOLVER = Keeping()
SECONDS = 10.0
FOR_NOTHING = "making it costs nothing"
BUSY_FACTOR, QUIET_FACTOR = 1.4, 0.7  # of the declared rates


class OutOfTime(Inline):
    """A solver whose search for batches never ends in time."""

    def find_batches(
        self, problem: Problem, plan: Plan, known: Sequence[GroupRow], *, tries: int, seed: int, seconds: float,
        limit: MoveLimit | None = None,
    ) -> SolverAnswer:  # fmt: skip
        return SolverAnswer(SolveOutcome.OUT_OF_TIME)


def fleet(file: Path = FLEET) -> Snapshot:
    world = read_files(file)
    declared = tuple(
        DeclaredObject(item.kind, item.tenant, item.name, item.spec)
        for item in world.manifests.values()
        if item.kind not in (Kind.STATE, Kind.JOB)
    )
    nodes = {item.name: NodeStatus(item.name, "reporting") for item in world.of(Kind.NODE)}
    return Snapshot(START, 1, declared, nodes)


def under_load(snapshot: Snapshot, factor: float) -> Snapshot:
    expected = {
        item.full_name: ExpectedLoad(float(item.spec["ratePerSecond"]) * factor)
        for item in snapshot.declared
        if item.kind == "Service"
    }
    return replace(snapshot, at=snapshot.at + timedelta(minutes=1), expected=expected)


@pytest.fixture(scope="module")
def context() -> BatchContext:
    """The demo's fleet, planned for a busy hour, after its loads have fallen: the least change leaves it dear."""
    busy = under_load(fleet(), BUSY_FACTOR)
    question = formulate(busy)
    planned = draft_changes(busy, question, SOLVER.solve(question.problem, seconds=SECONDS, work=1))
    quiet = under_load(replace(busy, in_force=planned.desired, target=1), QUIET_FACTOR)
    question = formulate(quiet)
    answer = SOLVER.follow(*follow_rates(question), seconds=SECONDS)
    decision = hold_back(quiet, question, draft_changes(quiet, question, answer))
    return BatchContext(quiet, question, decision, SECONDS)


def answer_of_a_rise(context: BatchContext, factor: float) -> BatchContext:
    """The same fleet, still with most of what it planned for a busy hour, when one service's load rises over that."""
    started = context.snapshot
    name, service = max(context.question.problem.services.items(), key=lambda item: item[1].rate_per_second)
    carried = sum(line.rate_per_second for line in context.question.plan_in_force.instances if line.service == name)
    loads = {**started.expected, name: ExpectedLoad(max(carried, service.rate_per_second) * factor)}
    snapshot = replace(started, expected=loads, is_rolling=True)
    question = formulate(snapshot)
    answer = SOLVER.follow(*follow_rates(question), seconds=SECONDS)
    return BatchContext(snapshot, question, draft_changes(snapshot, question, answer), SECONDS)


@pytest.fixture(scope="module")
def urgent(context: BatchContext) -> BatchContext:
    return answer_of_a_rise(context, 2.5)


class Listening(Inline):
    """Keeps with how much a search for batches is asked."""

    tries: int
    seconds: float

    def find_batches(
        self, problem: Problem, plan: Plan, known: Sequence[GroupRow], *, tries: int, seed: int, seconds: float,
        limit: MoveLimit | None = None,
    ) -> SolverAnswer:  # fmt: skip
        self.tries, self.seconds = tries, seconds
        return super().find_batches(problem, plan, known, tries=tries, seed=seed, seconds=seconds, limit=limit)


class Choosing(Inline):
    """A solver that finds these batches alone."""

    def __init__(self, batches: tuple[Batch, ...]) -> None:
        super().__init__()
        self._batches = batches

    def make_batches(self, problem: Problem, plan: Plan, groups: GroupRow, *, seconds: float) -> SolverAnswer:
        return SOLVER.make_batches(problem, plan, groups, seconds=seconds)

    def find_batches(
        self, problem: Problem, plan: Plan, known: Sequence[GroupRow], *, tries: int, seed: int, seconds: float,
        limit: MoveLimit | None = None,
    ) -> SolverAnswer:  # fmt: skip
        return SolverAnswer(SolveOutcome.SOLVED, batches=self._batches)

    def due(self) -> tuple[Batch, ...]:
        """Returns them in the order in which they are made."""
        return NO_REGRETS.measured(START, self._batches, LEAST_WAITING).due(START)


@pytest.fixture(scope="module")
def found(context: BatchContext) -> Decision:
    return add_due_batches(context, NO_REGRETS, SOLVER)[0]


def cost(decision: Decision) -> float:
    assert decision.plan.certificate
    return decision.plan.certificate.cost.total


def cost_in_force(context: BatchContext) -> float:
    return context.question.verdict.cost.total


def rates(desired: Desired) -> dict[str, dict[str, float]]:
    """Returns the rate of each instance, by service."""
    carried: dict[str, dict[str, float]] = {}
    for wanted in desired.values():
        for instance in wanted.instances:
            if instance.service:
                carried.setdefault(instance.owner, {})[instance.id] = instance.rate_per_second
    return carried


def lacking(before: Desired, steps: tuple[Desired, ...], after: Desired) -> Iterator[tuple[int, str, float]]:
    """Yields the steps at which instances that serve before and after it carry less than the plan needs."""
    start, goal = rates(before), rates(after)
    last = before
    for number, step in enumerate(steps):
        was, now = rates(last), rates(step)
        for service in start.keys() & goal.keys():
            need = min(sum(start[service].values()), sum(goal[service].values()))
            both = was[service].keys() & now[service].keys()
            carried = sum(min(was[service][name], now[service][name]) for name in both)
            if carried < need * (1 - 1e-6):
                yield number, service, carried / need
        last = step


@pytest.mark.slow
def test_a_batch_makes_a_dear_plan_cheaper_and_serves_all_load(context: BatchContext, found: Decision) -> None:
    assert cost(found) < cost(context.decision) - 0.5
    assert not found.plan.unserved
    assert found.verdict
    assert found.verdict.is_right


@pytest.mark.slow
def test_a_batch_says_what_it_saves_and_with_what_that_compares(context: BatchContext, found: Decision) -> None:
    saved = cost(context.decision) - cost(found)
    assert context.decision.desired != context.snapshot.in_force
    assert found.message.startswith("compared with only following the load, a batch of moves saves ")
    assert found.message.endswith(f" saves {saved:.2f} an hour; {FOR_NOTHING}")
    still = replace(context, decision=replace(context.decision, desired=context.snapshot.in_force))
    alone = add_due_batches(still, NO_REGRETS, SOLVER)[0]
    assert alone.plan.changes.start == alone.plan.changes.move == 0
    assert alone.message == f"a batch of moves saves {cost_in_force(still) - cost(alone):.2f} an hour; {FOR_NOTHING}"
    assert alone.value
    dear = replace(alone, value=replace(alone.value, churn=0.0641))
    assert spell_batches(still, dear).endswith(" an hour; making it costs 0.06 once")


@pytest.mark.slow
def test_an_answer_to_a_lack_takes_batches_along_but_waits_little_for_them(urgent: BatchContext) -> None:
    solver = Listening()
    assert urgent.question.falls_short
    assert urgent.decision.desired != urgent.snapshot.in_force
    assert add_due_batches(urgent, NO_REGRETS, OutOfTime()) == (urgent.decision, NO_REGRETS)
    decision = add_due_batches(urgent, NO_REGRETS, solver)[0]
    assert (solver.tries, solver.seconds) == (URGENT_TRIES, URGENT_SECONDS)
    assert decision.desired != urgent.decision.desired
    assert cost(decision) < cost(urgent.decision)
    assert decision.value
    assert urgent.decision.value
    assert decision.value.unserved <= urgent.decision.value.unserved


def test_services_that_slow_each_other_down_in_their_new_places_look_for_room_again(context: BatchContext) -> None:
    risen = answer_of_a_rise(context, 3.0)
    assert risen.question.plan_in_force.unserved
    assert not risen.decision.plan.unserved


def test_where_a_lack_is_left_more_batches_are_rehearsed(context: BatchContext, urgent: BatchContext) -> None:
    def left(rate_per_second: float) -> BatchContext:
        lacks = (Unserved("shop/search", rate_per_second),) if rate_per_second else ()
        return replace(urgent, decision=replace(urgent.decision, plan=replace(urgent.decision.plan, unserved=lacks)))

    assert [found.most_rehearsed for found in (left(0.0), left(1.0), context)] == [1, MOST_REHEARSED, MOST_REHEARSED]


@pytest.mark.slow
def test_batches_on_different_gpus_that_are_due_at_once_are_made_in_one_cycle(context: BatchContext) -> None:
    answer = SOLVER.find_batches(context.question.problem, context.plan, (), tries=64, seed=1, seconds=SECONDS)
    single = [batch for batch in answer.batches if len(batch.places) == 1]
    apart = sorted({batch.places: batch for batch in single}.values(), key=lambda batch: batch.gain_per_hour)[:2]
    assert len(apart) == 2
    chosen = Choosing(tuple(apart))
    decision, regrets = add_due_batches(context, NO_REGRETS, chosen)
    groups = SOLVER.groups_of(decision)
    assert groups == tuple(group for batch in chosen.due() for group in batch.groups)
    assert regrets.waiting == ()
    for batch in apart:
        alone, _ = add_due_batches(context, NO_REGRETS, Choosing((batch,)))
        assert cost(decision) < cost(alone)
    again = decide_with_batches(context, groups, SOLVER)
    assert again and (again.desired, cost(again)) == (decision.desired, cost(decision))


@pytest.mark.slow
def test_batches_join_a_rollout_that_serves_and_that_no_person_has_paused(
    context: BatchContext, urgent: BatchContext
) -> None:
    solver = Listening()
    rolling = replace(context, snapshot=replace(context.snapshot, is_rolling=True))
    add_due_batches(rolling, NO_REGRETS, solver)
    assert (solver.tries, solver.seconds) == (TRIES, SECONDS)
    paused = replace(context, snapshot=replace(context.snapshot, is_paused=True))
    assert add_due_batches(paused, NO_REGRETS, SOLVER) == (paused.decision, NO_REGRETS)
    lacking = replace(urgent, decision=replace(urgent.decision, desired=urgent.snapshot.in_force))
    assert add_due_batches(lacking, NO_REGRETS, SOLVER) == (lacking.decision, NO_REGRETS)


@pytest.mark.slow
def test_an_answer_to_a_lack_takes_no_batch_along_that_waits_for_approval(urgent: BatchContext) -> None:
    assert add_due_batches(urgent, NO_REGRETS, SOLVER)[0] != urgent.decision
    asked = next(item for item in urgent.snapshot.declared if item.full_name in urgent.decision.services)
    of_its_own = replace(asked, spec={**asked.spec, "mode": "approve"})
    declared = tuple(of_its_own if item is asked else item for item in urgent.snapshot.declared)
    approved = replace(urgent, snapshot=replace(urgent.snapshot, declared=declared))
    assert add_due_batches(approved, NO_REGRETS, SOLVER)[0] is urgent.decision


@pytest.mark.slow
def test_a_batch_in_the_middle_of_a_rollout_goes_on_from_what_nodes_are_assigned(
    context: BatchContext, found: Decision
) -> None:
    snapshot = context.snapshot
    rules = read_rules(snapshot.declared)
    steps = steps_of(snapshot.in_force, order(snapshot.in_force, found.desired, rules), rules)
    for assigned in steps[:-1]:
        rolling = replace(snapshot, assigned=assigned, in_force=found.desired, is_rolling=True)
        question = formulate(rolling)
        answer = SOLVER.follow(*follow_rates(question), seconds=SECONDS)
        decision = hold_back(rolling, question, draft_changes(rolling, question, answer))
        midway = BatchContext(rolling, question, decision, SECONDS)
        after = add_due_batches(midway, NO_REGRETS, SOLVER)[0].desired
        ordered = order(assigned, after, rules)
        assert not ordered.stuck
        assert list(lacking(assigned, steps_of(assigned, ordered, rules), after)) == []


def test_the_rollout_of_a_batch_keeps_each_services_capacity_at_every_step(
    context: BatchContext, found: Decision
) -> None:
    before, rules = context.snapshot.in_force, read_rules(context.snapshot.declared)
    ordered = order(before, found.desired, rules)
    assert not ordered.stuck
    steps = steps_of(before, ordered, rules)
    assert steps[-1] == found.desired
    assert list(lacking(before, steps, found.desired)) == []


def test_the_judge_of_steps_finds_a_copy_that_stops_before_its_successor_serves(
    context: BatchContext, found: Decision
) -> None:
    before, after = context.snapshot.in_force, found.desired
    assert list(lacking(before, (after,), after)), "all at once, starts carry nothing yet"


def test_the_same_groups_make_the_same_batch(context: BatchContext, found: Decision) -> None:
    again = decide_with_batches(context, SOLVER.groups_of(found), SOLVER)
    assert again and again.desired == found.desired
    assert replace(again.plan, certificate=None) == replace(found.plan, certificate=None)


def test_no_batch_is_made_before_the_first_plan_or_while_a_rollout_is_paused(context: BatchContext) -> None:
    for snapshot in (replace(context.snapshot, in_force={}), replace(context.snapshot, is_paused=True)):
        held = replace(context, snapshot=snapshot)
        assert add_due_batches(held, NO_REGRETS, SOLVER) == (context.decision, NO_REGRETS)


def test_a_search_that_fails_changes_nothing(context: BatchContext) -> None:
    assert add_due_batches(context, NO_REGRETS, OutOfTime()) == (context.decision, NO_REGRETS)


def starts(context: BatchContext, found: Decision) -> list[InstanceChange]:
    return [change for change in changes(context.snapshot.in_force, found.desired) if change.takes_room]


def moving(context: BatchContext) -> Iterator[tuple[BatchContext, Decision, InstanceChange]]:
    """Yields batches of the cycle at other moments that start a copy on another GPU, and that start."""
    decided = {(change.owner, change.place) for change in starts(context, context.decision)}
    for seconds in range(20):
        later = replace(
            context, snapshot=replace(context.snapshot, at=context.snapshot.at + timedelta(seconds=seconds))
        )
        found = add_due_batches(later, NO_REGRETS, SOLVER)[0]
        new = [change for change in starts(later, found) if (change.owner, change.place) not in decided]
        yield from ((later, found, change) for change in new[:1])


@pytest.mark.slow
def test_no_batch_starts_a_copy_where_one_of_its_service_failed_lately(context: BatchContext) -> None:
    context, found, change = next(moving(context))
    decided = {(start.owner, start.place) for start in starts(context, context.decision)}
    failed = replace(context.snapshot, failed_places={change.owner: (change.place,)})
    avoiding = replace(context, snapshot=failed)
    groups = SOLVER.groups_of(found)
    assert decide_with_batches(avoiding, groups, SOLVER) is None
    other = add_due_batches(avoiding, NO_REGRETS, SOLVER)[0]
    assert (change.owner, change.place) not in {(each.owner, each.place) for each in starts(context, other)}
    owner, place = min(decided)
    decided_anyway = replace(context, snapshot=replace(context.snapshot, failed_places={owner: (place,)}))
    anyway = decide_with_batches(decided_anyway, groups, SOLVER)
    assert anyway and anyway.desired == found.desired


def test_a_batch_waits_for_a_rest_only_where_it_changes_the_service(context: BatchContext, found: Decision) -> None:
    change, until = starts(context, found)[0], context.snapshot.at + timedelta(minutes=1)
    everywhere = Rest(until)
    rests = {True: Rest(until, (change.place,)), False: Rest(until, (("another-node", 0),))}
    for is_there, rest in (*rests.items(), (True, everywhere)):
        resting = replace(context, snapshot=replace(context.snapshot, resting={change.owner: rest}))
        again = decide_with_batches(resting, SOLVER.groups_of(found), SOLVER)
        assert (again is not None and again.desired == found.desired) is not is_there
