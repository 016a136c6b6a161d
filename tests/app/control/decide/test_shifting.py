"""A plan without an order of steps is reached where empty GPUs run what its blocked GPUs were to run."""

from __future__ import annotations

from random import Random

import pytest

from app.control.decide.choosing import choose
from app.control.decide.decide import hold_back
from app.control.decide.shifting import shift
from app.control.domain.decision import Decision
from app.control.domain.snapshot import Snapshot
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from app.control.rollout.declared_rules import read_rules
from app.control.rollout.ordering.finding import find_blocked
from solvers.planning.judge import judge
from solvers.planning.search.promise import keep
from tests.app.control.decide.conftest import followed, under_loads, wanted_in
from tests.app.control.decide.test_batches import SECONDS, SOLVER
from tests.app.control.decide.test_choosing import unchanged

pytestmark = pytest.mark.slow

# Moments at which the cheapest plan has no order of steps; some of these plans can be shifted.
SEEDS = (13, 18, 20, 22)  # of loads that have fallen
RISEN_SEEDS = (13, 17, 18, 37)  # of loads that have risen again


@pytest.fixture(scope="module")
def blocked() -> list[tuple[Snapshot, Decision]]:
    """Moments of the demo's fleet at which the cheapest plan has no order of steps."""
    found = []
    for seed in SEEDS:
        now = followed(Random(seed), 0.4, 1.0)
        wanted = wanted_in(now)
        if find_blocked(now.assignments, wanted.desired, read_rules(now.declared)):
            found.append((now, wanted))
    return found


def test_what_blocked_gpus_shall_run_starts_on_empty_ones(blocked: list[tuple[Snapshot, Decision]]) -> None:
    shifted = 0
    for now, wanted in blocked:
        question = formulate(now)
        found = shift(now, question, wanted, SOLVER, seconds=SECONDS)
        if found is None:
            continue
        shifted += 1
        assert not find_blocked(now.assignments, found.desired, read_rules(now.declared))
        assert hold_back(now, question, found).desired in (found.desired, now.in_force)
        verdict = judge(question.problem, found.plan, keeps=keep)
        assert verdict.is_right, verdict.violations
        assert wanted.verdict is not None
        assert verdict.cost.resource == pytest.approx(wanted.verdict.cost.resource), "the same GPUs under other names"
        assert verdict.cost.unserved == pytest.approx(wanted.verdict.cost.unserved)
    assert shifted


def test_load_that_no_order_of_steps_would_serve_is_served_by_a_shifted_plan() -> None:
    served = 0
    for seed in RISEN_SEEDS:
        draw = Random(seed)
        now = under_loads(followed(draw, 0.4, 1.0), draw, 0.9, 1.6)
        question, wanted = formulate(now), wanted_in(now)

        def shifted(decision: Decision, now: Snapshot = now, question: Question = question) -> Decision | None:
            return shift(now, question, decision, SOLVER, seconds=SECONDS)

        without = choose(now, question, wanted, lambda only_if_moved: None, unchanged, lambda decision: None)
        found = choose(now, question, wanted, lambda only_if_moved: None, unchanged, shifted)
        if found.desired == without.desired:
            continue
        served += 1
        assert found.value is not None
        assert without.value is not None
        assert found.value.unserved < without.value.unserved
    assert served


def test_what_saves_cost_alone_is_not_shifted(blocked: list[tuple[Snapshot, Decision]]) -> None:
    now, wanted = blocked[0]
    asked: list[Decision] = []
    choose(now, formulate(now), wanted, lambda only_if_moved: None, unchanged, asked.append)
    assert not asked
