"""Drafts a quick step for services in need, without those that would start again where a copy of them failed lately."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from app.control.decide.resting import returning_services
from app.control.domain.decision import Decision, SolveOutcome
from app.control.domain.ports import FollowingSolver
from app.control.domain.snapshot import Snapshot
from app.control.fast.base import StepBase
from app.control.fast.ladder import QuickStep
from app.control.fast.watch import CapacityNeed, StepTrigger
from solvers.planning.kept_bound import KeptBound


@dataclass(frozen=True, slots=True)
class DraftedStep:
    """A quick step and its decision. A full cycle finds GPUs for what is left out."""

    quick: QuickStep
    decision: Decision
    left_out: tuple[str, ...]  # services


def note_calls(snapshot: Snapshot, needs: Sequence[CapacityNeed]) -> Snapshot:
    """Returns the snapshot with what called for a quick step, for its record."""
    return replace(snapshot, calls={need.service: (need.rate_per_second, need.least) for need in needs})


def needs_of(snapshot: Snapshot) -> list[CapacityNeed]:
    """Returns what called for a recorded quick step; of what kind it was does not matter to the step."""
    return [CapacityNeed(name, StepTrigger.LOAD_ROSE, *rates, "") for name, rates in snapshot.calls.items()]


def draft_step(
    base: StepBase, needs: Sequence[CapacityNeed], solver: FollowingSolver, now: datetime, kept_bound: KeptBound | None
) -> DraftedStep | None:
    """Returns the step for as many of the needs as it may answer; None if it helps none of them."""
    handovers = [wanted.handover for wanted in base.snapshot.in_force.values()]
    is_strict = handovers[:1] == ["strict"]
    left: Sequence[CapacityNeed] = needs
    while left:
        quick = base.find_step(left, solver, strict=is_strict, elsewhere=base.elsewhere)
        if quick is None:
            return None
        decision = base.decide(quick, now, kept_bound)
        returning = returning_services(base.snapshot, decision.desired)
        if not returning or decision.answer.outcome is SolveOutcome.WRONG:
            left_out = {need.service for need in needs} - {need.service for need in left}
            return DraftedStep(quick, decision, tuple(sorted(left_out)))
        others = [need for need in left if need.service not in returning]
        if len(others) == len(left):  # it would start again to make room for them
            return None
        left = others
    return None
