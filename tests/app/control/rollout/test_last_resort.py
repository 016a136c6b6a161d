"""When capacity was lost on the way and nothing moves any more, the least important gives way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.control.desired import Desired
from app.control.rollout import Advance, RolloutState, advance
from tests.app.control.rollout.fleets import a_node, all_serve, an_instance, rules

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def fleet(priority: float) -> tuple[Desired, Desired]:
    """spare holds the room that usual needs, and can itself go nowhere before usual has come."""
    told = {"n1": a_node(an_instance("spare-1", "spare", sm=90, rate=80, priority=priority)), "n2": a_node()}
    target = {
        "n1": a_node(an_instance("usual-1", "usual", sm=50), an_instance("spare-2", "spare", sm=40, priority=priority)),
        "n2": a_node(),
    }
    return told, target


def at(seconds: float, told: Desired, target: Desired, state: RolloutState) -> Advance:
    return advance(target, told, all_serve(told), state, rules(), NOW + timedelta(seconds=seconds))


def test_the_lower_priority_gives_way_after_a_while() -> None:
    told, target = fleet(10)
    step = at(0, told, target, RolloutState())
    assert step.changed == {} and step.state.stuck_since == NOW.timestamp()
    assert at(14, told, target, step.state).changed == {}
    step = at(15, told, target, step.state)
    assert step.made == ("spare-1",)
    assert at(16, step.desired, target, step.state).made == ("spare-2", "usual-1")


def test_the_higher_priority_never_does() -> None:
    told, target = fleet(200)
    step = at(0, told, target, RolloutState())
    assert at(3600, told, target, step.state).changed == {}


def test_the_wait_begins_anew_when_something_moves() -> None:
    told, target = fleet(10)
    step = at(0, told, target, RolloutState())
    moved = {**told, "n2": a_node(an_instance("other", "other"))}
    step = at(10, moved, target, step.state)
    assert step.made == ("other",) and step.state.stuck_since == 0.0
