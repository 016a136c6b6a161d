"""Where a full plan cannot be carried out, what fits next to the current plan is done rather than wait."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from agents.contract.assignments import AssignedInstance
from app.control.decide.choosing import is_preferred
from app.control.decide.least_change import MOST_HANDOVERS, count_handed_over, explain_skipped, is_too_large
from app.control.domain.decision import Decision, PlanningLane, PlanValue, SolveOutcome, SolverAnswer
from app.control.domain.desired import NodeDesired
from app.control.domain.snapshot import Snapshot
from solvers.planning.plan import Certificate, Changes, Cost, Plan, Unserved

AT = datetime(2026, 6, 1, tzinfo=UTC)


def fleet(count: int) -> Snapshot:
    lines = tuple(AssignedInstance(f"i-{number}", 0, "shop", "a") for number in range(count))
    return Snapshot(AT, 1, in_force={"node-0": NodeDesired(lines)})


def decision(unserved: float, per_horizon: float = 10.0, **changes: int) -> Decision:
    value = PlanValue(per_horizon, 0.0, unserved)
    plan = Plan((), changes=Changes(**changes))
    return Decision(PlanningLane.FULL, plan, {}, SolverAnswer(SolveOutcome.SOLVED), value=value)


def test_a_plan_that_hands_over_much_of_a_fleet_is_an_upheaval_and_its_first_one_is_not() -> None:
    assert is_too_large(fleet(100), Changes(move=26))
    assert is_too_large(fleet(100), Changes(start=30, stop=30))
    assert not is_too_large(fleet(100), Changes(move=25))
    assert not is_too_large(fleet(10), Changes(move=9)), "a few are no matter"
    assert not is_too_large(fleet(0), Changes(start=500)), "a fleet begins with starts"


def test_the_small_step_is_taken_where_it_serves_as_much_or_the_large_one_is_too_large() -> None:
    assert is_preferred(decision(0.0, start=1), decision(0.0, move=30))
    assert not is_preferred(decision(5.0, start=1), decision(0.0, move=30))
    assert not is_preferred(decision(0.0, 15.0, start=1), decision(0.0, 12.1, move=30)), "it opens a dear GPU"
    assert is_preferred(decision(5.0, start=1), decision(0.0, move=MOST_HANDOVERS + 1))


def test_what_gives_way_is_counted_once() -> None:
    assert count_handed_over(Changes(move=2, resize=3, start=4, stop=1, keep=50, retune=9)) == 6


def of_cost(unserved: float, resource: float, moves: int) -> Plan:
    left = (Unserved("shop/a", unserved),) if unserved else ()
    certificate = Certificate(Cost(resource, 1000 * unserved), None, "local search", 1, 0.1)
    return Plan((), unserved=left, changes=Changes(move=moves), certificate=certificate)


@pytest.mark.parametrize(
    ("smaller", "larger", "message"),
    [
        (of_cost(40.0, 12.0, 1), of_cost(0.0, 14.5, 30),
         "30 hand-overs would serve 40 more requests a second and cost 2.50 more an hour; "
         "smaller changes are made instead"),
        (of_cost(0.0, 12.0, 1), of_cost(0.0, 10.5, 30),
         "30 hand-overs would save 1.50 an hour; smaller changes are made instead"),
    ],
)  # fmt: skip
def test_what_a_larger_plan_would_serve_is_no_money(smaller: Plan, larger: Plan, message: str) -> None:
    least = replace(decision(0.0), answer=SolverAnswer(SolveOutcome.SOLVED, is_least_change=True))
    skipped = explain_skipped(replace(least, plan=smaller), larger)
    assert [each.message for each in skipped.held_back] == [message]
    assert explain_skipped(replace(least, plan=larger), smaller).held_back == ()
