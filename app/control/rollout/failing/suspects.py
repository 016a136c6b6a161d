"""Notes what failed where, and names services that fail wherever they are started: these are the cause themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from app.control.domain.events import Reason
from app.control.domain.failures import KEPT_SECONDS, PLACE_SECONDS, PlaceFailure
from app.control.rollout.rules import RolloutNotice, RolloutState

SUSPECT_PLACES = 3
STEADY_SECONDS = 60.0  # a copy that has run for so long is no longer in a crash loop


def note_failures(
    state: RolloutState, found: Iterable[tuple[PlaceFailure, str]], now: float
) -> tuple[RolloutState, tuple[RolloutNotice, ...]]:
    """Notes failures, with what is known of each; says once of a service that it is the likely cause itself."""
    messages = dict(found)
    failures = tuple(dict.fromkeys((*state.failures, *messages)))
    places: dict[str, set[tuple[str, int]]] = {}
    for failure in failures:
        if failure.place and not failure.is_past and now - failure.at < PLACE_SECONDS:
            places.setdefault(failure.owner, set()).add(failure.place)
    suspects = tuple(sorted(owner for owner, where in places.items() if is_suspect(where)))
    notices = []
    for owner in (owner for owner in suspects if owner not in state.suspects):
        where = ", ".join(sorted(f"{node}/{gpu}" for node, gpu in places[owner]))
        last = next((message for failure, message in reversed(messages.items()) if failure.owner == owner), "")
        notices.append(RolloutNotice(Reason.SERVICE_SUSPECT, f"it failed on {where}; the last: {last}", owner))
    return replace(state, failures=failures, suspects=suspects), tuple(notices)


def is_suspect(failed: Collection[tuple[str, int]]) -> bool:
    """Returns whether it failed in so many places that no place is the cause."""
    return len(set(failed)) >= SUSPECT_PLACES and len({node for node, _ in failed}) > 1


def age_failures(failures: Collection[PlaceFailure], well: Collection[str], now: float) -> tuple[PlaceFailure, ...]:
    """Returns the failures that still count: those of a service that has run `well` since its last one are past."""
    last = {failure.owner: failure.at for failure in failures}
    return tuple(
        replace(failure, is_past=True)
        if failure.owner in well and not failure.is_past and now - last[failure.owner] >= STEADY_SECONDS
        else failure
        for failure in failures
        if now - failure.at < KEPT_SECONDS
    )
