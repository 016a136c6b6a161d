"""Checks whether the assigned steps are done, under way or failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agents.contract.assignments import AssignedInstance
from agents.contract.fields import ADAPTER_NOT_LOADED, GATEWAY_BEHIND
from app.control.domain.desired import Desired, FleetStatus, InstanceStatus
from app.control.domain.events import Reason
from app.control.rollout.capacity import serves
from app.control.rollout.changes import same_process
from app.control.rollout.failing.starts import SeenStarts, start_limit, start_seconds
from app.control.rollout.reporting import forgive_silence, is_current, last_report
from app.control.rollout.rules import LaggingNode, Leaving, PendingStep, RolloutRules

# Reasons of copies that did not fail.
HARMLESS = ("replaced", "not_wanted", "made_room", "gpu_recycled", "not_swapped", GATEWAY_BEHIND, ADAPTER_NOT_LOADED)
# What a new copy goes through: its node gets the assignment, applies it, and brings the copy to serve.
STAGES = ("assigned", "applied", "starting", "verifying", "warming", "routing", "ready")


@dataclass(frozen=True, slots=True)
class StepFailure:
    """An instance whose change was not made, and why."""

    instance: str
    reason: Reason  # STEP_TIMED_OUT: it is late; STEP_FAILED: its node cannot start it
    message: str


@dataclass(frozen=True, slots=True)
class Checked:
    """The steps by progress, and those that failed."""

    pending: Mapping[str, PendingStep]
    leaving: Mapping[str, Leaving]
    failures: tuple[StepFailure, ...] = ()
    longest_starts: Mapping[str, float] = field(default_factory=dict)  # by key of a profile, seconds


def check(
    assigned: Desired,
    pending: Mapping[str, PendingStep],
    leaving: Mapping[str, Leaving],
    observed: FleetStatus,
    rules: RolloutRules,
    now: float,
    lagging: Mapping[str, LaggingNode],
    seen: SeenStarts,
) -> Checked:
    """Returns the steps that are not finished.

    A step is late if it comes no further at its node for too long, by that node's own reports. After a silence its time
    begins again, but not for ever. `lagging` nodes have yet to apply their last assignment.
    """
    going = {
        id_: replace(gone, waits_for=_read_wait(observed.instances.get(id_)))
        for id_, gone in leaving.items()
        if gone.node not in observed.lost and not _is_gone(id_, gone, observed)
    }
    if not pending:
        return Checked(pending, going, longest_starts=seen.longest)
    there = {
        instance.id: (node, instance)
        for node, wanted in assigned.items()
        for instance in wanted.instances
        if instance.id in pending
    }
    unfinished: dict[str, PendingStep] = {}
    failures: list[StepFailure] = []
    longest = dict(seen.longest)
    for id_, before in sorted(pending.items()):
        if id_ not in there or there[id_][0] in observed.lost:
            continue
        node, instance = there[id_]
        step = forgive_silence(before, node, observed, rules)
        if node in observed.silent:
            unfinished[id_] = replace(step, held_since=0.0)
            continue
        # What a node has reported says nothing of the time after it.
        look = _Look(instance, node, observed, rules, last_report(node, observed, now), lagging.get(node), seen)
        if rest := _check_unfinished(step, look):
            why = _failure(rest, look)
            if why and _is_first(rest) and _serves_alone(instance, node, assigned, observed):
                continue  # in a shape other than assigned, but a bad copy is better than none
            unfinished[id_] = rest
            if why:
                failures.append(StepFailure(id_, why[0], f"{id_} on {node}/{instance.gpu}: {why[1]}"))
        elif instance.service and _is_first(step) and not step.returns:
            longest[look.key] = max(longest.get(look.key, 0.0), look.at - step.since)
    return Checked(unfinished, going, tuple(failures), longest)


def _serves_alone(instance: AssignedInstance, node: str, assigned: Desired, observed: FleetStatus) -> bool:
    """Returns whether it serves and no other copy of its service does."""
    return serves(instance, node, observed) and not any(
        line.service and line.owner == instance.owner and line.id != instance.id and serves(line, name, observed)
        for name, wanted in assigned.items()
        for line in wanted.instances
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """An instance with a pending step as its node has reported it."""

    instance: AssignedInstance
    node: str
    observed: FleetStatus
    rules: RolloutRules
    at: float  # when its node reported
    behind: LaggingNode | None
    seen: SeenStarts

    @property
    def status(self) -> InstanceStatus | None:
        return self.observed.instances.get(self.instance.id)

    @property
    def is_current(self) -> bool:
        return is_current(self.node, self.observed)

    @property
    def start_seconds(self) -> float:
        return start_seconds(self.instance, self.node, self.rules)

    @property
    def limit(self) -> float:
        return start_limit(self.instance, self.node, self.rules, self.seen)

    @property
    def key(self) -> str:
        return self.instance.profile_key(self.rules.gpu_types.get(self.node, ""))


def _check_unfinished(step: PendingStep, look: _Look) -> PendingStep | None:
    """Returns the step with its progress; None if it is finished, or was taken back and is no longer waited for."""
    patience = look.rules.leaving_seconds
    if step.before and same_process(step.before, look.instance):
        is_finished, patience = look.is_current, look.limit
    elif look.instance.job:
        is_finished = _has_changed(look)
    else:
        is_finished = _is_settled(look, step)
    if is_finished or (step.returns and look.at - step.since >= patience):
        return None
    stage = _stage_of_new(step, look)
    step = _note_progress(step, stage, look.at)
    if (waits_for := _read_wait(look.status)) or step.waits_for:  # its time begins once the gateway has followed
        step = replace(step, waits_for=waits_for, progress_at=look.at)
    return step if look.instance.job else _watch(step, look.status, stage != "assigned", look.at)


def _read_wait(status: InstanceStatus | None) -> str:
    """Returns the sentence about the gateway for which an instance's old copy waits; empty if it waits for none."""
    return status.message if status and status.reason == GATEWAY_BEHIND else ""


def _is_gone(id_: str, gone: Leaving, observed: FleetStatus) -> bool:
    status = observed.instances.get(id_)
    stages = ("", "gone", "swapped") if gone.swaps else ("", "gone")
    return is_current(gone.node, observed) and (status is None or status.stage in stages)


def _is_settled(look: _Look, step: PendingStep) -> bool:
    """Returns whether it serves with the assigned process."""
    instance, status = look.instance, look.status
    if status is None or not look.is_current or not serves(instance, look.node, look.observed) or status.copies > 1:
        return False
    was = step.before
    if was and (was.sm_percent, was.memory_gib) == (instance.sm_percent, instance.memory_gib):
        return look.at - step.since >= look.start_seconds  # the two copies cannot be distinguished here
    return _is_shaped(instance, status)


def _has_changed(look: _Look) -> bool:
    """Returns whether a job's old process has ended; the queue follows the new one."""
    job, status = look.instance, look.status
    return look.is_current and (status is None or (status.copies <= 1 and _is_shaped(job, status)))


def _is_shaped(instance: AssignedInstance, status: InstanceStatus) -> bool:
    """Returns whether the serving copy has the assigned shape; a node that reports none is trusted."""
    return not status.sm_percent or (
        abs(status.sm_percent - instance.sm_percent) < 0.01 and abs(status.memory_gib - instance.memory_gib) < 0.01
    )


def _watch(step: PendingStep, status: InstanceStatus | None, is_current: bool, now: float) -> PendingStep:
    if status is None or not is_current or not status.reason or status.reason in HARMLESS:
        return replace(step, held_since=0.0)
    return step if step.held_since else replace(step, held_since=now)


def _stage_of_new(step: PendingStep, look: _Look) -> str:
    """Returns how far the copy that is to serve has come now, whatever the copy that it replaces does."""
    if not look.is_current:
        return "assigned"
    instance, status = look.instance, look.status
    if status is None or instance.job:
        return "applied"
    stage = status.rising
    if not stage and (_is_first(step) or (status.copies > 1 and _is_shaped(instance, status))):
        stage = status.stage
    return stage if stage in STAGES else "applied"


def _is_first(step: PendingStep) -> bool:
    return step.before is None or step.is_new


def _note_progress(step: PendingStep, stage: str, now: float) -> PendingStep:
    """Returns the step with the furthest stage that its new copy has reached: a restart is no progress."""
    reached = STAGES.index(stage)
    return replace(step, progress=reached, progress_at=now) if reached > step.progress else step


def _failure(step: PendingStep, look: _Look) -> tuple[Reason, str] | None:
    if step.returns:
        return None
    status, stage, at = look.status, _stage_of_new(step, look), look.at
    if status and step.held_since and at - step.held_since >= look.rules.held_seconds:
        return Reason.STEP_FAILED, f"{status.reason}: {status.message}" if status.message else status.reason
    is_ending = look.instance.job and stage != "assigned"
    limit = look.limit
    if is_ending or (stage == "ready" and not _is_first(step)):
        limit = max(limit, look.rules.leaving_seconds)  # the old copy is still answering its last requests
    # A node to which much is assigned may apply one assignment after the other and always be behind.
    since = max(step.since, step.progress_at, look.behind.since if look.behind else 0.0)
    if at - since >= limit:
        what = "it" if _is_first(step) else "its new copy"
        why = "its old process has not ended" if is_ending else _describe_stage(stage, what)
        return Reason.STEP_TIMED_OUT, f"{why} after {at - step.since:.0f} s"
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
