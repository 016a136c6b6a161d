"""Checks the steps that were assigned: done, under way, or failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, FleetStatus, InstanceStatus
from app.control.domain.events import Reason
from app.control.domain.specs import START_SECONDS
from app.control.rollout.capacity import serves
from app.control.rollout.changes import same_process
from app.control.rollout.rules import Leaving, PendingStep, RolloutRules

# Reasons to stop a copy that did not fail.
HARMLESS = ("replaced", "not_wanted", "made_room", "gpu_recycled")


@dataclass(frozen=True, slots=True)
class Checked:
    """The steps by progress. `failed` are instances that will not start, with the reason of the first."""

    pending: Mapping[str, PendingStep]
    leaving: Mapping[str, Leaving]
    failed: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""


def check(
    assigned: Desired,
    pending: Mapping[str, PendingStep],
    leaving: Mapping[str, Leaving],
    observed: FleetStatus,
    rules: RolloutRules,
    now: float,
) -> Checked:
    """Returns the steps that are not finished. The time of a silent node does not count until it is lost."""
    going = {
        id_: gone
        for id_, gone in leaving.items()
        if gone.node not in observed.lost and not _is_gone(id_, gone, observed)
    }
    if not pending:
        return Checked(pending, going)
    there = {
        instance.id: (node, instance)
        for node, wanted in assigned.items()
        for instance in wanted.instances
        if instance.id in pending
    }
    unfinished: dict[str, PendingStep] = {}
    failed: list[tuple[str, str, str]] = []
    for id_, step in sorted(pending.items()):
        if id_ not in there or there[id_][0] in observed.lost:
            continue
        node, instance = there[id_]
        patience = start_seconds(instance, node, rules)
        if node in observed.silent:
            unfinished[id_] = replace(step, since=now, held_since=0.0)
        elif step.before and same_process(step.before, instance):
            if not _is_current(node, observed):
                unfinished[id_] = step
        elif instance.job:
            if not _has_changed(instance, node, observed):
                unfinished[id_] = step
        elif not _is_settled(instance, node, step, observed, now, patience):
            unfinished[id_] = _watched(step, observed.instances.get(id_), _is_current(node, observed), now)
            why = _failure(unfinished[id_], observed.instances.get(id_), rules, now, patience)
            if why:
                failed.append((id_, why[0], f"{id_} on {node}/{instance.gpu}: {why[1]}"))
    if not failed:
        return Checked(unfinished, going)
    return Checked(unfinished, going, tuple(id_ for id_, _, _ in failed), failed[0][1], failed[0][2])


def _is_gone(id_: str, gone: Leaving, observed: FleetStatus) -> bool:
    status = observed.instances.get(id_)
    return _is_current(gone.node, observed) and (status is None or status.stage in ("", "gone"))


def _is_current(node: str, observed: FleetStatus) -> bool:
    """Returns whether the node has applied its last assignment."""
    return observed.generations.get(node, 0) >= observed.assigned_generations.get(node, 0)


def _is_settled(
    instance: AssignedInstance, node: str, step: PendingStep, observed: FleetStatus, now: float, start_seconds: float
) -> bool:
    """Returns whether it serves with the assigned process."""
    status = observed.instances.get(instance.id)
    if status is None or not _is_current(node, observed) or not serves(instance, node, observed) or status.copies > 1:
        return False
    was = step.before
    if was and (was.sm_percent, was.memory_gib) == (instance.sm_percent, instance.memory_gib):
        return now - step.since >= start_seconds  # the two copies cannot be distinguished here
    return _is_shaped(instance, status)


def _has_changed(job: AssignedInstance, node: str, observed: FleetStatus) -> bool:
    """Returns whether a job's old process has ended; the queue follows the new one."""
    status = observed.instances.get(job.id)
    return _is_current(node, observed) and (status is None or (status.copies <= 1 and _is_shaped(job, status)))


def _is_shaped(instance: AssignedInstance, status: InstanceStatus) -> bool:
    """Returns whether the serving copy has the assigned shape; a node that reports none is trusted."""
    return not status.sm_percent or (
        abs(status.sm_percent - instance.sm_percent) < 0.01 and abs(status.memory_gib - instance.memory_gib) < 0.01
    )


def _watched(step: PendingStep, status: InstanceStatus | None, is_current: bool, now: float) -> PendingStep:
    if status is None or not is_current or not status.reason or status.reason in HARMLESS:
        return replace(step, held_since=0.0)
    return step if step.held_since else replace(step, held_since=now)


def _failure(
    step: PendingStep, status: InstanceStatus | None, rules: RolloutRules, now: float, start_seconds: float
) -> tuple[str, str] | None:
    if status and step.held_since and now - step.held_since >= rules.held_seconds:
        return Reason.STEP_FAILED, f"{status.reason}: {status.message}" if status.message else status.reason
    limit = max(rules.least_seconds, rules.patience * start_seconds)
    if now - step.since >= limit:
        stage = f"is still {status.stage}" if status and status.stage else "has not been reported"
        return Reason.STEP_TIMED_OUT, f"it {stage} after {now - step.since:.0f} s"
    return None


def start_seconds(instance: AssignedInstance, node: str, rules: RolloutRules) -> float:
    return rules.start_seconds.get(instance.profile_key(rules.gpu_types.get(node, "")), START_SECONDS)
