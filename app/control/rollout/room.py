"""Whether one more copy fits on a GPU beside all that holds something there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agents.contract import AssignedInstance
from app.control.domain.desired import NodeDesired
from app.control.rollout.changes import owner_of

TINY = 1e-6
MOST_CLIENTS = 60  # no MPS daemon takes more, whatever is asked for


@dataclass(frozen=True, slots=True)
class Lack:
    """Why something cannot be done now, and by how much."""

    reason: str
    message: str
    sm_percent: float = 0.0
    memory_gib: float = 0.0


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a GPU has, and how hand-overs go on its node."""

    memory_gib: float
    overlap: bool
    clients: int
    same_model: int
    jobs: int

    @staticmethod
    def of(wanted: NodeDesired, memory_gib: float, jobs: int) -> Gpu:
        clients = min(wanted.clients_per_gpu, MOST_CLIENTS)
        return Gpu(memory_gib, wanted.handover == "overlap", clients, wanted.same_model_per_gpu, jobs)


def lack(one: AssignedInstance, holding: Iterable[AssignedInstance], gpu: Gpu) -> Lack | None:
    """What a new copy of `one` lacks beside the copies that hold something; None when it fits.

    The copy that it replaces holds memory until it is gone; SMs count once in `overlap`; as client and model the two
    are one. A job's old copy ends before its new one begins, and so holds nothing against it.
    """
    there = list(holding)
    staying = [other for other in there if other.id != one.id]
    replaced = [other for other in there if other.id == one.id and not one.job]
    counted = staying if gpu.overlap else [*staying, *replaced]
    sm = sum(other.sm_percent for other in counted) + one.sm_percent - 100
    memory = sum(other.memory_gib for other in [*staying, *replaced]) + one.memory_gib - gpu.memory_gib
    if sm > TINY or memory > TINY:
        lacks = [f"{sm:g} SM%"] * (sm > TINY) + [f"{memory:.2f} GiB"] * (memory > TINY)
        beside = " beside the copy it replaces" if replaced else ""
        return Lack("no_room", f"needs {' and '.join(lacks)} more{beside}", max(sm, 0.0), max(memory, 0.0))
    return _company(one, staying, gpu)


def _company(one: AssignedInstance, staying: list[AssignedInstance], gpu: Gpu) -> Lack | None:
    if len({other.id for other in staying}) + 1 > gpu.clients:
        return Lack("too_many_clients", f"the GPU takes {gpu.clients} clients")
    same = {other.id for other in staying if other.service and one.model and other.model == one.model}
    if one.service and len(same) + 1 > gpu.same_model:
        return Lack("same_model", f"the GPU takes {gpu.same_model} instances of model {one.model}")
    if one.job and len({other.id for other in staying if other.job}) + 1 > gpu.jobs:
        return Lack("too_many_jobs", f"the GPU takes {gpu.jobs} jobs")
    stranger = next((other for other in staying if owner_of(other) != owner_of(one)), None)
    if stranger and (one.dedicated or any(other.dedicated for other in staying)):
        # Whoever reads this may not know what others run.
        name = stranger.id if stranger.tenant == one.tenant else "what another tenant runs"
        return Lack("dedicated", f"{name} is still on the GPU, and one of both wants it alone")
    return None


def over_full(instances: Iterable[AssignedInstance], gpu: Gpu) -> bool:
    """Whether these cannot all stand on the GPU, when nothing is handed over."""
    found: list[AssignedInstance] = []
    for one in instances:
        if lack(one, found, gpu):
            return True
        found.append(one)
    return False
