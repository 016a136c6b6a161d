"""Finds the smallest SM%: raised from the least, or searched for where some pressure falls with SM%."""

from __future__ import annotations

from dataclasses import dataclass

from solvers.mudi.sharing.closed import needed_percent
from solvers.mudi.sharing.fleet import Raised, SharedFleet
from solvers.mudi.sharing.problem import SharedGpu
from solvers.mudi.sharing.search import Ends, least_sum

LEAST_FIXED_POINT = "least fixed point"
SEARCH = "search over boxes"


@dataclass(frozen=True, slots=True)
class FoundShares:
    """SM% in the order of the residents, None if none were found, with the bound that was proved."""

    percents: Ends | None
    bound_percent: int | None  # None: there is no valid answer
    method: str
    work: int


def find(gpu: SharedGpu, work_limit: int) -> FoundShares:
    """Returns the valid SM% of least sum.

    If no resident's pressure falls with SM%, more SM% for one resident never means less for another. Then the least
    fixed point has the smallest SM% of all valid answers for every resident at once (Knaster and Tarski), and if it
    does not fit, nothing does. Otherwise the fixed point is still valid, because every resident has what it needs
    next to the others' final SM%; only the search can show that an answer is the smallest.
    """
    if len(gpu.residents) == 1:
        return _alone(gpu)
    raised = raise_gpu(gpu)
    percents = tuple(raised.percents.tolist())
    fits = raised.blocked[0] == 0 and sum(percents) <= gpu.free_percent
    if all(resident.presses_no_less_with_more for resident in gpu.residents):
        return FoundShares(percents if fits else None, sum(percents) if fits else None, LEAST_FIXED_POINT, 0)
    claim = least_sum(gpu, work_limit, percents if fits else None)
    return FoundShares(claim.percents, claim.bound_percent, SEARCH, claim.work)


def _alone(gpu: SharedGpu) -> FoundShares:
    """Returns what the only resident needs: no neighbour answers to its SM%, so that there is nothing to raise."""
    needed = needed_percent(gpu.residents[0], gpu.other_pressure)
    if needed is None or needed > gpu.free_percent:
        return FoundShares(None, None, LEAST_FIXED_POINT, 0)
    return FoundShares((needed,), needed, LEAST_FIXED_POINT, 0)


def raise_gpu(gpu: SharedGpu) -> Raised:
    fleet = SharedFleet.of([gpu])
    return fleet.decide(fleet.most_exec_ms)
