"""Instances come and go without end, and the agent stays as small as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proofs.churn import Figures, real, simulated
from tests.support.soak import SOAK, scaled

pytestmark = pytest.mark.slow

WORKERS = 4  # of a node; a pool starts a thread when it first needs it
COPIES = 12  # that may start at once, each on a thread of its own
THREADS = WORKERS + COPIES + 4  # beside the pools: main, keeper, watch, and one of the moment
JOURNAL_KIB = 1100  # it is written anew beyond 1 MiB


def stays_flat(figures: Figures, threads: int) -> None:
    """Threads of a pool come as they are needed, up to `threads`; nothing else may grow."""
    first, last = figures.settled[0], figures.samples[-1]
    assert last.files <= first.files + 2, figures  # a request of the moment
    assert last.threads <= threads, figures
    assert max(sample.journal_kib for sample in figures.samples) < JOURNAL_KIB


def test_an_agent_that_changes_real_instances_stays_as_small_as_it_was(tmp_path: Path) -> None:
    figures = real(tmp_path, scaled(1000, 20))
    stays_flat(figures, threads=THREADS)
    if SOAK:
        assert figures.mib_per_1000 < 3, figures


def test_ten_thousand_changes_leave_nothing_behind(tmp_path: Path) -> None:
    figures = simulated(tmp_path, scaled(10_000, 200))
    stays_flat(figures, threads=figures.samples[0].threads)
    if SOAK:
        assert figures.mib_per_1000 < 2, figures
