"""The rest after failed steps: where they failed, on the node, or everywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.control.domain.failures import FIRST_DELAY, LONGEST_DELAY, RecentFailures, rest_after

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
A, B, C, FAR = ("n1", 0), ("n1", 1), ("n1", 2), ("n2", 0)
Place = tuple[str, int]


@pytest.mark.parametrize(
    ("failed", "covered"),
    [
        ((A,), [A]),
        ((A, B), [A, B, C]),
        ((A, FAR), [A, B, C, FAR]),
        ((None,), [A, B, C, FAR]),
        ((A, None), [A, B, C, FAR]),
        ((), [A, B, C, FAR]),
    ],
)
def test_a_service_rests_on_a_gpu_then_on_its_node_then_everywhere(
    failed: tuple[Place | None, ...], covered: list[Place]
) -> None:
    rest = rest_after(RecentFailures("shop/a", 1, NOON, failed, ()))
    assert rest
    assert [place for place in (A, B, C, FAR) if rest.covers(place)] == covered
    assert rest.is_everywhere == (FAR in covered)


@pytest.mark.parametrize(
    ("times", "delay"), [(1, FIRST_DELAY), (2, 2 * FIRST_DELAY), (3, LONGEST_DELAY), (99, LONGEST_DELAY)]
)
def test_each_failure_doubles_the_rest_up_to_two_minutes(times: int, delay: timedelta) -> None:
    rest = rest_after(RecentFailures("shop/a", times, NOON, (A,), (A,)))
    assert rest and rest.until == NOON + delay
