"""What declarations say of time: the period of cycles, the start of instances, the requests a second."""

from __future__ import annotations

from collections.abc import Sequence

from app.control.domain.snapshot import DeclaredObject
from app.manifests.fleet import PolicySpec

START_SECONDS = 20.0


def cycle_seconds(declared: Sequence[DeclaredObject]) -> float:
    """Between two full cycles."""
    policy = next((one.spec for one in declared if one.kind == "Policy"), {})
    return float(str(policy.get("cycleSeconds", PolicySpec.model_fields["cycle_seconds"].default)))


def start_seconds(declared: Sequence[DeclaredObject]) -> dict[str, float]:
    """From start to warm, by service: that of its model's slowest profile."""
    of_model: dict[str, float] = {}
    for one in declared:
        if one.kind == "Profile":
            model = str(one.spec["model"])
            seconds = float(str(one.spec.get("startSeconds", START_SECONDS)))
            of_model[model] = max(of_model.get(model, 0.0), seconds)
    return {
        f"{one.tenant}/{one.name}": of_model.get(str(one.spec["model"]), START_SECONDS)
        for one in declared
        if one.kind == "Service"
    }


def declared_rates(declared: Sequence[DeclaredObject]) -> dict[str, float]:
    """Returns by service the requests a second that its manifest states."""
    services = (one for one in declared if one.kind == "Service")
    return {f"{service.tenant}/{service.name}": float(str(service.spec["ratePerSecond"])) for service in services}
