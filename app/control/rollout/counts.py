"""Counts what runs of what is planned, for those who watch the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import CopyCounts, Desired, FleetStatus
from app.control.rollout.capacity import serves
from app.control.rollout.check import HARMLESS
from app.control.rollout.failing.falls import runs

PROBE_SECONDS = 10.0  # after downSeconds: a report later


@dataclass(frozen=True, slots=True)
class CopyMarks:
    """What is known of copies and services beside the reports of now."""

    pending: frozenset[str] = frozenset()  # instances that start
    suspects: frozenset[str] = frozenset()  # services that fail wherever they are started
    unrouted: Mapping[str, float] = field(default_factory=dict)  # by instance: how long it has run without a request


def find_unrouted(before: Mapping[str, float], target: Desired, status: FleetStatus, now: float) -> dict[str, float]:
    """Returns since when each planned copy runs and gets no requests, although its node is heard."""
    return {
        instance.id: before.get(instance.id, now)
        for node, instance in _list_copies(target)
        if _is_heard(node, status) and runs(instance, node, status) and not serves(instance, node, status)
    }


def count_copies(
    services: Iterable[str], target: Desired, status: FleetStatus, marks: CopyMarks, down_seconds: float
) -> Mapping[str, CopyCounts]:
    """Returns the counts of each of these services, also of one that has no copy."""
    found = {name: CopyCounts(is_suspect=name in marks.suspects) for name in services}
    for node, instance in _list_copies(target):
        if counts := found.get(instance.owner):
            is_late = marks.unrouted.get(instance.id, 0.0) >= down_seconds + PROBE_SECONDS
            found[instance.owner] = _add_copy(counts, instance, node, status, marks, is_late)
    return found


def _list_copies(target: Desired) -> Iterator[tuple[str, AssignedInstance]]:
    for node, wanted in target.items():
        for instance in wanted.instances:
            if instance.service:
                yield node, instance


def _add_copy(
    counts: CopyCounts, instance: AssignedInstance, node: str, status: FleetStatus, marks: CopyMarks, is_late: bool
) -> CopyCounts:
    is_running = _is_heard(node, status) and runs(instance, node, status)
    return replace(
        counts,
        planned=counts.planned + 1,
        running=counts.running + is_running,
        routed=counts.routed + serves(instance, node, status),
        why=counts.why or _why_not(instance, node, status, marks, is_running, is_late),
    )


def _is_heard(node: str, status: FleetStatus) -> bool:
    return node not in status.silent and node not in status.lost


def _why_not(
    instance: AssignedInstance, node: str, status: FleetStatus, marks: CopyMarks, is_running: bool, is_late: bool
) -> str:
    name = f"{instance.id} on {node}/{instance.gpu}"
    if is_running:
        return f"{name} runs, and no gateway sends it requests" if is_late else ""
    if not _is_heard(node, status):
        return f"{name}: its node does not report"
    known = status.instances.get(instance.id)
    if known and known.reason and known.reason not in HARMLESS:
        return f"{name}: {known.reason}{f': {known.message}' if known.message else ''}"
    return "" if instance.id in marks.pending or (known and known.rising) else f"{name} does not run"
