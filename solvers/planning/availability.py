"""The part of a service that must be left when a part of the fleet fails."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

Spread: TypeAlias = Literal["gpu", "node", "region"]


@dataclass(frozen=True, slots=True)
class UsedLoad:
    """The share of what its instances could carry that a service uses; the rest is kept for the loss of a node."""

    share: float = 1.0  # of the load that its SLO accepts
    most: float = inf  # utilization


ALL_LOAD = UsedLoad()


@dataclass(frozen=True, slots=True)
class Availability:
    """The rules of where a service's instances run. The defaults ask for nothing."""

    spread: Spread = "gpu"  # minInstances counts different ones
    survive_nodes: int = 0  # 1: without any one node the others carry the rate
    max_spot_share: float = 1.0  # of the rate, at most, on spot nodes

    def binds(self, min_instances: int) -> bool:
        """Returns whether it asks for more than different GPUs."""
        is_apart = self.spread != "gpu" and min_instances > 1
        return is_apart or self.survive_nodes > 0 or self.max_spot_share < 1


ANYWHERE = Availability()
