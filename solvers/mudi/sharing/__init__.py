"""Finds the smallest SM% that meet the SLOs of services that share a GPU, or says which cannot fit and what helps."""

from __future__ import annotations

from solvers.mudi.sharing.answer import NoRoom, Outcome, SharingRelaxation, SmShares
from solvers.mudi.sharing.explain import no_room
from solvers.mudi.sharing.find import find
from solvers.mudi.sharing.judge import violations
from solvers.mudi.sharing.problem import SharedGpu, SharingResident, WrongSharing, two_piece
from solvers.proof import Proof, below, must_be_right

__all__ = [
    "NoRoom",
    "Outcome",
    "SharedGpu",
    "SharingRelaxation",
    "SharingResident",
    "SmShares",
    "WrongSharing",
    "share",
    "two_piece",
]


def share(gpu: SharedGpu, work_limit: int = 2000) -> Outcome:
    """Returns the SM% of least sum. `work_limit` counts boxes; it matters only if some pressure falls with SM%."""
    found = find(gpu, work_limit)
    if found.percents is None or found.bound_percent is None:
        return no_room(gpu, found, work_limit)
    percents = dict(zip((resident.name for resident in gpu.residents), found.percents, strict=True))
    must_be_right(found.method, violations(gpu, percents))
    total = sum(found.percents)
    bound = int(below(found.bound_percent, total, found.method))
    return SmShares(percents, Proof(total, bound, found.method, found.work))
