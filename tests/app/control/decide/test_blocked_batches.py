"""A batch whose changes block each other is made as far as an order of steps leads to it."""

from __future__ import annotations

from random import Random

import pytest

from app.control.decide.batch_drafts import BatchContext, decide_with_batches, leads_to, write_batches
from app.control.decide.batches import _possible
from app.control.decide.decide import draft_changes, hold_back
from app.control.decide.least_change import follow_rates
from app.control.formulate.formulate import formulate
from solvers.planning.batches.batch import Batch, BatchKind
from solvers.planning.judge import judge
from solvers.planning.search.promise import keep
from tests.app.control.decide.conftest import followed
from tests.app.control.decide.test_batches import SECONDS, SOLVER

pytestmark = pytest.mark.slow

SEEDS = range(1, 30)  # of loads that fall: after some, batches have no order of steps
TRIES = 64
MOST_CHURN = 1e3


def fallen(seed: int) -> BatchContext:
    """The demo's fleet after its loads have fallen, with some GPUs empty and the others full."""
    full = followed(Random(seed), 0.4, 1.0)
    question = formulate(full)
    answer = SOLVER.follow(*follow_rates(question), seconds=SECONDS)
    return BatchContext(full, question, hold_back(full, question, draft_changes(full, question, answer)), SECONDS)


def list_blocked(context: BatchContext) -> list[Batch]:
    problem = context.question.problem
    found = SOLVER.find_batches(problem, context.plan, (), tries=TRIES, seed=1, seconds=SECONDS).batches
    return [
        batch
        for batch in found
        if (written := write_batches(context, batch.groups, SOLVER)) and not leads_to(context, written)
    ]


@pytest.fixture(scope="module")
def moment() -> tuple[BatchContext, list[Batch]]:
    """The first moment at which a part of a blocked batch can be made, and its blocked batches."""
    for seed in SEEDS:
        context = fallen(seed)
        blocked = list_blocked(context)
        if any(_possible(context, batch, MOST_CHURN, SOLVER) for batch in blocked):
            return context, blocked
    pytest.fail("no blocked batch can be made")


def test_what_blocked_gpus_shall_run_starts_on_empty_ones(moment: tuple[BatchContext, list[Batch]]) -> None:
    context, blocked = moment
    shifted = 0
    for batch in blocked:
        assert decide_with_batches(context, batch.groups, SOLVER) is None
        possible = _possible(context, batch, MOST_CHURN, SOLVER)
        if possible is None:
            continue
        found, groups = possible
        assert leads_to(context, found)
        verdict = judge(context.question.problem, found.plan, keeps=keep)
        assert verdict.is_right, verdict.violations
        assert verdict.cost.total < context.cost
        assert not found.plan.unserved
        assert decide_with_batches(context, groups, SOLVER) == found
        shifted += BatchKind.SHIFTED in [group.kind for group in groups]
    assert shifted


def test_a_part_of_a_batch_is_not_made_for_more_churn_than_it_may_cost(
    moment: tuple[BatchContext, list[Batch]],
) -> None:
    context, blocked = moment
    for batch in blocked:
        possible = _possible(context, batch, MOST_CHURN, SOLVER)
        if possible and possible[0].value and possible[0].value.churn:
            assert _possible(context, batch, possible[0].value.churn / 2, SOLVER) is None
