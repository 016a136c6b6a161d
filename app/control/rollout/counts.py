"""Counts what runs of what is planned, for those who watch the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import CopyCounts, Desired, FleetStatus
from app.control.rollout.capacity import serves
from app.control.rollout.check import HARMLESS
from app.control.rollout.failing.falls import runs

PROBE_SECONDS = 10.0  # after downSeconds: a report later


WaitingCopy: TypeAlias = tuple[str, bool]  # the id of its instance, and whether it runs


@dataclass(frozen=True, slots=True)
class CopyMarks:
    """What is known of copies and services beside the reports of now."""

    pending: frozenset[str] = frozenset()  # instances that start, or whose turn in the rollout is still to come
    suspects: frozenset[str] = frozenset()  # services that fail wherever they are started
    waits: Mapping[WaitingCopy, float] = field(default_factory=dict)  # for how long it has got no requests


def find_waiting(
    before: Mapping[WaitingCopy, float], target: Desired, status: FleetStatus, now: float
) -> dict[WaitingCopy, float]:  # fmt: skip
    """Returns since when each planned copy runs and gets no requests, or does not run, although its node is heard."""
    return {
        copy: before.get(copy, now)
        for node, instance in _list_copies(target)
        if _is_heard(node, status) and not serves(instance, node, status)
        for copy in [(instance.id, runs(instance, node, status))]
    }


def list_unassigned(target: Desired, assigned: Desired) -> frozenset[str]:
    """Returns the ids of the planned copies whose nodes have not been told of them yet."""
    known = {(node, instance.id) for node, instance in _list_copies(assigned)}
    return frozenset(instance.id for node, instance in _list_copies(target) if (node, instance.id) not in known)


def count_copies(
    services: Iterable[str], target: Desired, status: FleetStatus, marks: CopyMarks, down_seconds: float
) -> Mapping[str, CopyCounts]:
    """Returns the counts of each of these services, also of one that has no copy."""
    found = {name: CopyCounts(is_suspect=name in marks.suspects) for name in services}
    for node, instance in _list_copies(target):
        if counts := found.get(instance.owner):
            found[instance.owner] = _add_copy(counts, instance, node, status, marks, down_seconds)
    return found


def _list_copies(target: Desired) -> Iterator[tuple[str, AssignedInstance]]:
    for node, wanted in target.items():
        for instance in wanted.instances:
            if instance.service:
                yield node, instance


def _add_copy(
    counts: CopyCounts, instance: AssignedInstance, node: str, status: FleetStatus, marks: CopyMarks,
    down_seconds: float,
) -> CopyCounts:  # fmt: skip
    is_running = _is_heard(node, status) and runs(instance, node, status)
    is_late = marks.waits.get((instance.id, is_running), 0.0) >= down_seconds + PROBE_SECONDS
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
    # Between two reports a copy that is handed over, or has just been assigned, may be in neither.
    is_starting = not is_late or instance.id in marks.pending or (known is not None and known.rising)
    return "" if is_starting else f"{name} does not run"
