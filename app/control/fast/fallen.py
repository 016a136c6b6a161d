"""Poses the question of what services lack as one of loads that rose: from what is carried to what is expected."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from app.control.decide.least_change import LEAST_RATE
from app.control.domain.snapshot import ExpectedLoad, Snapshot
from app.control.fast.base import StepBase, step_base
from app.control.fast.watch import CapacityNeed, StepTrigger
from app.control.formulate.failed_places import plan_as_assigned
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question

FELL = "a copy fell, and what it carried is served elsewhere"
AWAITED = "what runs and starts carries less than was planned"


def draft_base(snapshot: Snapshot, fallen: Collection[str]) -> tuple[StepBase, list[CapacityNeed]]:
    """Returns the plan in force at what it still carries of these services, and what they need."""
    return _draft_base(snapshot, formulate(snapshot), fallen, StepTrigger.INSTANCE_DOWN, FELL)


def draft_base_midway(snapshot: Snapshot) -> tuple[StepBase, list[CapacityNeed]]:
    """Returns what nodes are assigned, as if it were the plan in force, and what services need beyond it."""
    asked = formulate(then := plan_as_assigned(snapshot))
    return _draft_base(then, asked, asked.problem.services.keys(), StepTrigger.LOAD_ROSE, AWAITED)


def _draft_base(
    snapshot: Snapshot, asked: Question, lacking: Collection[str], trigger: StepTrigger, message: str
) -> tuple[StepBase, list[CapacityNeed]]:
    services = {name: service for name, service in asked.problem.services.items() if name in lacking}
    carried = dict.fromkeys(services, 0.0)
    for line in asked.plan_in_force.instances:
        if line.service in carried:
            carried[line.service] += line.rate_per_second
    needs = [
        CapacityNeed(name, trigger, service.rate_per_second, service.rate_per_second, message)
        for name, service in services.items()
        if service.tokens is None and carried[name] < service.rate_per_second - LEAST_RATE
    ]
    short = {
        need.service: replace(
            snapshot.expected.get(need.service, ExpectedLoad(0.0)),
            rate_per_second=max(carried[need.service], LEAST_RATE),
            high=0.0,
        )
        for need in needs
    }
    then = replace(snapshot, expected={**snapshot.expected, **short})
    return step_base(then, formulate(then) if short else asked), needs
