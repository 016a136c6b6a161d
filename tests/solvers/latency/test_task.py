"""InSS's equation (2), by hand."""

from __future__ import annotations

import math

import pytest

from solvers.inss.task_latency import task_latency


def test_with_enough_for_a_batch_it_waits_for_full_batches() -> None:
    assert task_latency(queued=3, batch=4, remaining=5.0, exec=20.0, rate=0.1) == 25.0  # W = 4: its own batch
    assert task_latency(queued=4, batch=4, remaining=5.0, exec=20.0, rate=0.1) == 45.0  # W = 5: one batch before it
    assert task_latency(queued=8, batch=4, remaining=0.0, exec=20.0, rate=0.1) == 60.0


def test_with_fewer_it_waits_for_the_rest_or_for_the_running_batch() -> None:
    assert task_latency(queued=1, batch=4, remaining=5.0, exec=20.0, rate=0.1) == 40.0  # two more take 20
    assert task_latency(queued=1, batch=4, remaining=50.0, exec=20.0, rate=0.1) == 70.0
    assert task_latency(queued=0, batch=2, remaining=0.0, exec=20.0, rate=0.0) == math.inf
    assert task_latency(queued=0, batch=1, remaining=0.0, exec=20.0, rate=0.0) == 20.0


@pytest.mark.parametrize(
    ("queued", "batch", "exec_ms", "rate"), [(-1, 1, 1.0, 1.0), (0, 0, 1.0, 1.0), (0, 1, 0.0, 1.0), (0, 1, 1.0, -1.0)]
)
def test_invalid_numbers_are_refused(queued: int, batch: int, exec_ms: float, rate: float) -> None:
    with pytest.raises(ValueError, match=r"0 or more|at least"):
        task_latency(queued, batch, 0.0, exec_ms, rate)
