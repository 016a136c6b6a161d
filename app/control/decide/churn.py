"""Holds back a plan that is not worth its churn: hysteresis in cost, not in replicas."""

from __future__ import annotations

from app.control.domain.decision import Decision, HeldBackChange
from app.control.domain.events import Reason
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question


def not_worth_it(snapshot: Snapshot, question: Question, decision: Decision) -> HeldBackChange | None:
    """Returns why the plan in force stays although there is another one; None if the change pays, or is due."""
    changes = decision.plan.changes
    if not snapshot.in_force or not (changes.start or changes.stop or changes.move or changes.resize or changes.retune):
        return None
    before, value = question.value_in_force, decision.value
    if value is None or before.per_horizon is None:
        return None  # the plan in force breaks a rule by now
    if value.is_better_than(before):
        return None
    if value.unserved > before.unserved:
        message = "it would serve less than the plan in force"
    else:
        saved = before.per_horizon - (value.per_horizon or 0.0) + value.churn
        message = f"it would save {saved:.4g} over the horizon; its churn costs {value.churn:.4g}"
    return HeldBackChange("", Reason.NOT_WORTH_ITS_CHURN, message)
