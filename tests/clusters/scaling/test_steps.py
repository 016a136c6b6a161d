"""One write moves replicas by at most one step, and never to none unless an annotation says that none is enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.decided_bounds import AnnotatedBounds
from clusters.scaling.steps import bound_replicas

COUNTS = st.integers(0, 200)


@pytest.mark.parametrize(
    ("current", "wanted", "least", "most", "written"),
    [
        (12, 13, 1, None, 13),
        (12, 90, 1, None, 24),  # at most doubled
        (1, 90, 1, None, 5),  # four more where that is more
        (12, 90, 1, 20, 20),
        (12, 1, 1, None, 6),
        (5, 0, 1, None, 1),  # to none only where the annotation says so
        (4, 0, 0, None, 0),
        (0, 3, 1, None, 3),
        (30, 30, 1, 10, 15),  # above its bounds it comes back by steps
        (2, 2, 9, None, 6),
        (8000, 2**40, 1, None, 10_000),
    ],
)
def test_a_write_is_within_bounds_and_one_step(
    current: int, wanted: int, least: int, most: int | None, written: int
) -> None:
    assert bound_replicas(current, wanted, AnnotatedBounds(least, most)) == written


@given(COUNTS, COUNTS, st.integers(0, 50), st.integers(0, 50))
def test_steps_reach_what_is_wanted_within_bounds_and_never_turn_back(
    current: int, wanted: int, least: int, more: int
) -> None:
    bounds = AnnotatedBounds(least, max(1, least + more))
    target = min(max(wanted, least), bounds.most or 0)
    for _ in range(60):
        after = bound_replicas(current, wanted, bounds)
        assert abs(after - target) < abs(current - target) or after == current == target
        assert after >= min(1, least)
        current = after
        if current == target:
            break
    assert current == target
