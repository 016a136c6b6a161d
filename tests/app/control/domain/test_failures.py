"""Failures count for hours, and their GPUs for minutes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.control.domain.failures import (
    FIRST_DELAY,
    KEPT_SECONDS,
    LONGEST_DELAY,
    PLACE_SECONDS,
    PlaceFailure,
    RecentFailures,
    group_failures,
    rest_after,
)
from app.control.domain.snapshot import Rest

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HERE, THERE = ("n1", 0), ("n1", 1)


def failed(owner: str, place: tuple[str, int] | None, seconds: float, is_past: bool = False) -> PlaceFailure:
    """Returns a failure of so many seconds ago."""
    return PlaceFailure(owner, place, NOON.timestamp() - seconds, is_past)


def test_failures_of_one_moment_count_once_and_their_gpus_are_named_once() -> None:
    found = group_failures(
        [failed("shop/a", HERE, 480, is_past=True), failed("shop/b", None, 480),
         failed("shop/a", HERE, 60), failed("shop/a", THERE, 60)],
        NOON,
    )  # fmt: skip
    assert found == (
        RecentFailures("shop/a", 1, NOON - timedelta(minutes=1), (HERE, THERE), (HERE, THERE)),
        RecentFailures("shop/b", 1, NOON - timedelta(minutes=8), (None,), ()),
    )


def test_what_ran_well_in_between_rests_briefly_and_only_where_it_failed_last() -> None:
    elsewhere = ("n2", 0)
    (found,) = group_failures(
        [failed("shop/a", elsewhere, 600, is_past=True), failed("shop/a", HERE, 300, is_past=True),
         failed("shop/a", THERE, 10)],
        NOON,
    )  # fmt: skip
    rest = rest_after(found)
    assert rest == Rest(NOON - timedelta(seconds=10) + FIRST_DELAY, (THERE,))
    assert rest.covers(THERE) and not rest.covers(elsewhere) and not rest.covers(HERE)
    assert found.avoided == (elsewhere, HERE, THERE), "a cheaper plan does not go back there"


def test_what_runs_well_again_does_not_rest() -> None:
    (found,) = group_failures([failed("shop/a", HERE, 70, is_past=True)], NOON)
    assert rest_after(found) is None
    (again,) = group_failures([failed("shop/a", HERE, seconds) for seconds in (70, 40, 10)], NOON)
    assert rest_after(again) == Rest(NOON - timedelta(seconds=10) + LONGEST_DELAY, (HERE,)), (
        "which crashes all the time"
    )


def test_a_failure_is_forgotten_after_hours_and_its_gpu_after_minutes() -> None:
    (found,) = group_failures(
        [failed("shop/a", HERE, KEPT_SECONDS + 1), failed("shop/a", HERE, PLACE_SECONDS + 1),
         failed("shop/a", THERE, PLACE_SECONDS - 1)],
        NOON,
    )  # fmt: skip
    assert (found.times, found.places, found.avoided) == (2, (THERE,), (THERE,))
