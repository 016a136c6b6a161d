"""The rule of accounts gives a node back as its term ends, if it has not been needed for long enough by then."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.control.domain.snapshot import Snapshot
from app.control.rent.question import make_pool
from app.control.rent.renter import make_order
from app.control.rent.rule import AccountRule, RentMoment
from app.control.rent.states import RentState
from app.control.solve.inline import Inline
from simulation.world import read_documents, truth_of
from solvers.planning.plan import Plan
from tests.simulation.worlds import gpu_type, node, policy

ORDERED = datetime(2026, 3, 1, tzinfo=UTC)
PROBLEM = truth_of(read_documents([gpu_type(), policy(), node("n")])).problem


def leaves_after(start_seconds: float, idle_from: int = 0) -> int:
    """Returns the minute after its order in which the node leaves that holds nothing; it is looked at from then on."""
    spec = {
        "gpuType": "v100-16gb", "gpusPerNode": 1, "max": 1, "hook": "cloud", "startSeconds": start_seconds,
        "minimumMinutes": 30,
    }  # fmt: skip
    pool = make_pool("burst", spec, gpu_type()["spec"])
    row = replace(make_order(pool, "n", ORDERED), state=RentState.JOINED, paid_at=ORDERED)
    rule = AccountRule()
    for minute in range(idle_from, idle_from + 120):
        at = ORDERED + timedelta(minutes=minute)
        moment = RentMoment(Snapshot(at, 1), PROBLEM, Plan(()), {"burst": pool}, [row], lambda ahead: {}, 60.0)
        decision = rule.decide(moment, Inline())
        assert decision is not None
        if decision.leaving:
            return minute
    raise AssertionError("it stays")


@pytest.mark.parametrize("start_minutes", [0, 1, 4, 20])
def test_a_node_that_idles_leaves_as_its_term_ends(start_minutes: int) -> None:
    assert leaves_after(60.0 * start_minutes) == 30 + start_minutes


@pytest.mark.parametrize(("start_minutes", "looks"), [(0, 0), (4, 1), (20, 15)])
def test_one_that_is_needed_beyond_its_term_leaves_after_a_start_of_which_plans_take_five_minutes(
    start_minutes: int, looks: int
) -> None:
    assert leaves_after(60.0 * start_minutes, idle_from=90) == 90 + looks
