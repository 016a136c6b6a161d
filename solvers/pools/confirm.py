"""Confirms servers by simulation: plans for more than the rate until the promise holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from solvers.pools.servers import SizedServers

FACTOR_STEP = 0.05  # of the rate
MOST_FACTOR = 2.0

S = TypeVar("S", bound=SizedServers)
ChooseServers: TypeAlias = Callable[[float], S | None]  # a rate to plan for -> servers
KeepsPromise: TypeAlias = Callable[[SizedServers], bool]


@dataclass(frozen=True, slots=True)
class ConfirmedServers(Generic[S]):
    """Servers with which the promise holds, and the factor of the rate that they were planned for."""

    factor: float
    servers: S

    @property
    def price_per_hour(self) -> float:
        return self.servers.cost_per_hour


def confirm_servers(
    choose: ChooseServers[S], keeps_promise: KeepsPromise, rate_per_second: float
) -> ConfirmedServers[S] | None:
    """Returns the first servers with which the promise holds, of plans for the rate and then more; None if none do."""
    for number in range(1 + round((MOST_FACTOR - 1) / FACTOR_STEP)):
        factor = round(1 + number * FACTOR_STEP, 2)
        servers = choose(factor * rate_per_second)
        if servers is not None and keeps_promise(servers):
            return ConfirmedServers(factor, servers)
    return None
