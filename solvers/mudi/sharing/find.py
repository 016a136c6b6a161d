"""Finds the smallest SM%: raised from the least, or searched for where some pressure falls with SM%."""

from __future__ import annotations

from solvers.mudi.sharing.closed import find_needed_percent
from solvers.mudi.sharing.fleet import SharedFleet
from solvers.mudi.sharing.problem import SharedGpu
from solvers.mudi.sharing.search import LeastShares, least_sum


def find(gpu: SharedGpu, work_limit: int) -> LeastShares:
    """Returns the valid SM% of least sum; `work_limit` counts boxes, and matters only where pressure falls with SM%.

    If no resident's pressure falls with SM%, more SM% for one resident never means less for another. Then the least
    fixed point has the smallest SM% of all valid answers for every resident at once (Knaster and Tarski), and if it
    does not fit, nothing does. Otherwise the fixed point is still valid, because every resident has what it needs
    next to the others' final SM%; only the search can show that an answer is the smallest.
    """
    if len(gpu.residents) == 1:
        return _alone(gpu)
    fleet = SharedFleet.of([gpu])
    raised = fleet.decide(fleet.most_exec_ms)
    percents = tuple(raised.percents.tolist())
    fits = raised.blocked[0] == 0 and sum(percents) <= gpu.free_percent
    if all(resident.presses_no_less_with_more for resident in gpu.residents):
        return LeastShares(percents if fits else None, sum(percents) if fits else None)
    return least_sum(gpu, work_limit, percents if fits else None)


def _alone(gpu: SharedGpu) -> LeastShares:
    """Returns what the only resident needs: no neighbour answers to its SM%, so that there is nothing to raise."""
    needed = find_needed_percent(gpu.residents[0], gpu.other_pressure)
    if needed is None or needed > gpu.free_percent:
        return LeastShares(None, None)
    return LeastShares((needed,), needed)
