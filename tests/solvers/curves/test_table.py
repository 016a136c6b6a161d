"""A curve as the points of a profile."""

from __future__ import annotations

from itertools import pairwise

import pytest

from solvers.curves.curve import fit, table
from tests.solvers.curves.test_choose import campaign


@pytest.mark.slow
def test_latency_never_rises_with_the_share_and_its_quantile_is_never_below_the_mean() -> None:
    rows = table(fit(campaign(), 1400), (1, 4, 32), (10, 15, 20, 25, 30, 40, 60, 80, 100), 1400)
    for row in rows.values():
        points = [row[share] for share in sorted(row)]
        assert all(later.mean_ms <= earlier.mean_ms for earlier, later in pairwise(points))
        assert all(later.q90_ms <= earlier.q90_ms for earlier, later in pairwise(points))
        assert all(point.mean_ms <= point.q90_ms for point in points)
