"""Chooses how readily to hold back, by rehearsing arrivals drawn from the declared mix on the empty fleet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean

from lab.baselines.online.fleet import OnlineFleet
from lab.baselines.online.policies import LeastWaste
from lab.baselines.online.workload import GPU_MILLI, GpuRequest, Host

HOLD_BACK_SHARES = (None, 0.05, 0.1, 0.2, 0.4)
REHEARSALS = 2


def draw_arrivals(
    kinds: Sequence[GpuRequest], counts: Sequence[float], gpu_milli: float, random: Random
) -> Iterator[GpuRequest]:
    """Draws requests from a mix until they ask for this much GPU."""
    drawn = 0.0
    while drawn < gpu_milli:
        for request in random.choices(kinds, counts, k=1000):
            drawn += request.total_gpu_milli
            yield request
            if drawn >= gpu_milli:
                return


def rehearse(hosts: Sequence[Host], policy: LeastWaste, demand_share: float, seed: int = 0) -> LeastWaste:
    """Returns the policy with the hold-back that allocates most in rehearsals, at this demand per capacity."""
    kinds = [request for request, _ in policy.workload.counts]
    counts = [count for _, count in policy.workload.counts]
    if not any(request.gpus for request in kinds):
        return policy
    wanted = demand_share * sum(host.gpus for host in hosts) * GPU_MILLI
    orders = [Random(seed + number) for number in range(REHEARSALS)]  # noqa: S311 (not for secrets)
    drawn = [list(draw_arrivals(kinds, counts, wanted, order)) for order in orders]

    def allocated(share: float | None) -> float:
        candidate = replace(policy, hold_back=share)
        fleets = [OnlineFleet(hosts, candidate, kinds) for _ in drawn]
        for fleet, arrivals in zip(fleets, drawn, strict=True):
            for request in arrivals:
                fleet.place(request)
        return fmean(fleet.allocated_gpu_milli() for fleet in fleets)

    return replace(policy, hold_back=max(HOLD_BACK_SHARES, key=allocated))
