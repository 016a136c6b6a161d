"""Decides around GPUs where steps failed a short while ago, and writes such a decision for the whole fleet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.control.decide.decide import rejudge
from app.control.domain.decision import Decision
from app.control.domain.snapshot import Snapshot
from app.control.formulate.failed_places import close_failed_places
from app.control.formulate.question import Question
from solvers.planning.kept_bound import without_bound

AROUND_KEY = "aroundFailedPlaces"  # in the recipe of a plan
LEAST_LACK_SHARE = 1e-6  # of an unserved rate: less is rounding


def in_whole_fleet(snapshot: Snapshot, decision: Decision) -> Decision | None:
    """Returns a decision made around closed GPUs, judged with what runs there; None if the judge refuses it."""
    found = rejudge(snapshot, decision, decision.desired, ())
    if found is None:
        return None
    plan = found.plan
    if plan.certificate:
        why = "GPUs where steps failed were closed to the search"
        plan = replace(plan, certificate=without_bound(plan.certificate, why))
    answer = replace(found.answer, plan=plan, recipe={**found.answer.recipe, AROUND_KEY: True})
    return replace(found, plan=plan, answer=answer)


def asked_about(snapshot: Snapshot, recipe: Mapping[str, Any]) -> Snapshot:
    """Returns the snapshot that the plan of this recipe was searched for."""
    return close_failed_places(snapshot) if recipe.get(AROUND_KEY) else snapshot


def lacks_of(snapshot: Snapshot, question: Question, decision: Decision) -> dict[str, float]:
    """Returns, by service, the rate that is unserved if this is decided."""
    plan = question.plan_in_force if decision.desired == snapshot.in_force else decision.plan
    return {lack.service: lack.rate_per_second for lack in plan.unserved}


def serves_more(lacks: Mapping[str, float], others: Mapping[str, float]) -> bool:
    """Returns whether the first plan serves some service better than the other, and none of them worse."""
    pairs = [(lacks.get(name, 0.0), others.get(name, 0.0)) for name in {*lacks, *others}]
    gains = [other - lack for lack, other in pairs if abs(other - lack) > LEAST_LACK_SHARE * max(lack, other)]
    return bool(gains) and min(gains) > 0
