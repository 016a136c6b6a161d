"""Where a full plan cannot be carried out, what fits next to the current plan is done rather than wait."""

from __future__ import annotations

from datetime import UTC, datetime

from agents.contract.assignments import AssignedInstance
from app.control.decide.least_change import MOST_HANDOVERS, handed_over, is_preferred, is_too_large
from app.control.domain.desired import NodeDesired
from app.control.domain.snapshot import Snapshot
from solvers.planning.plan import Certificate, Changes, Cost, Plan

AT = datetime(2026, 6, 1, tzinfo=UTC)


def fleet(count: int) -> Snapshot:
    lines = tuple(AssignedInstance(f"i-{number}", 0, "shop", "a") for number in range(count))
    return Snapshot(AT, 1, in_force={"node-0": NodeDesired(lines)})


def plan(unserved: float, **changes: int) -> Plan:
    return Plan((), changes=Changes(**changes), certificate=Certificate(Cost(10.0, unserved), None, "", 0, 0.0))


def test_a_plan_that_hands_over_much_of_a_fleet_is_an_upheaval_and_its_first_one_is_not() -> None:
    assert is_too_large(fleet(100), Changes(move=26))
    assert is_too_large(fleet(100), Changes(start=30, stop=30))
    assert not is_too_large(fleet(100), Changes(move=25))
    assert not is_too_large(fleet(10), Changes(move=9)), "a few are no matter"
    assert not is_too_large(fleet(0), Changes(start=500)), "a fleet begins with starts"


def test_the_small_step_is_taken_where_it_serves_as_much_or_the_large_one_is_too_large() -> None:
    assert is_preferred(plan(0.0, start=1), plan(0.0, move=30))
    assert not is_preferred(plan(5.0, start=1), plan(0.0, move=30))
    assert is_preferred(plan(5.0, start=1), plan(0.0, move=MOST_HANDOVERS + 1))


def test_what_gives_way_is_counted_once() -> None:
    assert handed_over(Changes(move=2, resize=3, start=4, stop=1, keep=50, retune=9)) == 6
