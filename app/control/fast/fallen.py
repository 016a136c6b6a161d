"""Poses the question of copies that fell as one of loads that rose: from what is still carried to what is expected."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from app.control.decide.least_change import LEAST_RATE
from app.control.domain.snapshot import ExpectedLoad, Snapshot
from app.control.fast.base import StepBase, step_base
from app.control.fast.watch import CapacityNeed, StepTrigger
from app.control.formulate.formulate import formulate

FELL = "a copy fell, and what it carried is served elsewhere"


def draft_base(snapshot: Snapshot, fallen: Collection[str]) -> tuple[StepBase, list[CapacityNeed]]:
    """Returns the plan in force at what it still carries of these services, and what they need."""
    asked = formulate(snapshot)
    services = {name: service for name, service in asked.problem.services.items() if name in fallen}
    carried = dict.fromkeys(services, 0.0)
    for line in asked.plan_in_force.instances:
        if line.service in carried:
            carried[line.service] += line.rate_per_second
    needs = [
        CapacityNeed(name, StepTrigger.INSTANCE_DOWN, service.rate_per_second, service.rate_per_second, FELL)
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
