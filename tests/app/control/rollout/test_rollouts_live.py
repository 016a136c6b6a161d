"""Whole rollouts over nodes, each with delays of its own: room, capacity and the target, at every moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.control.domain.desired import Desired
from app.control.rollout.life import begin
from app.control.rollout.ordering.finding import order
from app.control.rollout.rules import RolloutRules, RolloutState
from tests.app.control.rollout.fleets import advance, drawn, rules, served
from tests.app.control.rollout.nodes import Fleet
from tests.app.control.rollout.referee import placed_instances
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

PATIENT = rules(least_seconds=1e9, held_seconds=1e9)
SECOND = timedelta(seconds=1)
START = datetime(2026, 1, 1, tzinfo=UTC)
MOST_ROUNDS = 600


def roll(
    fleet: Fleet, target: Desired, state: RolloutState, the_rules: RolloutRules, rounds: int = MOST_ROUNDS
) -> RolloutState | None:
    """Steps and time in turn, judged at every moment; None when the target was reached."""
    floor = {service: min(rate, fleet.goes_on_carrying(service)) for service, rate in served(target).items()}
    now = START
    for _ in range(rounds):
        now += SECOND
        step = advance(target, fleet.assigned, fleet.observed(), state, the_rules, now)
        assert not step.stopped_reason
        state = msgspec.json.decode(msgspec.json.encode(step.state), type=RolloutState)  # as it is kept
        if step.done:
            return None
        fleet.tell(step.changed, max(fleet.assigned_generations.values()) + 1)
        fleet.pass_time()
        assert fleet.overfull(the_rules) == []
        for service, rate in floor.items():
            assert fleet.carries(service) >= rate - 1e-6, service
    return state


@settings(max_examples=scaled(3_000, 150), deadline=None)
@given(drawn(most=6), st.integers(0, 1000))
def test_a_rollout_reaches_its_target_at_any_pace_of_nodes(fleets: tuple[Desired, Desired], seed: int) -> None:
    assigned, target = fleets
    found = order(assigned, target, rules())
    fleet = Fleet(assigned, Random(seed))
    assert roll(fleet, found.target, RolloutState(found.sequence), PATIENT) is None
    assert placed_instances(fleet.assigned) == placed_instances(found.target)


@settings(max_examples=scaled(3_000, 100), deadline=None)
@given(drawn(most=5), st.integers(0, 1000), st.integers(0, 12))
def test_a_newer_plan_takes_over_anywhere_on_the_way(fleets: tuple[Desired, Desired], seed: int, when: int) -> None:
    assigned, target = fleets
    fleet = Fleet(assigned, Random(seed))
    first = order(assigned, target, PATIENT)
    state = roll(fleet, first.target, RolloutState(first.sequence), PATIENT, when)
    back = order(fleet.assigned, assigned, PATIENT)  # to the previous state, as far as there is a way back
    begun = begin(state or RolloutState(), fleet.assigned, back.target, PATIENT)
    assert roll(fleet, back.target, begun, PATIENT) is None
    assert placed_instances(fleet.assigned) == placed_instances(back.target)
