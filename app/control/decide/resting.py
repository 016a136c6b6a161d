"""Holds changes of services and jobs back for a while after their steps failed: anywhere, or on one GPU."""

from __future__ import annotations

from collections.abc import Collection

from app.control.decide.drafting import find_changed_owners
from app.control.domain.decision import HeldBackChange
from app.control.domain.desired import Desired
from app.control.domain.events import Reason
from app.control.domain.snapshot import Rest, Snapshot, covers
from app.control.rollout.changes import ChangeKind, changes, has_other_batch
from solvers.planning.problem import Place


def resting_changes(snapshot: Snapshot, desired: Desired) -> dict[str, HeldBackChange]:
    """Returns the services and jobs that this plan changes where they rest."""
    if not snapshot.resting:
        return {}
    changing = set(find_changed_owners(snapshot.assignments, desired))
    found = {}
    for owner, rest in snapshot.resting.items():
        if owner in changing and (rest.is_everywhere or _is_repeated(snapshot, desired, owner, rest)):
            message = f"its last step failed; it will be retried after {rest.until:%H:%M:%SZ}"
            found[owner] = HeldBackChange(owner, Reason.STEP_FAILED_LATELY, message)
    return found


def returning_services(snapshot: Snapshot, desired: Desired) -> frozenset[str]:
    """Returns the services of which a copy would start, or take another shape, where one failed lately."""
    return frozenset(service for service, _ in _returning(snapshot, desired, (ChangeKind.START, ChangeKind.RESHAPE)))


def starting_services(snapshot: Snapshot, desired: Desired) -> frozenset[str]:
    """Returns the services of which a copy would start where one failed lately.

    A copy that takes another shape is not among them: it may have to, for what was declared since. Nor is a service
    that fails wherever it is started: it moves no more.
    """
    found = _returning(snapshot, desired, (ChangeKind.START,))
    return frozenset(service for service, _ in found if service not in snapshot.suspects)


def is_avoided(snapshot: Snapshot, desired: Desired, decided: Desired) -> bool:
    """Returns whether this changes services where their steps failed, besides what is decided anyway.

    Batches may not: they only save cost.
    """
    kinds = (ChangeKind.START, ChangeKind.RESHAPE)
    is_back = _returning(snapshot, desired, kinds) - _returning(snapshot, decided, kinds)
    return bool(is_back or resting_changes(snapshot, desired))


def _returning(snapshot: Snapshot, desired: Desired, kinds: Collection[ChangeKind]) -> frozenset[tuple[str, Place]]:
    failed = snapshot.failed_places
    return frozenset(
        (change.owner, change.place)
        for change in (changes(snapshot.in_force, desired) if failed else ())
        if change.kind in kinds and covers(failed.get(change.owner, ()), change.place)
    )


def _is_repeated(snapshot: Snapshot, desired: Desired, owner: str, rest: Rest) -> bool:
    """Returns whether a copy would start or change where it rests."""
    return any(
        change.owner == owner and rest.covers(change.place) and (change.takes_room or has_other_batch(change))
        for change in changes(snapshot.assignments, desired)
    )
