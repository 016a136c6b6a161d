"""The fields of the policy that the planner itself follows, with the defaults of manifests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.control.domain.snapshot import DeclaredObject
from app.control.domain.specs import Spec
from app.manifests.fleet import PolicySpec

FIELDS = PolicySpec.model_fields


@dataclass(frozen=True, slots=True)
class PlannerPolicy:
    """The planner's own part of the policy; the fields that decide plans are in the problem's policy."""

    cycle_seconds: float
    lost_after_seconds: float
    idle_minutes: float


def planner_policy(declared: Sequence[DeclaredObject]) -> PlannerPolicy:
    """Reads the declared policy; fields that it leaves out have their defaults."""
    spec = policy_spec(declared)
    return PlannerPolicy(
        cycle_seconds=float(spec.get("cycleSeconds", FIELDS["cycle_seconds"].default)),
        lost_after_seconds=float(spec.get("lostAfterSeconds", FIELDS["lost_after_seconds"].default)),
        idle_minutes=float(spec.get("idleMinutes", FIELDS["idle_minutes"].default)),
    )


def policy_spec(declared: Sequence[DeclaredObject]) -> Spec:
    """Returns the spec of the declared policy as it is written; an empty one where none is declared."""
    return next((item.spec for item in declared if item.kind == "Policy"), {})
