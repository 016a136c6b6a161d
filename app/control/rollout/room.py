"""Decides whether one more copy fits on a GPU: by the node's own rule, and by facts that only the planner knows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agents.contract.assignments import AssignedInstance
from agents.contract.fits import GpuRules, Shortfall, find_shortfall
from app.control.domain.desired import NodeDesired


@dataclass(frozen=True, slots=True)
class GpuLimits:
    """The limits of a GPU: its memory, and how many clients, jobs and models it takes."""

    memory_gib: float
    rules: GpuRules
    jobs: int

    @staticmethod
    def of(wanted: NodeDesired, memory_gib: float, jobs: int) -> GpuLimits:
        return GpuLimits(memory_gib, GpuRules.of(wanted), jobs)


def shortfall_on(gpu: GpuLimits, new: AssignedInstance, holding: Iterable[AssignedInstance]) -> Shortfall | None:
    """Returns what a copy of `new` lacks next to the copies that hold something on the GPU; None if it fits."""
    there = list(holding)
    return find_shortfall(new, there, gpu.memory_gib, gpu.rules) or _company(gpu, new, there)


def _company(gpu: GpuLimits, new: AssignedInstance, there: list[AssignedInstance]) -> Shortfall | None:
    staying = [other for other in there if other.id != new.id]
    if new.job and len({other.id for other in staying if other.job}) + 1 > gpu.jobs:
        return Shortfall("too_many_jobs", f"the GPU takes {gpu.jobs} jobs")
    stranger = next((other for other in staying if other.owner != new.owner), None)
    if stranger and (new.dedicated or any(other.dedicated for other in staying)):
        # The reader may not know what other tenants run.
        name = stranger.id if stranger.tenant == new.tenant else "an instance of another tenant"
        return Shortfall("dedicated", f"{name} is still on the GPU, and one of the two needs it alone")
    return None


def is_over_full(instances: Iterable[AssignedInstance], gpu: GpuLimits) -> bool:
    """Returns whether these cannot all run on the GPU while nothing is handed over."""
    found: list[AssignedInstance] = []
    for instance in instances:
        if shortfall_on(gpu, instance, found):
            return True
        found.append(instance)
    return False
