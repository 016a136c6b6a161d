"""Batches make the ordinary part of a fleet cheaper, beside language models, which stay as they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from app.control.decide.batch_drafts import BatchContext
from app.control.decide.batches import add_due_batches
from app.control.decide.decide import draft_changes, hold_back
from app.control.decide.least_change import follow_rates
from app.control.domain.regret import NO_REGRETS
from app.control.domain.snapshot import Snapshot
from app.control.formulate.formulate import formulate
from app.control.solve.inline import Inline
from solvers.planning.beside import wide_of
from solvers.planning.problem import Instance, Problem
from tests.app.control.decide.test_batches import BUSY_FACTOR, QUIET_FACTOR, SECONDS, fleet, under_load
from tests.app.control.decide.test_several_gpus import planned

pytestmark = pytest.mark.slow

FILE, SOLVER = Path("examples/llm.yaml"), Inline()


def context_in(snapshot: Snapshot) -> BatchContext:
    """Returns what batches start from once the plan in force has followed the rates."""
    question = formulate(snapshot)
    answer = SOLVER.follow(*follow_rates(question), seconds=SECONDS)
    decision = hold_back(snapshot, question, draft_changes(snapshot, question, answer))
    return BatchContext(snapshot, question, decision, SECONDS)


def models_of(problem: Problem, instances: Iterable[Instance]) -> set[tuple[object, ...]]:
    lines = wide_of(problem, list(instances))
    return {(line.service, line.places, line.variant, line.rate_per_second) for line in lines}


def test_a_batch_of_ordinary_services_saves_money_and_leaves_language_models_alone() -> None:
    busy = under_load(fleet(FILE), BUSY_FACTOR)
    question = formulate(busy)
    started = draft_changes(busy, question, SOLVER.solve(question.problem, seconds=SECONDS, work=1))
    context = context_in(under_load(replace(busy, in_force=started.desired, target=1), QUIET_FACTOR))
    found, _ = add_due_batches(context, NO_REGRETS, SOLVER)
    assert "a batch of moves saves" in found.message
    assert found.verdict
    assert found.verdict.is_right
    assert found.plan.certificate
    assert found.plan.certificate.cost.total == found.verdict.cost.total < context.cost
    problem = context.question.problem
    models = models_of(problem, found.plan.instances)
    assert models == models_of(problem, context.plan.instances)
    assert models


def test_there_is_no_batch_where_language_models_hold_every_gpu_or_run_alone() -> None:
    snapshot, plan = planned()
    context = context_in(replace(snapshot, target=1))
    problem = context.question.problem
    models = wide_of(problem, plan.instances)
    held = {place for line in models for place in line.places}
    nodes = {
        name: replace(node, gpus=tuple(gpu for gpu in node.gpus if (name, gpu) in held))
        for name, node in problem.nodes.items()
    }
    full = replace(problem, nodes={name: node for name, node in nodes.items() if node.gpus}, state=None)
    alone = replace(problem, services={line.service: problem.services[line.service] for line in models}, state=None)
    for narrow in (full, alone):
        of_models = replace(plan, instances=tuple(models), unserved=())
        assert SOLVER.find_batches(narrow, of_models, (), tries=4, seed=0, seconds=SECONDS).batches == ()
        assert SOLVER.make_batches(narrow, of_models, (), seconds=SECONDS).plan is None
