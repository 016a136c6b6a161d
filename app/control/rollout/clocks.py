"""How GPUs are set on the way: a higher clock or cap goes first, a lower one waits until nobody needs the higher."""

from __future__ import annotations

from collections.abc import Collection

from agents.contract.assignments import AssignedGpu, Frame
from app.control.domain.desired import NodeDesired


def raised(was: AssignedGpu, shall: AssignedGpu) -> AssignedGpu:
    """The device set so that neither what it serves now nor what it shall serve lacks anything.

    Nothing stated is the most there is: no frame leaves the clock to the device, no cap leaves all its watts.
    """
    return AssignedGpu(shall.index, shall.uuid or was.uuid, _higher(was.clock_mhz, shall.clock_mhz), _more(was, shall))


def settings(
    told: NodeDesired | None, target: NodeDesired, there: Collection[int], settled: Collection[int]
) -> tuple[AssignedGpu, ...]:
    """The devices of a node as they may be set now.

    `there`: GPUs on which something runs or is told to; `settled`: those on which nothing runs but as it shall.
    """
    was = {gpu.index: gpu for gpu in told.gpus} if told else {}
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
            found.append(raised(before, after))
    return tuple(gpu for gpu in found if gpu is not None)


def is_raised(told: NodeDesired | None, target: NodeDesired, index: int) -> bool:
    """Whether the device is told to be at least as fast as it shall be."""
    was = next((gpu for gpu in told.gpus if gpu.index == index), None) if told else None
    shall = next((gpu for gpu in target.gpus if gpu.index == index), None)
    return was is None or shall is None or raised(was, shall) == raised(was, was)


def _higher(frame: Frame | None, other: Frame | None) -> Frame | None:
    if frame is None or other is None:
        return None
    return Frame(max(frame.planned, other.planned), max(frame.min, other.min), max(frame.max, other.max))


def _more(gpu: AssignedGpu, other: AssignedGpu) -> float | None:
    return None if gpu.cap_w is None or other.cap_w is None else max(gpu.cap_w, other.cap_w)
