"""Case 11, whole: server, agent, HAProxy, sidecar and load; whoever dies in a hand-over, nobody notices."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.proofs.kills import Site, at_every_step, at_random, site
from tests.support.patience import until
from tests.support.server import RunningServer
from tests.support.soak import SOAK, scaled

pytestmark = pytest.mark.slow

LINES = 10  # of a hand-over: eight stages, and twice that usage was heard of


def test_case_11_killed_at_every_line_of_the_journal_no_request_fails(api: RunningServer, tmp_path: Path) -> None:
    every = [(number, when) for number in range(1, LINES + 1) for when in ("before", "after")]
    steps = every * 10 if SOAK else [(2, "before"), (5, "after"), (7, "before")]
    with site(api, tmp_path) as made:
        at_every_step(made, steps)
        is_accounted_for(made)
    print(made.seen)
    assert sum(made.seen.deaths.values()) >= scaled(150, 3)
    nothing_broke(made)


def test_case_11_no_request_fails_when_processes_die_at_random_moments(api: RunningServer, tmp_path: Path) -> None:
    with site(api, tmp_path) as made:
        at_random(made, scaled(100, 2), random.Random(11))
        is_accounted_for(made)
    print(made.seen)
    nothing_broke(made)


def nothing_broke(made: Site) -> None:
    assert made.seen.failed == []
    assert made.seen.broken == []


def is_accounted_for(made: Site) -> None:
    faults: list[str] = []

    def told() -> bool:
        faults[:] = made.usage_faults()
        return not faults

    try:
        until(told, "usage is told")
    except AssertionError:
        raise AssertionError(faults) from None
