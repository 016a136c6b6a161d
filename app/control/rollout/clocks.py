"""Sets GPUs during a rollout: a higher clock comes first, a lower one waits until the higher is not needed.

A cap of watts is the operator's, not the plan's, so it applies at once in both directions.
"""

from __future__ import annotations

from collections.abc import Collection

from agents.contract.assignments import AssignedGpu, Frame
from app.control.domain.desired import NodeDesired


def raise_settings(was: AssignedGpu, shall: AssignedGpu) -> AssignedGpu:
    """Returns the settings that suffice for what the device serves now and for what it is to serve.

    No frame leaves the clock to the device: nothing stated counts as the most.
    """
    return AssignedGpu(shall.index, _higher(was.clock_mhz, shall.clock_mhz), shall.cap_w)


def settings(
    assigned: NodeDesired | None, target: NodeDesired, there: Collection[int], settled: Collection[int]
) -> tuple[AssignedGpu, ...]:
    """Returns the settings of a node's devices as they may be now.

    `there`: GPUs on which something runs or is assigned; `settled`: those on which all runs as it is to.
    """
    was = {gpu.index: gpu for gpu in assigned.gpus} if assigned else {}
    shall = {gpu.index: gpu for gpu in target.gpus}
    found = []
    for index in sorted({*was, *shall}):
        before, after = was.get(index), shall.get(index)
        if before is None or after is None:
            if after is not None or index in there:
                found.append(after or before)
        elif before == after or index in settled or index not in there:
            found.append(after)
        else:
            found.append(raise_settings(before, after))
    return tuple(gpu for gpu in found if gpu is not None)


def is_raised(assigned: NodeDesired | None, target: NodeDesired, index: int) -> bool:
    """Returns whether the device is already assigned the target's cap, and at least its clock."""
    was = next((gpu for gpu in assigned.gpus if gpu.index == index), None) if assigned else None
    shall = next((gpu for gpu in target.gpus if gpu.index == index), None)
    return was is None or shall is None or raise_settings(was, shall) == raise_settings(was, was)


def _higher(frame: Frame | None, other: Frame | None) -> Frame | None:
    if frame is None or other is None:
        return None
    return Frame(max(frame.planned, other.planned), max(frame.min, other.min), max(frame.max, other.max))
