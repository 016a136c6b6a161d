"""When capacity was lost on the way and no move is possible, the least important instance yields."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.control.domain.desired import Desired
from app.control.rollout.life import begin
from app.control.rollout.rules import Advance, Leaving, PendingStep, RolloutState
from tests.app.control.rollout.fleets import a_node, advance, all_serve, an_instance, rules

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def fleet(priority: float) -> tuple[Desired, Desired]:
    """spare holds the room that usual needs, and can itself go nowhere before usual has come."""
    assigned = {"n1": a_node(an_instance("spare-1", "spare", sm=90, rate=80, priority=priority)), "n2": a_node()}
    target = {
        "n1": a_node(an_instance("usual-1", "usual", sm=50), an_instance("spare-2", "spare", sm=40, priority=priority)),
        "n2": a_node(),
    }
    return assigned, target


def at(seconds: float, assigned: Desired, target: Desired, state: RolloutState) -> Advance:
    return advance(target, assigned, all_serve(assigned), state, rules(), NOW + timedelta(seconds=seconds))


def test_the_lower_priority_gives_way_after_a_while() -> None:
    assigned, target = fleet(10)
    step = at(0, assigned, target, RolloutState())
    assert step.changed == {} and step.state.stuck_since == NOW.timestamp()
    assert at(14, assigned, target, step.state).changed == {}
    step = at(15, assigned, target, step.state)
    assert step.made == ("spare-1",)
    assert at(16, step.desired, target, step.state).made == ("spare-2", "usual-1")


def test_the_higher_priority_never_does() -> None:
    assigned, target = fleet(200)
    step = at(0, assigned, target, RolloutState())
    assert at(3600, assigned, target, step.state).changed == {}


def test_the_wait_restarts_when_there_is_progress() -> None:
    assigned, target = fleet(10)
    step = at(0, assigned, target, RolloutState())
    moved = {**assigned, "n1": a_node(*assigned["n1"].instances, an_instance("other", "other", sm=10))}
    step = at(10, moved, target, step.state)
    assert step.made == ("other",) and step.state.stuck_since == 0.0


def test_the_wait_does_not_restart_with_another_plan() -> None:
    assigned, target = fleet(10)
    step = at(0, assigned, target, RolloutState())
    assert at(15, assigned, target, begin(step.state, assigned, target, rules())).made == ("spare-1",)


def test_no_service_without_a_copy_waits_for_changes_elsewhere() -> None:
    assigned, target = fleet(10)
    elsewhere = {"n3": a_node(an_instance("other", "other"))}
    assigned, target = {**assigned, **elsewhere}, {**target, **elsewhere}
    state = RolloutState(pending={"other": PendingStep(NOW.timestamp() + 14)})
    observed = all_serve({node: wanted for node, wanted in assigned.items() if node != "n3"})
    step = advance(target, assigned, observed, state, rules(), NOW)
    step = advance(target, assigned, observed, step.state, rules(), NOW + timedelta(seconds=15))
    assert step.made == ("spare-1",)


def test_a_copy_that_does_not_leave_is_not_waited_for() -> None:
    assigned, target = fleet(10)
    gone = an_instance("gone", "past", sm=5, priority=10)
    observed = all_serve({**assigned, "n3": a_node(gone)})
    state = RolloutState(leaving={"gone": Leaving("n1", gone, NOW.timestamp() - 280)})
    for seconds, made in ((0, ()), (19, ()), (20, ()), (35, ("spare-1",))):
        step = advance(target, assigned, observed, state, rules(), NOW + timedelta(seconds=seconds))
        state = step.state
        assert step.made == made, seconds


def test_no_service_gives_its_last_copy_to_one_of_its_priority_that_still_serves() -> None:
    short = an_instance("usual-0", "usual", rate=86)
    assigned = {"n1": a_node(an_instance("spare-1", "spare", sm=90, rate=80)), "n2": a_node(short)}
    more = an_instance("usual-1", "usual", sm=50, rate=14)
    target = {"n1": a_node(more, an_instance("spare-2", "spare", sm=40, rate=80)), "n2": a_node(short)}
    step = at(0, assigned, target, RolloutState())
    assert step.state.stuck_since == NOW.timestamp()
    assert at(15, assigned, target, step.state).made == ()


@pytest.mark.parametrize(("priority", "gives"), [(100, ()), (10, ("spare-1",))])
def test_no_service_gives_its_last_copy_to_one_of_its_priority_while_its_next_copy_starts(
    priority: float, gives: tuple[str, ...]
) -> None:
    first, following = (
        an_instance(name, "spare", sm=90, rate=80, priority=priority) for name in ("spare-1", "spare-2")
    )
    assigned = {"n1": a_node(first), "n2": a_node(following)}
    target = {"n1": a_node(an_instance("usual-1", "usual", sm=50)), "n2": a_node(following)}
    observed = all_serve({"n1": a_node(first), "n2": a_node()})
    step = advance(target, assigned, observed, RolloutState(), rules(), NOW)
    step = advance(target, assigned, observed, step.state, rules(), NOW + timedelta(seconds=16))
    assert step.made == gives


def test_a_service_gives_a_copy_that_leaves_it_more_than_the_other_has() -> None:
    short, kept = an_instance("usual-0", "usual", rate=40), an_instance("spare-0", "spare", rate=60)
    assigned = {"n1": a_node(an_instance("spare-1", "spare", sm=90, rate=40)), "n2": a_node(short, kept)}
    more = an_instance("usual-1", "usual", sm=50, rate=60)
    target = {"n1": a_node(more, an_instance("spare-2", "spare", sm=40, rate=40)), "n2": a_node(short, kept)}
    step = at(0, assigned, target, RolloutState())
    assert at(15, assigned, target, step.state).made == ("spare-1",)
