"""Counts what runs of what is planned, for those who watch the fleet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import CopyCounts, Desired, FleetStatus
from app.control.rollout.capacity import serves
from app.control.rollout.check import HARMLESS
from app.control.rollout.falls import runs


def count_copies(
    services: Iterable[str],
    target: Desired,
    status: FleetStatus,
    pending: Collection[str],
    suspects: Collection[str],
) -> Mapping[str, CopyCounts]:
    """Returns the counts of each of these services, also of one that has no copy; `pending` instances are starting."""
    found = {name: CopyCounts(is_suspect=name in suspects) for name in services}
    for node, wanted in target.items():
        for instance in wanted.instances:
            if instance.service and (counts := found.get(instance.owner)):
                found[instance.owner] = _add_copy(counts, instance, node, status, pending)
    return found


def _add_copy(
    counts: CopyCounts, instance: AssignedInstance, node: str, status: FleetStatus, pending: Collection[str]
) -> CopyCounts:
    is_heard = node not in status.silent and node not in status.lost
    is_running = is_heard and runs(instance, node, status)
    return replace(
        counts,
        planned=counts.planned + 1,
        running=counts.running + is_running,
        routed=counts.routed + serves(instance, node, status),
        why=counts.why or ("" if is_running else _why_not(instance, node, status, is_heard, pending)),
    )


def _why_not(
    instance: AssignedInstance, node: str, status: FleetStatus, is_heard: bool, pending: Collection[str]
) -> str:
    name = f"{instance.id} on {node}/{instance.gpu}"
    if not is_heard:
        return f"{name}: its node does not report"
    known = status.instances.get(instance.id)
    if known and known.reason and known.reason not in HARMLESS:
        return f"{name}: {known.reason}{f': {known.message}' if known.message else ''}"
    return "" if instance.id in pending or (known and known.rising) else f"{name} does not run"
