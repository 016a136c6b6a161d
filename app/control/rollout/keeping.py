"""Removes changes from a target: their instances stay as assigned."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, NodeDesired
from app.control.rollout.changes import NOTHING
from app.control.rollout.clocks import raise_settings


def keep_owners(target: Desired, assigned: Desired, owners: Collection[str]) -> dict[str, NodeDesired]:
    """Returns the target, except that the instances of these owners stay as assigned."""
    return _keeping(target, assigned, lambda instance: instance.owner in owners)


def keep_instances(target: Desired, assigned: Desired, ids: Collection[str]) -> dict[str, NodeDesired]:
    """Returns the target, except that these instances stay as assigned."""
    return _keeping(target, assigned, lambda instance: instance.id in ids)


def _keeping(target: Desired, assigned: Desired, stays: Callable[[AssignedInstance], bool]) -> dict[str, NodeDesired]:
    found: dict[str, NodeDesired] = {}
    for node in sorted({*assigned, *target}):
        before, after = assigned.get(node, NOTHING), target.get(node)
        swapped = [line for line in before.swapped if stays(line)]
        swapped += [line for line in (after.swapped if after else ()) if not stays(line)]
        waiting = tuple(sorted(swapped, key=lambda line: line.id))
        if after is not None and before.instances == after.instances:
            found[node] = after if waiting == after.swapped else replace(after, swapped=waiting)
            continue
        retained = [instance for instance in before.instances if stays(instance)]
        wanted = [instance for instance in (after.instances if after else ()) if not stays(instance)]
        if retained or waiting or after is not None:
            found[node] = replace(_together(before, after or before, retained, wanted), swapped=waiting)
    return found


def _together(
    before: NodeDesired, after: NodeDesired, retained: list[AssignedInstance], wanted: list[AssignedInstance]
) -> NodeDesired:
    was = {gpu.index: gpu for gpu in before.gpus}
    shall = {gpu.index: gpu for gpu in after.gpus}
    for index in {gpu for instance in retained for gpu in instance.all_gpus} & was.keys():
        shall[index] = raise_settings(was[index], shall[index]) if index in shall else was[index]
    lines = sorted([*retained, *wanted], key=lambda instance: instance.id)
    return replace(after, instances=tuple(lines), gpus=tuple(shall[index] for index in sorted(shall)))
