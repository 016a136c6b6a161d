"""The shipped table is what its script makes."""

from __future__ import annotations

import numpy as np
import pytest

from solvers.latency import grids
from solvers.latency.limits import FOLDER, table
from tests.support.soak import SOAK
from tests.test_house import script


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 8, 256] if SOAK else [3])
def test_the_table_is_what_its_script_makes(batch: int) -> None:
    *made, starts = script("attainment").row(batch)
    for shipped, codes in zip(table()[:2], made, strict=True):
        counts = codes < -np.log(1e-6) / grids.STEP  # of smaller shares all digits are rounding's
        apart = np.abs(shipped[batch - 1].astype(int) - codes.astype(int))
        assert np.max(apart[counts], initial=0) <= 1  # another machine, another last digit
    assert table()[2][batch - 1] == pytest.approx(starts, abs=1e-6)


def test_the_table_covers_every_batch_and_stays_small() -> None:
    low, late, starts = table()
    assert low.shape == (grids.MOST, len(grids.LOW_LOADS), len(grids.LOW_RATIOS))
    assert late.shape == (grids.MOST, len(grids.USUAL_LOADS), len(grids.RATIOS))
    assert starts.shape == (grids.MOST, len(grids.LOADS), 1 + len(grids.TIMEOUTS))
    assert sum(file.stat().st_size for file in FOLDER.glob("*.np[yz]")) <= 5_000_000
    assert {1.0, 2.0, 3.0, 4.0} <= set(grids.RATIOS)
    assert np.all(np.diff(grids.LOADS) > 0.0)
    assert np.all(np.diff(grids.RATIOS) > 0.0)


def test_a_share_is_never_written_smaller_than_it_is() -> None:
    shares = np.concatenate([np.geomspace(1e-9, 1.0, 5000), [0.0]])
    read = np.exp(-grids.STEP * grids.encode(shares).astype(float))
    assert np.all(read >= shares * (1 - 1e-12))
    assert np.all(read <= np.maximum(shares, grids.LEAST) * 1.0003)
