"""In the middle of a rollout no load goes without that a few changes from what nodes are assigned would serve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from app.control.answer.replay import Record, read_record, replay, write_record
from app.control.cycle import CycleBudget
from app.control.decide.decide import draft_changes, hold_back
from app.control.decide.last_question import LastQuestion
from app.control.decide.least_change import follow_rates
from app.control.domain.decision import Decision, SolveOutcome
from app.control.domain.desired import Desired
from app.control.domain.snapshot import ExpectedLoad, Snapshot
from app.control.formulate.formulate import formulate
from app.control.rollout.declared_rules import read_rules
from app.control.rollout.ordering.finding import order
from app.control.solve.versions import versions
from tests.app.control.cycles import one_cycle
from tests.app.control.decide.conftest import under_loads, wanted_in
from tests.app.control.decide.test_batches import SECONDS, SOLVER, fleet
from tests.app.control.rollout.stepping import steps_of
from tests.app.control.test_certificates import OneMoment
from tests.support.soak import SOAK

FIRST_SEED = 55  # of loads that a rollout under way keeps from being served
LEAST_SHARE = 1e-6  # of a rate


def midway(seed: int) -> Snapshot | None:
    """The demo's fleet after some steps of a rollout, when loads move; None if the rollout has a single step."""
    r = Random(seed)
    snapshot = under_loads(fleet(), r, 0.6, 1.0)
    question = formulate(snapshot)
    first = draft_changes(snapshot, question, SOLVER.solve(question.problem, seconds=SECONDS, work=2))
    snapshot = under_loads(replace(snapshot, in_force=first.desired, target=1), r, 0.5, 1.1)
    planned = hold_back(snapshot, formulate(snapshot), wanted_in(snapshot))
    rules = read_rules(snapshot.declared)
    steps = steps_of(snapshot.in_force, order(snapshot.in_force, planned.desired, rules), rules)
    if len(steps) < 2:
        return None
    assigned = steps[r.randrange(len(steps) - 1)]
    moved = under_loads(
        replace(snapshot, in_force=planned.desired, assigned=assigned, target=2, is_rolling=True), r, 0.5, 1.1
    )
    expected = {
        name: ExpectedLoad(load.rate_per_second * r.choice((1, 1, 1.5, 2))) for name, load in moved.expected.items()
    }
    return replace(moved, expected=expected)


def decided(now: Snapshot) -> tuple[Decision | None, bool]:
    """Returns the decision, and whether it gives the rollout up where it is."""
    store = OneMoment(now)
    result = one_cycle(store, SOLVER, lambda known: now.expected, LastQuestion(), CycleBudget(work=2))
    is_given_up = result.searched is not None and result.searched.in_force is now.assignments
    return (store.decisions[0], is_given_up) if store.decisions else (None, False)


def lacks(desired: Desired, now: Snapshot) -> dict[str, float]:
    """Returns what the copies of each service do not carry of its rate."""
    carried = dict.fromkeys(now.expected, 0.0)
    for wanted in desired.values():
        for line in wanted.instances:
            if line.service:
                carried[line.owner] += line.rate_per_second
    return {
        name: lack
        for name, load in now.expected.items()
        if (lack := load.rate_per_second - carried[name]) > LEAST_SHARE * load.rate_per_second
    }


def served_from_assignments(now: Snapshot) -> Desired | None:
    """Returns what nodes would run by the least change from what they are assigned; None if the judge refuses that."""
    here = replace(now, in_force=now.assignments, assigned=None)
    question = formulate(here)
    answer = SOLVER.follow(*follow_rates(question), seconds=SECONDS)
    least = draft_changes(here, question, answer)
    return None if least.answer.outcome is SolveOutcome.WRONG else hold_back(here, question, least).desired


def moments(count: int) -> Iterator[Snapshot]:
    return (now for seed in range(FIRST_SEED, FIRST_SEED + count) if (now := midway(seed)))


@pytest.mark.slow
def test_a_rollout_that_is_in_the_way_of_load_is_given_up_where_it_is() -> None:
    given_up = 0
    for now in moments(60):
        if given_up and not SOAK:
            break
        decision, is_given_up = decided(now)
        left = lacks(decision.desired if decision else now.in_force, now)
        if (here := served_from_assignments(now)) is not None:
            others = lacks(here, now)
            serves_some_less = any(lack > left.get(name, 0.0) for name, lack in others.items())
            assert serves_some_less or left.keys() == others.keys(), (left, others)
        if decision is None or not is_given_up:
            continue
        given_up += 1
        assert not order(now.assignments, decision.desired, read_rules(now.declared)).stuck
        record = Record(
            3, decision.lane, decision.answer.outcome, now, decision.drafts, dict(versions()), decision.plan,
            dict(decision.desired),
        )  # fmt: skip
        assert replay(read_record(write_record(record)), SOLVER).is_identical
    assert given_up
