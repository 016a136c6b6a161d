"""Answers failed steps: a copy that is late starts once more; after that its component stops, and all else goes on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from app.control.domain.desired import Desired
from app.control.domain.events import Reason
from app.control.rollout.changes import changes, components
from app.control.rollout.check import StepFailure
from app.control.rollout.falls import note_falls
from app.control.rollout.keeping import without_instances
from app.control.rollout.rules import FailedStep, RolloutNotice, RolloutRules, RolloutState
from app.control.rollout.taking_back import taken_back
from app.control.rollout.ties import under_way

STARTS = (Reason.STEP_FAILED, Reason.STEP_TIMED_OUT)  # a copy did not start; it may be why its service fails anywhere


@dataclass(frozen=True, slots=True)
class StoppedSteps:
    """The fleet after its failed steps were taken back. `target` lacks the changes that were tied to them."""

    assigned: Desired
    target: Desired
    state: RolloutState
    retried: tuple[StepFailure, ...] = ()
    stopped: tuple[StepFailure, ...] = ()
    failed: tuple[FailedStep, ...] = ()  # those of what stopped
    notices: tuple[RolloutNotice, ...] = ()

    @property
    def is_over(self) -> bool:
        """Returns whether no other change remains."""
        is_busy = self.state.canaries or any(not step.returns for step in self.state.pending.values())
        return bool(self.stopped) and not is_busy and not changes(self.assigned, self.target)


def stop_failed(
    target: Desired,
    assigned: Desired,
    state: RolloutState,
    failures: Sequence[StepFailure],
    rules: RolloutRules,
    now: float,
) -> StoppedSteps:
    """Takes failed steps back. A copy that is late for the first time starts again; other failures are left out."""
    retried = tuple(failure for failure in failures if _has_another_try(failure, state))
    stopped = tuple(failure for failure in failures if failure not in retried)
    ids = {failure.instance for failure in stopped}
    left_out = _tied_to(ids, target, assigned, state) if ids else set()
    fallen = {failure.instance for failure in stopped if failure.reason is Reason.INSTANCE_DOWN}
    fallen |= {id_ for id_, spell in state.down.items() if not spell.up_since}  # their old shape would not run either
    after, state = taken_back(assigned, state, [failure.instance for failure in failures], fallen, rules, now)
    state = replace(state, retried=(*state.retried, *(failure.instance for failure in retried)))
    if not ids:
        return StoppedSteps(after, target, state, retried)
    owners = _owners(assigned, target, left_out)
    state, notices = _note_failed_starts(assigned, state, stopped, now)
    return StoppedSteps(
        assigned=after,
        target=without_instances(target, after, left_out),
        state=replace(state, left_out=tuple(sorted({*state.left_out, *owners}))),
        retried=retried,
        stopped=stopped,
        failed=_failed_steps(assigned, stopped),
        notices=notices,
    )


def _has_another_try(failure: StepFailure, state: RolloutState) -> bool:
    return failure.reason is Reason.STEP_TIMED_OUT and failure.instance not in state.retried


def _tied_to(ids: Collection[str], target: Desired, assigned: Desired, state: RolloutState) -> set[str]:
    """Returns these instances, and those whose changes share a component with theirs: by GPUs and services."""
    todo = changes(assigned, target)
    waiting = {change.id for change in todo}
    found = set(ids)
    for part in components([*todo, *under_way(assigned, state, ids)]):
        if any(change.id in ids for change in part):
            found |= {change.id for change in part} & waiting
    return found


def _failed_steps(assigned: Desired, stopped: Sequence[StepFailure]) -> tuple[FailedStep, ...]:
    """Returns what failed. A canary fails by its shape and a job by itself; a copy of a service may start elsewhere."""
    reasons = {failure.instance: failure.reason for failure in stopped}
    found = [
        FailedStep(line.owner, (node, line.gpu) if line.service and reason is not Reason.CANARY_FAILED else None)
        for node, wanted in sorted(assigned.items())
        for line in wanted.instances
        if (reason := reasons.get(line.id))
    ]
    return tuple(dict.fromkeys(found))


def _note_failed_starts(
    assigned: Desired, state: RolloutState, stopped: Sequence[StepFailure], now: float
) -> tuple[RolloutState, tuple[RolloutNotice, ...]]:
    """Notes where services could not start, next to where their copies fell later."""
    reasons = {failure.instance: failure.message for failure in stopped if failure.reason in STARTS}
    fallen = [
        (line, (node, line.gpu))
        for node, wanted in sorted(assigned.items())
        for line in wanted.instances
        if line.service and line.id in reasons
    ]
    return note_falls(state, fallen, reasons, now)


def _owners(assigned: Desired, target: Desired, ids: Collection[str]) -> tuple[str, ...]:
    """Returns the services and jobs of these instances."""
    everywhere = [*assigned.values(), *target.values()]
    return tuple(sorted({line.owner for wanted in everywhere for line in wanted.instances if line.id in ids}))
