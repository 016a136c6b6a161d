"""Reads times from manifests: the period of cycles, the start of instances, the requests a second."""

from __future__ import annotations

from collections.abc import Sequence

from app.control.domain.policy import planner_policy
from app.control.domain.snapshot import DeclaredObject
from app.control.domain.specs import START_SECONDS, model_of, rate_per_second, start_seconds_of


def cycle_seconds(declared: Sequence[DeclaredObject]) -> float:
    """Returns the time between two full cycles."""
    return planner_policy(declared).cycle_seconds


def start_seconds(declared: Sequence[DeclaredObject]) -> dict[str, float]:
    """Returns, by service, the time from start to warm: that of its model's slowest profile."""
    of_model: dict[str, float] = {}
    for item in declared:
        if item.kind == "Profile":
            model = model_of(item.spec)
            of_model[model] = max(of_model.get(model, 0.0), start_seconds_of(item.spec))
    services = (item for item in declared if item.kind == "Service")
    return {service.full_name: of_model.get(model_of(service.spec), START_SECONDS) for service in services}


def read_declared_rates(declared: Sequence[DeclaredObject]) -> dict[str, float]:
    """Returns by service the requests a second that its manifest states."""
    services = (item for item in declared if item.kind == "Service")
    return {service.full_name: rate_per_second(service.spec) for service in services}
