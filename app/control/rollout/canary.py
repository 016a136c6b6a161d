"""Canaries: the first instance of a shape that never ran in this fleet is watched before the others follow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from app.control.domain.desired import Desired, FleetStatus
from app.control.domain.events import Reason
from app.control.domain.readings import CopyTrial
from app.control.rollout.capacity import serves
from app.control.rollout.rules import Canary, PendingStep, RolloutRules


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """The canaries that continue, and those that passed or failed."""

    canaries: Mapping[str, Canary]
    passed: tuple[str, ...] = ()
    failed: str = ""  # the instance
    message: str = ""


def watch_canaries(
    canaries: Mapping[str, Canary], assigned: Desired, pending: Mapping[str, PendingStep], observed: FleetStatus,
    trials: Mapping[str, CopyTrial], rules: RolloutRules, now: float,
) -> CanaryResult:  # fmt: skip
    """Watches each canary for one step. A canary that is no longer assigned is forgotten."""
    if not canaries:
        return CanaryResult({})
    there = {instance.id: (node, instance) for node, wanted in assigned.items() for instance in wanted.instances}
    watched: dict[str, Canary] = {}
    passed: list[str] = []
    for key, canary in sorted(canaries.items()):
        if canary.instance not in there:
            continue
        node, instance = there[canary.instance]
        if node in observed.silent - observed.lost:  # it is judged when its node reports again
            watched[key] = canary
            continue
        if canary.instance in pending or not serves(instance, node, observed):
            # Where no step waits for it and it never served, its node was lost before.
            tried_since = canary.tried_since or (0.0 if canary.instance in pending else now)
            watched[key] = replace(canary, ready_since=0.0, tried_since=tried_since)
            if tried_since and now - tried_since >= rules.canary_seconds * rules.canary_patience:
                why = f"it did not serve for {rules.canary_seconds:g} s at a stretch in {now - tried_since:.0f} s"
                message = f"{Reason.CANARY_FAILED.sentence} {key} on {node}: {why}"
                return CanaryResult(_left(canaries, watched, passed), tuple(passed), canary.instance, message)
            continue
        since = canary.ready_since or now
        tried_since = canary.tried_since or since
        watched[key] = replace(canary, ready_since=since, tried_since=tried_since)
        trial = trials.get(canary.instance, CopyTrial())
        if now - since < rules.canary_seconds:
            continue
        if trial.requests >= rules.canary_requests:
            if trial.within_percent < instance.percentile:
                message = (
                    f"{Reason.CANARY_FAILED.sentence} {key} on {node}: {trial.within_percent:.2f} % of "
                    f"{trial.requests} answers were within {instance.slo_ms:g} ms; "
                    f"{instance.percentile:g} % are promised"
                )
                return CanaryResult(_left(canaries, watched, passed), tuple(passed), canary.instance, message)
        elif now - tried_since < rules.canary_seconds * rules.canary_patience:
            continue
        passed.append(key)
        del watched[key]
    return CanaryResult(watched, tuple(passed))


def _left(canaries: Mapping[str, Canary], watched: Mapping[str, Canary], passed: Collection[str]) -> dict[str, Canary]:
    """Returns the canaries that are still on trial when one fails: those looked at before it as they are now."""
    return {key: known for key, known in {**canaries, **watched}.items() if key not in passed}
