"""A fallback beside a language model that keeps its promise at no rate: what others lack is added all the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.control.decide.decide import draft_changes
from app.control.decide.fallback import draft_fallback
from app.control.domain.decision import SolveOutcome
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, Snapshot
from app.control.formulate.formulate import formulate
from app.control.solve.inline import Inline
from tests.app.control.decide.test_batches import SECONDS, fleet, under_load

pytestmark = pytest.mark.slow

FILE, SOLVER = Path("examples/llm.yaml"), Inline()
RISEN, RISEN_RATE = "shop/reviews", 203.0  # of 200
NEVER_MS = 0.5  # no GPU writes a token in this


def hurry(item: DeclaredObject) -> DeclaredObject:
    """Returns a service of a language model with a time of tokens that no GPU keeps."""
    slo = item.spec.get("slo")
    if not isinstance(slo, dict) or "tpotMs" not in slo:
        return item
    return replace(item, spec={**item.spec, "slo": {**slo, "tpotMs": NEVER_MS}})


def planned() -> Snapshot:
    calm = under_load(fleet(FILE), 1.0)
    question = formulate(calm)
    started = draft_changes(calm, question, SOLVER.solve(question.problem, seconds=SECONDS, work=1))
    return replace(calm, in_force=started.desired, target=1)


def test_what_others_lack_is_added_and_what_is_late_is_named_as_unserved() -> None:
    before = planned()
    late = under_load(replace(before, declared=tuple(hurry(item) for item in before.declared)), 1.0)
    late = replace(late, expected={**late.expected, RISEN: ExpectedLoad(RISEN_RATE)})
    question = formulate(late)
    models = {name for name, service in question.problem.services.items() if service.tokens}
    assert models
    assert question.lacking == {RISEN, *models}
    assert [entry.service for entry in question.plan_in_force.unserved] == [RISEN]

    found = draft_fallback(late, SolveOutcome.CRASHED, SOLVER, "a test")

    assert found is not None
    assert found.plan is not None
    rates = {name: question.problem.services[name].rate_per_second for name in models}
    unserved = {entry.service: entry.rate_per_second for entry in found.plan.unserved}
    assert unserved == pytest.approx(rates, rel=2e-3)
