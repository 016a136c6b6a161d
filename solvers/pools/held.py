"""Finds the cheapest servers with which a promise holds in a simulation, and not only by what they were planned with.

Planners err on either side, so a plan is also made for less or more than the rate, in steps. The cheapest one with
which the promise holds is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from solvers.pools.servers import SizedServers

FACTOR_STEP = 0.05  # of the rate, in the search for the cheapest plan that holds
MOST_FACTOR = 2.0
MOST_MISSES = 2  # in a row, then the search ends: costs fall in steps, and cheaper servers may hold what dearer do not
CENT = 0.01

Sizing: TypeAlias = Callable[[float], SizedServers | None]  # a rate to plan for -> servers
Judging: TypeAlias = Callable[[SizedServers], bool]  # whether the promise holds with them


@dataclass(frozen=True, slots=True)
class HeldServers:
    """Servers with which the promise holds, and the factor of the rate that they were planned for."""

    factor: float
    servers: SizedServers


def find_held(
    sizing: Sizing, judging: Judging, rate_per_second: float, least_factor: float = 1.0
) -> HeldServers | None:
    """Returns the cheapest servers found with which the promise holds; None if none do.

    The rate planned for rises until the promise holds. If it holds at once, that rate falls, down to this factor, and
    what costs less is tried, until it has missed twice in a row.
    """

    def judge_at(factor: float) -> HeldServers | None:
        servers = sizing(factor * rate_per_second)
        return HeldServers(factor, servers) if servers and judging(servers) else None

    best = judge_at(1.0)
    if best is None:
        return next(filter(None, map(judge_at, _list_factors(FACTOR_STEP, MOST_FACTOR))), None)
    misses = 0
    for factor in _list_factors(-FACTOR_STEP, least_factor):
        servers = sizing(factor * rate_per_second)
        if servers is None or servers.cost_per_hour > best.servers.cost_per_hour - CENT:
            continue
        is_kept = judging(servers)
        best, misses = (HeldServers(factor, servers), 0) if is_kept else (best, misses + 1)
        if misses == MOST_MISSES:
            break
    return best


def _list_factors(step: float, last: float) -> Iterator[float]:
    """Yields the factors from beside 1 to the last."""
    return (round(1 + number * step, 2) for number in range(1, 1 + round((last - 1) / step)))
