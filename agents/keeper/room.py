"""Decides whether one more copy fits on a GPU next to those whose process may still hold something there."""

from __future__ import annotations

from collections.abc import Collection

from agents.contract.assignments import AssignedInstance
from agents.contract.fits import TOLERANCE, GpuRules, Shortfall, find_shortfall
from agents.keeper.copies import NodeCopy, Stage

HOLD_NOTHING = (Stage.SWAPPED, Stage.GONE)


def missing(
    wanted: AssignedInstance, memory_gib: float, copies: Collection[NodeCopy], rules: GpuRules
) -> Shortfall | None:
    """Returns what `wanted` lacks on a GPU of `memory_gib`; None if it fits.

    A copy holds what its process was given until its memory is known to be free.
    """
    holding = (copy.wanted for copy in copies if copy.stage not in HOLD_NOTHING)
    return find_shortfall(wanted, holding, memory_gib, rules)


def excess_sm_percent(copies: Collection[NodeCopy]) -> float:
    """Returns by how many SM% the limits on one GPU exceed 100 now; 0 if they do not."""
    excess = sum(copy.wanted.sm_percent for copy in copies if copy.stage not in HOLD_NOTHING) - 100
    return excess if excess > TOLERANCE else 0.0
