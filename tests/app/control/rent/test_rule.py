"""The rule of accounts gives a node back as its term ends, if it has not been needed for long enough by then."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.control.domain.snapshot import Snapshot
from app.control.rent.question import RentalPool, RentNeed, make_pool
from app.control.rent.renter import make_order
from app.control.rent.rule import AccountRule, RentMoment
from app.control.rent.states import RentedNode, RentState
from app.control.solve.inline import Inline
from simulation.world import read_documents, truth_of
from solvers.planning.plan import Plan
from tests.simulation.worlds import gpu_type, node, policy

ORDERED = datetime(2026, 3, 1, tzinfo=UTC)
PROBLEM = truth_of(read_documents([gpu_type(), policy(), node("n")])).problem


def pool_of(start_seconds: float, **given: object) -> RentalPool:
    spec = {
        "gpuType": "v100-16gb", "gpusPerNode": 1, "cpuCores": 24, "memoryGib": 128, "max": 3, "hook": "cloud",
        "startSeconds": start_seconds, "minimumMinutes": 30,
    }  # fmt: skip
    return make_pool("burst", spec | given, gpu_type()["spec"])


def order(pool: RentalPool, node: str, state: RentState = RentState.JOINED) -> RentedNode:
    return replace(make_order(pool, node, ORDERED), state=state, paid_at=ORDERED)


def moment_at(pool: RentalPool, rows: list[RentedNode], minute: int) -> RentMoment:
    at = ORDERED + timedelta(minutes=minute)
    return RentMoment(Snapshot(at, 1), PROBLEM, Plan(()), {"burst": pool}, rows, lambda ahead: {}, 60.0)


def leaves_after(start_seconds: float, idle_from: int = 0) -> int:
    """Returns the minute after its order in which the node leaves that holds nothing; it is looked at from then on."""
    pool = pool_of(start_seconds)
    rows, rule = [order(pool, "n")], AccountRule()
    for minute in range(idle_from, idle_from + 120):
        decision = rule.decide(moment_at(pool, rows, minute), Inline())
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


def test_the_least_number_of_a_pool_has_joined_before_another_leaves() -> None:
    pool = pool_of(240.0, min=2)
    rows = [order(pool, "n"), order(pool, "o"), order(pool, "p", RentState.STARTING)]
    rule = AccountRule()
    for minute in range(90, 120):
        decision = rule.decide(moment_at(pool, rows, minute), Inline())
        assert decision is not None
        assert not decision.leaving, "the third may never come"


def test_a_node_that_is_needed_while_another_comes_has_not_idled_since_before() -> None:
    pool = pool_of(240.0)
    rows, rule = [order(pool, "n")], AccountRule()

    def give_back(minute: int, need: RentNeed) -> list[str]:
        return [row.node for row in rule._give_back(pool, moment_at(pool, rows, minute), need)]

    idle = RentNeed(frozenset(), {}, 0.0)
    assert give_back(90, idle) == []
    for minute in range(91, 100):
        assert give_back(minute, RentNeed(frozenset({"n"}), {}, 0.0, uses_coming=True)) == []
    assert give_back(100, idle) == [], "it is seen to idle for the first time"
    assert give_back(101, idle) == ["n"]
