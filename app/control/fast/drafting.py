"""Drafts a quick step for services in need, without those that would start again where a copy of them failed lately.

In the middle of a rollout the plan in force counts on copies that have yet to start, and some of them wait for room. So
a step is drafted from there and from what nodes are assigned, and the one that leaves less unserved soon is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from app.control.decide.drafting import find_changed_owners
from app.control.decide.resting import returning_services
from app.control.domain.decision import Decision, SolveOutcome
from app.control.domain.ports import FollowingSolver
from app.control.domain.snapshot import Snapshot
from app.control.fast.base import StepBase
from app.control.fast.fallen import draft_base_midway
from app.control.fast.ladder import QuickStep
from app.control.fast.watch import CapacityNeed, StepTrigger
from app.control.rollout.declared_rules import read_rules
from app.control.rollout.ordering.foresight import foresee_shortfalls
from solvers.planning.judge.cost import price_unserved
from solvers.planning.kept_bound import KeptBound
from solvers.planning.plan import Unserved


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
    step = _draft_from(base, needs, solver, now, kept_bound)
    if base.snapshot.assigned is None or base.language_models or _do_tenants_contend(base):
        return step
    midway, awaited = draft_base_midway(base.snapshot)
    called = {need.service for need in needs}
    wanted = [*needs, *(need for need in awaited if need.service not in called)]
    other = _draft_from(midway, wanted, solver, now, kept_bound)
    if other is None or not called & other.quick.rungs.keys():
        return step
    # It also gives up what the plan in force had yet to change.
    changed = find_changed_owners(base.snapshot.in_force, other.decision.desired)
    other = replace(other, decision=replace(other.decision, services=changed))
    rights = [each for each in (step, other) if each and each.decision.answer.outcome is not SolveOutcome.WRONG]
    if len(rights) < 2:
        return rights[0] if rights else step
    return min(rights, key=lambda each: _price_shortfalls(base, needs, each))


def _do_tenants_contend(base: StepBase) -> bool:
    """Returns whether the plan in force gives tenants what they are owed, which what nodes are assigned may not yet."""
    return any(limit.source == "share" for limit in base.question.problem.limits.values())


def _price_shortfalls(base: StepBase, needs: Sequence[CapacityNeed], step: DraftedStep) -> float:
    """Returns the price of what is unserved in the next minutes if this step is taken."""
    snapshot, problem = base.snapshot, base.question.problem
    rates = {name: load.rate_per_second for name, load in snapshot.expected.items() if name in problem.services}
    rates |= {need.service: need.rate_per_second for need in needs}
    rules = read_rules(snapshot.declared)
    lacking = foresee_shortfalls(snapshot.assignments, step.decision.desired, rules, rates)
    return math.fsum(
        price_unserved(problem.services[name], problem.policy, [Unserved(name, rate)]) for name, rate in lacking.items()
    )


def _draft_from(
    base: StepBase, needs: Sequence[CapacityNeed], solver: FollowingSolver, now: datetime, kept_bound: KeptBound | None
) -> DraftedStep | None:
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
