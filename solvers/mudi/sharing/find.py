"""The smallest SM% by the way that fits the problem: raised from the least, or searched where pressure may fall."""

from __future__ import annotations

from dataclasses import dataclass

from solvers.mudi.sharing.fleet import Raised, SharedFleet
from solvers.mudi.sharing.problem import SharedGpu
from solvers.mudi.sharing.search import Ends, least_sum

LEAST_FIXED_POINT = "least fixed point"
SEARCH = "search over boxes"


@dataclass(frozen=True, slots=True)
class FoundShares:
    """SM% in the order of the residents, None where none were found, and how much that says."""

    percents: Ends | None
    bound_percent: int | None  # None: there is no right answer
    method: str
    work: int


def find(gpu: SharedGpu, work_limit: int) -> FoundShares:
    """The right SM% of least sum.

    Where no resident's pressure falls with SM%, more SM% for one never means less for another: of all right answers,
    the least fixed point has the smallest SM% for everyone at once (Knaster and Tarski), and where it does not fit,
    nothing does. Elsewhere an answer is right all the same, as everyone has at least what it needs beside the others
    as they are in the end; that it is the smallest is known once the search says so.
    """
    raised = raise_one(gpu)
    percents = tuple(raised.percents.tolist())
    fits = raised.blocked[0] == 0 and sum(percents) <= gpu.free_percent
    if all(resident.presses_no_less_with_more for resident in gpu.residents):
        return FoundShares(percents if fits else None, sum(percents) if fits else None, LEAST_FIXED_POINT, 0)
    claim = least_sum(gpu, work_limit, percents if fits else None)
    return FoundShares(claim.percents, claim.bound_percent, SEARCH, claim.work)


def raise_one(gpu: SharedGpu) -> Raised:
    fleet = SharedFleet.of([gpu])
    return fleet.decide(fleet.most_exec_ms)
