"""The modes of acting: what is done at once, what waits for a person, what is only shown."""

from __future__ import annotations

from app.control.domain.decision import Decision, PlanningLane, PlanState, SolveOutcome, SolverAnswer
from app.control.domain.desired import Desired
from app.control.domain.mode import FleetModes
from app.control.rollout.modes import ByMode, divide_by_mode
from solvers.planning.plan import Plan
from tests.app.control.rollout.fleets import a_node, an_instance, rules
from tests.app.control.rollout.referee import placed_instances

ASSIGNED = {"n1": a_node(an_instance("a1", "a")), "n2": a_node(an_instance("b1", "b")), "n3": a_node()}
TARGET = {
    "n1": a_node(an_instance("a1", "a", sm=60)),
    "n2": a_node(an_instance("b1", "b", sm=60)),
    "n3": a_node(an_instance("c1", "c")),
}


def split(modes: dict[str, str], default: str, target: Desired = TARGET, assigned: Desired = ASSIGNED) -> ByMode:
    decision = Decision(PlanningLane.FULL, Plan(()), target, SolverAnswer(SolveOutcome.SOLVED))
    return divide_by_mode(decision, assigned, FleetModes(default, modes), rules())


def changed(decision: Decision | None) -> set[str]:
    """Returns the instances whose target differs from their assignment."""
    assert decision is not None
    before, after = placed_instances(ASSIGNED), placed_instances(decision.desired)
    return {id_ for id_ in before.keys() | after.keys() if before.get(id_) != after.get(id_)}


def test_one_mode_for_all_is_one_part() -> None:
    for mode, state in (("auto", PlanState.ROLLING), ("approve", PlanState.PROPOSED), ("advisory", PlanState.ADVISORY)):
        found = split({}, mode)
        (part,) = [part for part in (found.acted, found.proposed, found.shown) if part]
        assert part.state is state
        assert part.desired == TARGET


def test_a_service_in_advisory_mode_is_held_back_alone() -> None:
    found = split({"shop/b": "advisory"}, "auto")
    assert changed(found.acted) == {"a1", "c1"}
    assert found.acted and [(change.service, change.reason) for change in found.acted.held_back] == [
        ("shop/b", "advisory")
    ]
    assert found.proposed is None
    assert changed(found.shown) == {"a1", "b1", "c1"}


def test_a_service_that_acts_alone_in_an_advisory_fleet_is_acted_upon() -> None:
    found = split({"shop/a": "auto"}, "advisory")
    assert changed(found.acted) == {"a1"}
    assert changed(found.shown) == {"a1", "b1", "c1"}


def test_changes_for_approval_are_proposed_on_top_of_the_changes_made() -> None:
    found = split({"shop/a": "approve", "shop/b": "advisory"}, "auto")
    assert changed(found.acted) == {"c1"}
    assert changed(found.proposed) == {"a1", "c1"}
    assert found.proposed and found.proposed.state is PlanState.PROPOSED


def test_a_change_that_needs_the_place_of_an_advisory_change_waits_too() -> None:
    assigned = {"n1": a_node(an_instance("a1", "a", sm=80)), "n2": a_node(), "n3": a_node(an_instance("b1", "b"))}
    target = {"n1": a_node(an_instance("b2", "b", sm=80)), "n2": a_node(an_instance("a2", "a", sm=80)), "n3": a_node()}
    found = split({"shop/a": "advisory"}, "auto", target, assigned)
    assert found.acted is None  # b could only move to where a stays
    assert found.shown is not None


def test_settings_alone_follow_the_mode_of_the_fleet() -> None:
    assigned = {"n1": a_node(an_instance("a1", "a"), clocks={0: 900})}
    target = {"n1": a_node(an_instance("a1", "a"), clocks={0: 1530})}
    assert split({"shop/a": "advisory"}, "auto", target, assigned).acted is not None
    assert split({"shop/a": "auto"}, "advisory", target, assigned).acted is None
