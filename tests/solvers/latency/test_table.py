"""The shipped table covers what is asked of it, in little room."""

from __future__ import annotations

import numpy as np

from solvers.latency import grids
from solvers.latency.limits import FOLDER, table


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
