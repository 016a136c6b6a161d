"""Answers failed steps: a copy that is late starts once more; after that its component stops, and all else goes on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, NodeDesired
from app.control.domain.events import Reason
from app.control.domain.failures import PlaceFailure
from app.control.rollout.changes import changes, components, put_instance
from app.control.rollout.check import StepFailure
from app.control.rollout.failing.suspects import note_failures
from app.control.rollout.keeping import keep_instances
from app.control.rollout.room import GpuLimits, shortfall_on
from app.control.rollout.rules import Leaving, PendingStep, RolloutNotice, RolloutRules, RolloutState
from app.control.rollout.ties import list_under_way


@dataclass(frozen=True, slots=True)
class StoppedSteps:
    """The fleet after its failed steps were taken back. `target` lacks the changes that were tied to them."""

    assigned: Desired
    target: Desired
    state: RolloutState
    retried: tuple[StepFailure, ...] = ()
    stopped: tuple[StepFailure, ...] = ()
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
    left_out = _find_tied(ids, target, assigned, state) if ids else set()
    fallen = {failure.instance for failure in stopped if failure.reason is Reason.INSTANCE_DOWN}
    fallen |= {id_ for id_, spell in state.down.items() if not spell.up_since}  # their old shape would not run either
    after, state = take_back(assigned, state, [failure.instance for failure in failures], fallen, rules, now)
    state = replace(state, retried=(*state.retried, *(failure.instance for failure in retried)))
    if not ids:
        return StoppedSteps(after, target, state, retried)
    owners = _owners(assigned, target, left_out)
    state, suspected = note_failures(state, _find_failures(assigned, stopped, now), now)
    return StoppedSteps(
        assigned=after,
        target=keep_instances(target, after, left_out),
        state=replace(state, left_out=tuple(sorted({*state.left_out, *owners}))),
        retried=retried,
        stopped=stopped,
        notices=(*_tell_falls(assigned, stopped), *suspected),
    )


def _has_another_try(failure: StepFailure, state: RolloutState) -> bool:
    return failure.reason is Reason.STEP_TIMED_OUT and failure.instance not in state.retried


def _find_tied(ids: Collection[str], target: Desired, assigned: Desired, state: RolloutState) -> set[str]:
    """Returns these instances, and those whose changes share a component with theirs: by GPUs and services."""
    todo = changes(assigned, target)
    waiting = {change.id for change in todo}
    found = set(ids)
    for part in components([*todo, *list_under_way(assigned, state, ids)]):
        if any(change.id in ids for change in part):
            found |= {change.id for change in part} & waiting
    return found


def _find_failures(
    assigned: Desired, stopped: Sequence[StepFailure], now: float
) -> Iterator[tuple[PlaceFailure, str]]:  # fmt: skip
    """Yields what failed. A canary fails by its shape and a job by itself; a copy of a service may start elsewhere."""
    for node, line, failure in _match_failures(assigned, stopped):
        is_of_place = line.service and failure.reason is not Reason.CANARY_FAILED
        yield PlaceFailure(line.owner, (node, line.gpu) if is_of_place else None, now), failure.message


def _tell_falls(assigned: Desired, stopped: Sequence[StepFailure]) -> Iterator[RolloutNotice]:
    """Yields the notices about copies that had run."""
    for _, line, failure in _match_failures(assigned, stopped):
        if failure.reason is Reason.INSTANCE_DOWN:
            yield RolloutNotice(failure.reason, failure.message, line.owner)


def _match_failures(
    assigned: Desired, stopped: Sequence[StepFailure]
) -> Iterator[tuple[str, AssignedInstance, StepFailure]]:  # fmt: skip
    """Yields each failure with its instance and node."""
    failures = {failure.instance: failure for failure in stopped}
    for node, wanted in sorted(assigned.items()):
        for line in wanted.instances:
            if failure := failures.get(line.id):
                yield node, line, failure


def _owners(assigned: Desired, target: Desired, ids: Collection[str]) -> tuple[str, ...]:
    """Returns the services and jobs of these instances."""
    everywhere = [*assigned.values(), *target.values()]
    return tuple(sorted({line.owner for wanted in everywhere for line in wanted.instances if line.id in ids}))


def take_back(
    assigned: Desired, state: RolloutState, failed: Collection[str], fallen: Collection[str], rules: RolloutRules,
    now: float,
) -> tuple[dict[str, NodeDesired], RolloutState]:  # fmt: skip
    """Returns the fleet without the failed: a new instance is removed, a reshaped one gets its old shape back.

    One that has `fallen` is removed in any shape.
    """
    after: dict[str, NodeDesired] = dict(assigned)
    pending, leaving = dict(state.pending), dict(state.leaving)
    on_trial = {canary.instance: canary.before for canary in state.canaries.values()}
    for node, wanted in assigned.items():
        for instance in wanted.instances:
            if instance.id not in failed:
                continue
            step = pending.pop(instance.id, None)
            was = (None if step.is_new else step.before) if step else on_trial.get(instance.id)
            if instance.id in fallen:
                was = None
            if was is None:
                leaving[instance.id] = Leaving(node, instance, now)
            elif step is None and not _fits(was, node, wanted, rules):
                continue  # its old shape no longer has room, and a bad copy is better than none
            else:
                pending[instance.id] = PendingStep(now, instance, returns=True)
            after[node] = put_instance(after[node], instance.id, was)
    canaries = {key: canary for key, canary in state.canaries.items() if canary.instance not in failed}
    return after, replace(state, pending=pending, leaving=leaving, canaries=canaries)


def _fits(was: AssignedInstance, node: str, wanted: NodeDesired, rules: RolloutRules) -> bool:
    limits = GpuLimits.of(wanted, rules.memory_gib.get(node, 0.0), rules.jobs_per_gpu)
    return all(
        shortfall_on(limits, was, [line for line in wanted.instances if gpu in line.all_gpus]) is None
        for gpu in was.all_gpus
    )
