"""Failures count for hours, and their GPUs for minutes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.control.domain.failures import KEPT_SECONDS, PLACE_SECONDS, PlaceFailure, RecentFailures, group_failures

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
        RecentFailures("shop/a", 2, NOON - timedelta(minutes=1), (HERE, THERE)),
        RecentFailures("shop/b", 1, NOON - timedelta(minutes=8), (None,)),
    )


def test_a_failure_is_forgotten_after_hours_and_its_gpu_after_minutes() -> None:
    (found,) = group_failures(
        [failed("shop/a", HERE, KEPT_SECONDS + 1), failed("shop/a", HERE, PLACE_SECONDS + 1),
         failed("shop/a", THERE, PLACE_SECONDS - 1)],
        NOON,
    )  # fmt: skip
    assert (found.times, found.places) == (2, (THERE,))
