"""One record of what could not run where: rests, places that are avoided and suspects follow from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from app.control.domain.snapshot import Rest
from solvers.planning.problem import Place

KEPT_SECONDS = 7200.0  # for which a failure counts when the same service or job fails again
PLACE_SECONDS = 1800.0  # for which its place counts: a start may take longer than the rest after it
FIRST_DELAY, LONGEST_DELAY = timedelta(seconds=30), timedelta(minutes=2)  # after a failure


@dataclass(frozen=True, slots=True)
class PlaceFailure:
    """A service or job that could not run, and the GPU where it could not, if another may do better."""

    owner: str
    place: Place | None
    at: float  # seconds
    is_past: bool = False  # its service has run well since, so that it is no sign of a suspect


@dataclass(frozen=True, slots=True)
class RecentFailures:
    """The failures of a service or job that still count."""

    owner: str
    times: int  # since it last ran well
    last_at: datetime
    places: tuple[Place | None, ...]  # where those failed; None: no other GPU would have done better
    avoided: tuple[Place, ...]  # where it failed lately, also before it ran well


def read_failures(rollout: Mapping[str, object]) -> tuple[PlaceFailure, ...]:
    """Returns the failures of a stored rollout."""
    return msgspec.convert(rollout.get("failures", ()), tuple[PlaceFailure, ...])


def group_failures(failures: Iterable[PlaceFailure], now: datetime) -> tuple[RecentFailures, ...]:
    """Returns the failures of each service and job; those of one moment count once."""
    seconds = now.timestamp()
    found: dict[str, list[PlaceFailure]] = {}
    for failure in failures:
        if seconds - failure.at < KEPT_SECONDS:
            found.setdefault(failure.owner, []).append(failure)
    return tuple(_describe(owner, own, seconds) for owner, own in sorted(found.items()))


def _describe(owner: str, failures: Collection[PlaceFailure], now: float) -> RecentFailures:
    open_ones = [failure for failure in failures if not failure.is_past]
    lately = [failure for failure in failures if now - failure.at < PLACE_SECONDS]
    return RecentFailures(
        owner,
        len({failure.at for failure in open_ones}),
        datetime.fromtimestamp(max(failure.at for failure in failures), UTC),
        tuple(dict.fromkeys(failure.place for failure in lately if not failure.is_past)),
        tuple(dict.fromkeys(failure.place for failure in lately if failure.place)),
    )


def rest_after(failures: RecentFailures) -> Rest | None:
    """Returns the rest after these failures; None if it has run well since, for what fails now has other causes."""
    if not failures.times:
        return None
    places = tuple(place for place in failures.places if place)
    is_of_places = len(places) == len(failures.places)
    return Rest(failures.last_at + retry_delay(failures.times), places if is_of_places else ())


def retry_delay(failures: int) -> timedelta:
    """Returns how long to wait after so many failures."""
    return min(FIRST_DELAY * int(2 ** min(failures - 1, 10)), LONGEST_DELAY)
