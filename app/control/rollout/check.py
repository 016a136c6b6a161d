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
# What a new copy goes through: its node gets the assignment, applies it, and brings the copy to serve.
STAGES = ("assigned", "applied", "starting", "verifying", "warming", "routing", "ready")


@dataclass(frozen=True, slots=True)
class StepFailure:
    """An instance whose copy did not start, and why."""

    instance: str
    reason: Reason  # STEP_TIMED_OUT: it is late; STEP_FAILED: its node cannot start it
    message: str


@dataclass(frozen=True, slots=True)
class Checked:
    """The steps by progress, and those that came to nothing."""

    pending: Mapping[str, PendingStep]
    leaving: Mapping[str, Leaving]
    failures: tuple[StepFailure, ...] = ()


def check(
    assigned: Desired,
    pending: Mapping[str, PendingStep],
    leaving: Mapping[str, Leaving],
    observed: FleetStatus,
    rules: RolloutRules,
    now: float,
) -> Checked:
    """Returns the steps that are not finished.

    A copy is late if it comes no further at its node for too long. The time of a silent node does not count until it
    is lost.
    """
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
    failures: list[StepFailure] = []
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
            if step.returns and now - step.since >= rules.leaving_seconds:
                continue
            status = observed.instances.get(id_)
            stage = _stage_of_new(step, instance, node, observed)
            watched = _watched(_progressed(step, stage, now), status, stage != "assigned", now)
            unfinished[id_] = watched
            if why := _failure(watched, stage, status, rules, now, patience):
                failures.append(StepFailure(id_, why[0], f"{id_} on {node}/{instance.gpu}: {why[1]}"))
    return Checked(unfinished, going, tuple(failures))


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


def _stage_of_new(step: PendingStep, instance: AssignedInstance, node: str, observed: FleetStatus) -> str:
    """Returns how far the copy that is to serve has come now, whatever the copy that it replaces does."""
    if not _is_current(node, observed):
        return "assigned"
    status = observed.instances.get(instance.id)
    if status is None:
        return "applied"
    stage = status.rising
    if not stage and (_is_first(step) or (status.copies > 1 and _is_shaped(instance, status))):
        stage = status.stage
    return stage if stage in STAGES else "applied"


def _is_first(step: PendingStep) -> bool:
    return step.before is None or step.is_new


def _progressed(step: PendingStep, stage: str, now: float) -> PendingStep:
    """Returns the step with the furthest stage that its new copy has reached: a restart is no progress."""
    reached = STAGES.index(stage)
    return replace(step, progress=reached, progress_at=now) if reached > step.progress else step


def _failure(
    step: PendingStep, stage: str, status: InstanceStatus | None, rules: RolloutRules, now: float, start_seconds: float
) -> tuple[Reason, str] | None:
    if step.returns:
        return None
    if status and step.held_since and now - step.held_since >= rules.held_seconds:
        return Reason.STEP_FAILED, f"{status.reason}: {status.message}" if status.message else status.reason
    limit = max(rules.least_seconds, rules.patience * start_seconds)
    if stage == "ready" and not _is_first(step):
        limit = max(limit, rules.leaving_seconds)  # the old copy is still answering its last requests
    if now - max(step.since, step.progress_at) >= limit:
        what = "it" if _is_first(step) else "its new copy"
        return Reason.STEP_TIMED_OUT, f"{_describe_stage(stage, what)} after {now - step.since:.0f} s"
    return None


def _describe_stage(stage: str, what: str) -> str:
    match stage:
        case "assigned":
            return "its node has not applied its assignment"
        case "applied":
            return f"{what} has not been reported"
        case "ready":
            return f"{what} is ready and does not serve alone"
        case _:
            return f"{what} is still {stage}"


def start_seconds(instance: AssignedInstance, node: str, rules: RolloutRules) -> float:
    return rules.start_seconds.get(instance.profile_key(rules.gpu_types.get(node, "")), START_SECONDS)
