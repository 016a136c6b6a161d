"""Changes that wait with nothing under way are named and freed within half a minute; nothing that serves is lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.control.domain.desired import Desired
from app.control.rollout.blocked import free
from app.control.rollout.life import begin
from app.control.rollout.rules import Advance, RolloutState
from tests.app.control.rollout.fleets import a_job, a_node, advance, all_serve, an_instance, drawn, rules, served
from tests.app.control.rollout.nodes import Fleet
from tests.app.control.rollout.referee import placed_instances
from tests.support.soak import scaled

START = datetime(2026, 1, 1, tzinfo=UTC)
MOST_ROUNDS = 900
ALARM_SECONDS = 30
RULES = rules(stuck_seconds=1e9)  # no service gives way to another


def roll(fleet: Fleet, target: Desired, state: RolloutState, start: int, rounds: int) -> RolloutState | None:
    """Alternates steps and seconds; returns None when the rollout is done."""
    floor = {service: min(rate, fleet.goes_on_carrying(service)) for service, rate in served(target).items()}
    quiet = 0
    for second in range(start, start + rounds):
        step = advance(target, fleet.assigned, fleet.observed(), state, RULES, START + timedelta(seconds=second))
        state = msgspec.json.decode(msgspec.json.encode(step.state), type=RolloutState)  # as it is kept
        assert not step.stopped_reason
        if step.done:
            return None
        quiet = quiet + 1 if step.waiting and not step.freed and is_quiet(fleet, step) else 0
        assert quiet < ALARM_SECONDS
        target = target if step.target is None else step.target
        fleet.tell(step.changed, max(fleet.assigned_generations.values()) + 1)
        fleet.pass_time()
        assert fleet.overfull(RULES) == []
        for service, rate in floor.items():
            assert fleet.carries(service) >= rate - 1e-6, service
    return state


def is_quiet(fleet: Fleet, step: Advance) -> bool:
    """Returns whether nothing is under way, by the nodes' own account."""
    if step.changed or any(
        node.reported_generation < fleet.assigned_generations[name] for name, node in fleet.nodes.items()
    ):
        return False
    return all(copy.stage == "ready" for node in fleet.nodes.values() for copy in node.copies)


@pytest.mark.slow
@settings(max_examples=scaled(3_000, 150), deadline=None)
@given(drawn(most=8, nodes=2), st.integers(0, 1000))
def test_any_target_is_reached_or_left_out_in_part(fleets: tuple[Desired, Desired], seed: int) -> None:
    assigned, target = fleets
    fleet = Fleet(assigned, Random(seed))
    assert roll(fleet, target, begin(RolloutState(), assigned, target, RULES), 1, MOST_ROUNDS) is None


@pytest.mark.slow
@settings(max_examples=scaled(3_000, 100), deadline=None)
@given(drawn(most=8, nodes=2), st.integers(0, 1000), st.integers(0, 12))
def test_a_plan_that_takes_over_half_way_never_waits_for_long(
    fleets: tuple[Desired, Desired], seed: int, when: int
) -> None:
    assigned, target = fleets
    fleet = Fleet(assigned, Random(seed))
    state = roll(fleet, target, begin(RolloutState(), assigned, target, RULES), 1, when)
    begun = begin(state or RolloutState(), fleet.assigned, assigned, RULES)
    assert roll(fleet, assigned, begun, when + 1, MOST_ROUNDS) is None


# Two services that would change places, with room for neither.
OLD = {"n1": a_node(an_instance("a1", "a", sm=60)), "n2": a_node(an_instance("b1", "b", sm=70))}
SWAPPED = {"n1": a_node(an_instance("b2", "b", sm=70)), "n2": a_node(an_instance("a2", "a", sm=60))}
ELSEWHERE = {"n3": a_node(an_instance("c1", "c"))}


def look(target: Desired, step: Advance, seconds: float) -> Advance:
    now = START + timedelta(seconds=seconds)
    return advance(target, step.desired, all_serve(step.desired), step.state, rules(), now)


def test_changes_that_wait_for_each_other_are_named_and_left_out_while_others_go_on() -> None:
    target = {**SWAPPED, **ELSEWHERE}
    step = advance(target, {**OLD, "n3": a_node()}, all_serve(OLD), RolloutState(), rules(), START)
    for seconds in range(5, 25, 5):
        assert not step.freed and step.target is None
        step = look(target, step, seconds)
    assert step.freed.startswith(
        "4 changes wait and nothing is under way; they are left out until another plan: a1 of "
    )
    assert step.target is not None
    assert placed_instances(step.target) == placed_instances({**OLD, **ELSEWHERE})
    assert (step.state.freed, step.state.waited_seconds) == (("shop/a", "shop/b"), 20.0)
    assert look(step.target, step, 25).done


def test_jobs_that_would_change_places_run_on_where_they_are_and_hold_up_no_plan() -> None:
    """Each runs until its new place is free, and neither is about to serve, though no gateway routes to it."""
    assigned = {"n1": a_node(a_job("i1", "one", 0, sm=60), a_job("i2", "two", 1, sm=60))}
    target = {"n1": a_node(a_job("j1", "one", 1, sm=60), a_job("j2", "two", 0, sm=60))}
    step = advance(target, assigned, all_serve(assigned), RolloutState(), rules(), START)
    for seconds in range(5, 25, 5):
        assert not step.freed
        step = look(target, step, seconds)
    assert step.freed.startswith("4 changes wait and nothing is under way; they are left out until another plan: ")
    assert step.target is not None and look(step.target, step, 25).done


def test_a_single_change_waits_in_the_singular() -> None:
    step = advance(SWAPPED, OLD, all_serve(OLD), RolloutState(), rules(), START)
    mine = [change for change in step.waiting if change.instance == "a2"]
    freed = free({"a2"}, mine, OLD, SWAPPED, step.state, rules())
    assert freed.message.startswith("1 change waits and nothing is under way; it is left out until another plan: a2 ")


def test_a_component_is_freed_although_another_is_under_way() -> None:
    target = {**SWAPPED, **ELSEWHERE}
    step = advance(target, {**OLD, "n3": a_node()}, all_serve(OLD), RolloutState(), rules(), START)
    for seconds in range(5, 25, 5):
        starting = all_serve({node: wanted for node, wanted in step.desired.items() if node != "n3"})
        step = advance(target, step.desired, starting, step.state, rules(), START + timedelta(seconds=seconds))
    assert step.freed and "c1" in step.state.pending


def test_the_wait_goes_on_under_a_newer_plan_and_is_counted_for_each() -> None:
    step = advance(SWAPPED, OLD, all_serve(OLD), RolloutState(), rules(), START)
    step = look(SWAPPED, step, 10)
    begun = begin(step.state, OLD, SWAPPED, rules())
    assert (step.state.waited_seconds, begun.waited_seconds) == (10.0, 0.0)
    step = advance(SWAPPED, OLD, all_serve(OLD), begun, rules(), START + timedelta(seconds=20))
    assert step.freed and step.state.waited_seconds == 10.0


def test_time_without_a_look_does_not_count() -> None:
    step = advance(SWAPPED, OLD, all_serve(OLD), RolloutState(), rules(), START)
    step = look(SWAPPED, step, 600)
    assert not step.freed and step.state.waited_seconds == 0.0


def test_an_order_that_blocks_itself_is_replaced() -> None:
    """The order was found for another fleet: b1 would start first, in the room that the hand-over of a1 needs."""
    assigned = {"n1": a_node(an_instance("a1", "a", sm=30, memory=5), an_instance("b1", "b", sm=30, memory=8))}
    target = {"n1": a_node(an_instance("a1", "a", sm=30, memory=7), an_instance("b1", "b", sm=30, memory=1))}
    state = RolloutState(sequence=("a1", "b1"))
    step = advance(target, assigned, all_serve(assigned), state, rules(), START)
    assert step.made == ()
    for seconds in range(5, 25, 5):
        step = look(target, step, seconds)
    assert "they get another order" in step.freed and step.target is None
    assert look(target, step, 25).made == ("b1",)
