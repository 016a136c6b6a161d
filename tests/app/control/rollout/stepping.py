"""Steps through a rollout in an order that was found, on nodes that apply every assignment at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from app.control.domain.desired import Desired
from app.control.rollout.rules import RolloutOrder, RolloutRules, RolloutState
from tests.app.control.rollout.fleets import advance, all_serve

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MOST_STEPS = 1000


def steps_of(assigned: Desired, found: RolloutOrder, rules: RolloutRules) -> tuple[Desired, ...]:
    """Returns what the whole fleet is assigned after each step, until the rollout is done."""
    rules, state = replace(rules, unproven=frozenset()), RolloutState(found.sequence)
    steps: list[Desired] = []
    for _ in range(MOST_STEPS):
        step = advance(found.target, assigned, all_serve(assigned), state, rules, NOW)
        if step.changed:
            steps.append(step.desired)
        assigned, state = step.desired, step.state
        if step.done:
            return tuple(steps)
    raise AssertionError(f"the rollout waits: {step.waiting}")
