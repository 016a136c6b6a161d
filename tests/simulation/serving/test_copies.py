"""The time that a simulated copy is busy is counted once, however short the ticks are."""

from __future__ import annotations

import numpy as np
import pytest

from agents.contract.assignments import AssignedInstance, Frame
from agents.keeper.copies import NodeCopy
from simulation.serving.copies import CopyWork

SECONDS = 120.0


@pytest.mark.parametrize("tick_seconds", [0.25, 2.0])
@pytest.mark.parametrize("exec_ms", [10.0, 80.0])
@pytest.mark.parametrize("load", [0.3, 0.9])
def test_a_batch_takes_as_long_as_the_profile_says(tick_seconds: float, exec_ms: float, load: float) -> None:
    batch, exec_s = 4, exec_ms / 1000
    instance = AssignedInstance("one", 0, service="a", batch=Frame(batch, 1, 8), batch_timeout_ms=5.0, slo_ms=500.0)
    copy, work, rng = NodeCopy("one", instance, "gpu"), CopyWork(exec_s=exec_s), np.random.default_rng(1)
    shares = []
    for tick in range(int(SECONDS / tick_seconds)):
        since, until = tick * tick_seconds, (tick + 1) * tick_seconds
        work.arrive(np.sort(rng.uniform(since, until, rng.poisson(load * batch / exec_s * tick_seconds))))
        work.serve(copy, since, until, np.ones(1))
        shares.append(work.busy_share)
    assert work.batches > 500
    assert work.busy_seconds / work.batches == pytest.approx(exec_s, rel=2e-3)
    assert min(shares) >= 0
    assert max(shares) <= 1 + 1e-9
