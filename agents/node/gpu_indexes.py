"""Fixes which device an index means when the device first appears, even if others fall off the bus later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agents.contract.assignments import Assignment
from agents.seams.device import GpuDevice


def extend_indexes(known: Mapping[int, str], found: Sequence[GpuDevice]) -> dict[int, str]:
    """Returns UUIDs by index: known ones stay; new devices follow in the order of their PCI addresses."""
    fixed = dict(known)
    there = set(fixed.values())
    for gpu in sorted(found, key=lambda gpu: (gpu.pci, gpu.index)):
        if gpu.uuid not in there:
            fixed[next(index for index in range(len(fixed) + 1) if index not in fixed)] = gpu.uuid
            there.add(gpu.uuid)
    return fixed


def assigned_indexes(known: Mapping[int, str], assignment: Assignment | None) -> dict[int, str]:
    """Returns UUIDs by index, with those that the assignment names taking precedence: it was planned for them."""
    assigned = {gpu.index: gpu.uuid for gpu in assignment.gpus if gpu.uuid} if assignment else {}
    return {**known, **assigned}
