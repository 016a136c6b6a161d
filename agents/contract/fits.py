"""Decides whether another copy fits on a GPU next to the copies already there: one rule for node and planner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from agents.contract.assignments import AssignedInstance

TOLERANCE = 1e-6  # SM% and GiB
MOST_CLIENTS = 60  # no MPS daemon takes more (48 up to CUDA 13.0)


class Allowed(Protocol):
    """An assignment, or what a plan wants of a node."""

    @property
    def handover(self) -> str: ...
    @property
    def clients_per_gpu(self) -> int: ...
    @property
    def same_model_per_gpu(self) -> int: ...


@dataclass(frozen=True, slots=True)
class GpuRules:
    """The limits that an assignment sets for each GPU of its node."""

    overlap: bool = True  # during a hand-over both copies may run, and their SMs count once
    clients_per_gpu: int = 48
    same_model_per_gpu: int = 1

    @staticmethod
    def of(allowed: Allowed) -> GpuRules:
        clients = min(allowed.clients_per_gpu, MOST_CLIENTS)
        return GpuRules(allowed.handover == "overlap", clients, allowed.same_model_per_gpu)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The reason that keeps a copy off a GPU, and the room that it lacks there."""

    reason: str
    message: str
    sm_percent: float = 0.0
    memory_gib: float = 0.0


def find_shortfall(
    wanted: AssignedInstance, holding: Iterable[AssignedInstance], memory_gib: float, rules: GpuRules
) -> Shortfall | None:
    """Returns what a new copy of `wanted` lacks on a GPU of `memory_gib` next to the `holding` copies; None if it fits.

    A service's old copy, which the new one replaces, holds its memory until it is gone. Its SMs do not count in
    `overlap`, and it is no company: both are one client and one model. A job's old copy ends before its new one starts.
    """
    staying: list[AssignedInstance] = []
    replaced: list[AssignedInstance] = []
    for other in holding:
        if other.id != wanted.id:
            staying.append(other)
        elif not wanted.job:
            replaced.append(other)
    company = next((other for other in staying if other.is_wide or wanted.is_wide), None)
    if company is not None:
        # The reader may not know what other tenants run.
        name = company.id if company.tenant == wanted.tenant else "an instance of another tenant"
        message = f"{name} is still on the GPU, and one of the two needs it whole"
        return Shortfall("whole_gpus", message, min(100.0, company.sm_percent))
    sm = sum(other.sm_percent for other in staying) + wanted.sm_percent - 100
    if not rules.overlap:
        sm += sum(other.sm_percent for other in replaced)
    memory = sum(other.memory_gib for other in [*staying, *replaced]) + wanted.memory_gib - memory_gib
    if sm > TOLERANCE or memory > TOLERANCE:
        lacks = [f"{sm:g} SM%"] * (sm > TOLERANCE) + [f"{memory:.2f} GiB"] * (memory > TOLERANCE)
        reason, where = ("no_room_to_hand_over", " next to the copy it replaces") if replaced else ("no_room", "")
        return Shortfall(reason, f"needs {' and '.join(lacks)} more{where}", max(sm, 0.0), max(memory, 0.0))
    if len({other.id for other in staying}) + 1 > rules.clients_per_gpu:
        return Shortfall("too_many_clients", f"the GPU takes {rules.clients_per_gpu} clients")
    same = {other.id for other in staying if other.service and wanted.model and other.model == wanted.model}
    if wanted.service and len(same) + 1 > rules.same_model_per_gpu:
        return Shortfall("same_model", f"the GPU takes {rules.same_model_per_gpu} instances of model {wanted.model}")
    return None
