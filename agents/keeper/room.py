"""Whether one more copy fits on a GPU beside those that hold something there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from agents.contract import AssignedInstance, Assignment
from agents.keeper.copies import NodeCopy, Stage

TINY = 1e-6
MOST_CLIENTS = 60  # no MPS daemon takes more (48 up to CUDA 13.0), whatever is asked for


@dataclass(frozen=True, slots=True)
class Rules:
    """What the assignment says of hand-overs and company."""

    overlap: bool = True
    handover_seconds: float = 120.0
    clients_per_gpu: int = 48
    same_model_per_gpu: int = 1

    @staticmethod
    def of(assignment: Assignment) -> Rules:
        return Rules(
            assignment.handover == "overlap",
            assignment.handover_seconds,
            min(assignment.clients_per_gpu, MOST_CLIENTS),
            assignment.same_model_per_gpu,
        )


@dataclass(frozen=True, slots=True)
class Missing:
    """What a copy lacks on its GPU; `passing` when it comes free by itself."""

    reason: str
    message: str
    sm_percent: float = 0.0
    memory_gib: float = 0.0


def missing(wanted: AssignedInstance, memory_gib: float, there: Collection[NodeCopy], rules: Rules) -> Missing | None:
    """What `wanted` lacks on a GPU of `memory_gib`, where `there` hold something; None when it fits.

    A copy holds what its process was given until its memory is known to be free. The copy that a new one replaces
    does not count for SMs in `overlap`, nor ever as company: the two are one client and one model.
    """
    others = [copy for copy in there if copy.stage is not Stage.GONE]
    replaced = [copy for copy in others if copy.instance == wanted.id]
    staying = [copy for copy in others if copy.instance != wanted.id]
    memory = sum(copy.wanted.memory_gib for copy in others) + wanted.memory_gib - memory_gib
    sm = sum(copy.wanted.sm_percent for copy in (staying if rules.overlap else others)) + wanted.sm_percent - 100
    if memory > TINY or sm > TINY:
        lacks = [f"{sm:g} SM%"] * (sm > TINY) + [f"{memory:.2f} GiB"] * (memory > TINY)
        beside = " beside the copy it replaces" if replaced else ""
        message = f"needs {' and '.join(lacks)} more{beside}"
        return Missing("no_room_to_hand_over" if replaced else "no_room", message, max(sm, 0.0), max(memory, 0.0))
    if len({copy.instance for copy in staying}) + 1 > rules.clients_per_gpu:
        return Missing("too_many_clients", f"the GPU takes {rules.clients_per_gpu} clients")
    same = {copy.instance for copy in staying if wanted.model and copy.wanted.model == wanted.model and copy.served}
    if wanted.service and len(same) + 1 > rules.same_model_per_gpu:
        return Missing("same_model", f"the GPU takes {rules.same_model_per_gpu} instances of model {wanted.model}")
    return None


def over_full(there: Collection[NodeCopy]) -> float:
    """By how many SM% the limits on one GPU pass 100 now; 0 when they do not."""
    total = sum(copy.wanted.sm_percent for copy in there if copy.stage is not Stage.GONE)
    return total - 100 if total - 100 > TINY else 0.0
