"""Splits a decision by the mode of the fleet or of a service into parts that are done, proposed or shown."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from app.control.domain.decision import Decision, HeldBackChange, PlanState
from app.control.domain.desired import Desired
from app.control.domain.events import Reason
from app.control.domain.mode import ADVISORY, APPROVE, AUTO, FleetModes
from app.control.rollout.changes import changes
from app.control.rollout.keeping import keep_owners
from app.control.rollout.ordering.finding import order
from app.control.rollout.rules import RolloutRules

WHY = {
    APPROVE: (Reason.AWAITS_APPROVAL, "its mode is approve: the change waits for a person"),
    ADVISORY: (Reason.ADVISORY, "its mode is advisory: the change is shown and not made"),
}


@dataclass(frozen=True, slots=True)
class ByMode:
    """The parts of one decision; None if a part changes nothing.

    `proposed` is the result if it were approved, with all that is acted upon already; `shown` is all of it.
    """

    acted: Decision | None
    proposed: Decision | None
    shown: Decision | None


def divide_by_mode(decision: Decision, in_force: Desired, modes: FleetModes, rules: RolloutRules) -> ByMode:
    """Splits a decision so that each part is possible without the others: nothing starts in the place of what stays."""
    changed = {change.owner for change in changes(in_force, decision.desired)}
    owners_of: dict[str, set[str]] = {AUTO: set(), APPROVE: set(), ADVISORY: set()}
    for owner in changed:
        owners_of[modes.find(owner)].add(owner)
    if not changed:  # devices and rules of nodes alone: the fleet's own mode
        whole = replace(decision, state=_state(modes.fleet))
        acted, proposed, shown = (whole if modes.fleet == mode else None for mode in (AUTO, APPROVE, ADVISORY))
        return ByMode(acted, proposed, shown)
    approve, advisory = owners_of[APPROVE], owners_of[ADVISORY]
    acted = _part(decision, in_force, approve, advisory, PlanState.ROLLING, rules) if owners_of[AUTO] else None
    proposed = _part(decision, in_force, (), advisory, PlanState.PROPOSED, rules) if approve else None
    shown = replace(decision, state=PlanState.ADVISORY) if advisory else None
    return ByMode(acted, proposed, shown)


def _part(
    decision: Decision,
    in_force: Desired,
    approve: Collection[str],
    advisory: Collection[str],
    state: PlanState,
    rules: RolloutRules,
) -> Decision | None:
    held = {
        owner: HeldBackChange(owner, *WHY[mode])
        for mode, owners in ((APPROVE, approve), (ADVISORY, advisory))
        for owner in sorted(owners)
    }
    if not held:
        return replace(decision, state=state)
    found = order(in_force, keep_owners(decision.desired, in_force, held), rules)
    # A change whose place is still taken by what is held back waits with it.
    stays = {stuck.service: stuck for stuck in found.stuck if stuck.service not in held}
    services = tuple(sorted({change.owner for change in changes(in_force, found.target)}))
    if not services:
        return None
    return replace(
        decision,
        state=state,
        desired=found.target,
        services=services,
        held_back=(*decision.held_back, *held.values(), *stays.values()),
    )


def _state(mode: str) -> PlanState:
    return {AUTO: PlanState.ROLLING, APPROVE: PlanState.PROPOSED}.get(mode, PlanState.ADVISORY)
