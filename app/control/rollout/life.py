"""Replaces one plan's rollout by another: a newer plan takes over, or an earlier plan is restored."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from app.control.domain.decision import HeldBackChange
from app.control.domain.desired import Desired
from app.control.domain.events import Reason
from app.control.domain.snapshot import NodeStatus
from app.control.rollout.keeping import keep_owners
from app.control.rollout.ordering.finding import order
from app.control.rollout.rules import RolloutOrder, RolloutRules, RolloutState


def begin(before: RolloutState, assigned: Desired, target: Desired, rules: RolloutRules) -> RolloutState:
    """Returns the state in which a plan takes over: pending steps stay pending, even those of another plan.

    The order is searched again from the assignments, which need not be what the plan before wanted.
    """
    wanted = {instance.id for node in target.values() for instance in node.instances}
    return replace(
        before,
        sequence=order(assigned, target, rules).sequence,
        steps=0,
        retried=tuple(id_ for id_ in before.retried if id_ in wanted),
        left_out=(),
        waited_seconds=0.0,
        freed=(),
    )


def restart_clocks(state: RolloutState, since: float) -> RolloutState:
    """Returns the state after a time in which nothing could be reported or seen: every older clock begins at `since`.

    So nothing counts as late, missing or proven by what was last reported before.
    """
    return replace(
        state,
        pending={
            id_: replace(step, since=since, held_since=0.0) if step.since < since else step
            for id_, step in state.pending.items()
        },
        leaving={id_: replace(gone, since=max(gone.since, since)) for id_, gone in state.leaving.items()},
        canaries={
            key: replace(
                canary,
                ready_since=canary.ready_since and max(canary.ready_since, since),
                tried_since=canary.tried_since and max(canary.tried_since, since),
            )
            for key, canary in state.canaries.items()
        },
        lagging={node: replace(behind, since=max(behind.since, since)) for node, behind in state.lagging.items()},
        down={
            id_: replace(spell, since=max(spell.since, since), up_since=spell.up_since and max(spell.up_since, since))
            for id_, spell in state.down.items()
        },
        stuck_since=state.stuck_since and max(state.stuck_since, since),
    )


def roll_back(
    earlier: Desired, assigned: Desired, nodes: Mapping[str, NodeStatus], declared: Collection[str], rules: RolloutRules
) -> RolloutOrder:
    """Returns the steps back to what an earlier plan wanted, as far as that is possible.

    What has been declared since stays as assigned, what has been deleted since does not come back, and what ran on a
    GPU that may not be used any more is held back. A job that waited in host memory then and waits there now goes on
    waiting.
    """
    was = {instance.owner for wanted in earlier.values() for instance in wanted.instances}
    since = {instance.owner for wanted in assigned.values() for instance in wanted.instances} - was
    waiting = set(_waiting(assigned, nodes))
    target = keep_owners(earlier, assigned, since & set(declared))
    target = {
        node: replace(
            wanted,
            instances=tuple(instance for instance in wanted.instances if instance.owner in declared),
            swapped=tuple(line for line in wanted.swapped if line.id in waiting and line.owner in declared),
        )
        for node, wanted in target.items()
    }
    gone = {held.service: held for held in _homeless(target, assigned, nodes)}
    found = order(assigned, keep_owners(target, assigned, gone), rules)
    return replace(found, stuck=(*gone.values(), *found.stuck))


def _waiting(assigned: Desired, nodes: Mapping[str, NodeStatus]) -> Iterator[str]:
    """Yields the instances of jobs that wait in host memory, but where their GPU is drained."""
    for node, wanted in assigned.items():
        leaving = nodes[node].draining_gpus if node in nodes else ()
        yield from (line.id for line in wanted.swapped if set(leaving).isdisjoint(line.all_gpus))


def _homeless(target: Desired, assigned: Desired, nodes: Mapping[str, NodeStatus]) -> Iterator[HeldBackChange]:
    """Yields the owners of what would have to start where nothing may start."""
    for node, wanted in sorted(target.items()):
        facts = nodes.get(node)
        there = {instance.id for instance in assigned[node].instances} if node in assigned else set()
        for instance in wanted.instances:
            if instance.id in there:
                continue
            if facts is None or facts.state != "reporting":
                state = facts.state if facts else "not declared"
                yield HeldBackChange(
                    instance.owner, Reason.NODE_SILENT, f"{instance.id} ran on {node}, which is {state}"
                )
            elif {*facts.failed_gpus, *facts.cordoned_gpus, *facts.draining_gpus}.intersection(instance.all_gpus):
                yield HeldBackChange(
                    instance.owner,
                    Reason.CORDONED,
                    f"{instance.id} ran on {node}/{instance.gpu}, which may not be used now",
                )
