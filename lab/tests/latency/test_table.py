"""The shipped table is what its script makes."""

from __future__ import annotations

import numpy as np
import pytest

from lab.latency.attainment import row
from solvers.latency import grids
from solvers.latency.limits import table
from tests.support.soak import SOAK


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 8, 256] if SOAK else [3])
def test_the_table_is_what_its_script_makes(batch: int) -> None:
    *made, starts = row(batch)
    for shipped, codes in zip(table()[:2], made, strict=True):
        counts = codes < -np.log(1e-6) / grids.STEP  # of smaller shares all digits are rounding's
        apart = np.abs(shipped[batch - 1].astype(int) - codes.astype(int))
        assert np.max(apart[counts], initial=0) <= 1  # another machine, another last digit
    assert table()[2][batch - 1] == pytest.approx(starts, abs=1e-6)
