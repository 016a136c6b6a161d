"""Takes back a failed step: the instance that it was to replace never stopped serving."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, NodeDesired
from app.control.rollout.changes import with_instance
from app.control.rollout.room import GpuLimits, shortfall_on
from app.control.rollout.rules import Leaving, PendingStep, RolloutRules, RolloutState


def taken_back(
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
            after[node] = with_instance(after[node], instance.id, was)
    canaries = {key: canary for key, canary in state.canaries.items() if canary.instance not in failed}
    return after, replace(state, pending=pending, leaving=leaving, canaries=canaries)


def _fits(was: AssignedInstance, node: str, wanted: NodeDesired, rules: RolloutRules) -> bool:
    limits = GpuLimits.of(wanted, rules.memory_gib.get(node, 0.0), rules.jobs_per_gpu)
    return all(
        shortfall_on(limits, was, [line for line in wanted.instances if gpu in line.all_gpus]) is None
        for gpu in was.all_gpus
    )
