"""A full fleet, and a cheaper plan that has no order of steps from what runs there."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from app.control.decide.decide import draft_changes, hold_back
from app.control.decide.least_change import follow_rates
from app.control.domain.decision import Decision
from app.control.domain.snapshot import ExpectedLoad, Snapshot
from app.control.formulate.formulate import formulate
from solvers.planning.replan.match import match_running
from solvers.planning.search.tables import tables
from tests.app.control.decide.test_batches import SECONDS, SOLVER, fleet

WORK = 12
SEED = 7  # of loads whose cheaper plan has no order of steps


def under_loads(snapshot: Snapshot, draw: Random, least: float, most: float) -> Snapshot:
    rates = {item.full_name: float(item.spec["ratePerSecond"]) for item in snapshot.declared if item.kind == "Service"}
    expected = {name: ExpectedLoad(rate * draw.uniform(least, most)) for name, rate in rates.items()}
    return replace(snapshot, at=snapshot.at + timedelta(minutes=1), expected=expected)


def wanted_in(snapshot: Snapshot) -> Decision:
    """Drafts the cheapest plan that a search from nothing finds, laid over what runs."""
    question = formulate(snapshot)
    answer = SOLVER.solve(replace(question.problem, state=None), seconds=SECONDS, work=WORK)
    assert answer.plan
    laid_over = tuple(match_running(tables(question.problem), answer.plan.instances))
    return draft_changes(snapshot, question, replace(answer, plan=replace(answer.plan, instances=laid_over)))


def followed(draw: Random, least: float, most: float) -> Snapshot:
    """Returns the demo's fleet after its plan has followed loads that moved so by the least change."""
    snapshot = under_loads(fleet(), draw, 0.9, 1.4)
    question = formulate(snapshot)
    first = draft_changes(snapshot, question, SOLVER.solve(question.problem, seconds=SECONDS, work=1))
    snapshot = under_loads(replace(snapshot, in_force=first.desired, target=1), draw, least, most)
    question = formulate(snapshot)
    decision = draft_changes(snapshot, question, SOLVER.follow(*follow_rates(question), seconds=SECONDS))
    return replace(snapshot, in_force=hold_back(snapshot, question, decision).desired, target=2)


@pytest.fixture(scope="module")
def full() -> Snapshot:
    """The demo's fleet with nearly every GPU in use."""
    return followed(Random(SEED), 0.7, 1.3)


@pytest.fixture(scope="module")
def wanted(full: Snapshot) -> Decision:
    return wanted_in(full)
