"""The scaling problem: how many instances of each type one service should start or stop (HetSev, section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from solvers.proof import Proof


class WrongScaling(ValueError):
    """A problem with an invalid number or name."""


@dataclass(frozen=True, slots=True)
class ScalingPromise:
    """HetSev's SLO: at least `sl_min_percent` of the requests must be answered within `rt_max_ms`."""

    rt_max_ms: float
    sl_min_percent: float = 98.0

    def __post_init__(self) -> None:
        if not self.rt_max_ms > 0:
            raise WrongScaling(f"rt_max_ms {self.rt_max_ms:g} is not over 0")
        if not 0 < self.sl_min_percent <= 100:
            raise WrongScaling(f"sl_min_percent {self.sl_min_percent:g} is outside 0..100")


@dataclass(frozen=True, slots=True)
class InstanceType:
    """The throughput and cost of one instance of the service on one GPU type, as profiled."""

    name: str
    throughput_per_second: float  # T
    exec_ms: float  # L
    gpu_memory_gib: float
    price_per_gib: float  # per hour and GiB of GPU memory held
    launch_seconds: float = 0.0  # O
    running: int = 0  # N
    most: int | None = None  # the room on GPUs of this type, in place of the paper's sums over types, constraint (2)

    @property
    def cost_per_hour(self) -> float:
        """C: HetSev bills the GPU memory that an instance holds (section 6.3)."""
        return self.price_per_gib * self.gpu_memory_gib


@dataclass(frozen=True)
class ScalingProblem:
    """The arrivals of one service, and the instance types that can serve them."""

    arrivals_per_second: float  # W
    promise: ScalingPromise
    types: tuple[InstanceType, ...]
    unpredictability: float = 0.0  # lambda: the weight of a second of launching
    unserved_price: float = 1000.0  # per unserved request a second: no arrival rate makes the model infeasible

    def __post_init__(self) -> None:
        if not 0 <= self.arrivals_per_second < float("inf"):
            raise WrongScaling(f"arrivalsPerSecond {self.arrivals_per_second:g} is not a finite number of 0 or more")
        names = [kind.name for kind in self.types]
        if len(set(names)) != len(names):
            raise WrongScaling(f"two instance types share a name: {', '.join(names)}")
        for kind in self.types:
            if not kind.throughput_per_second > 0 or not kind.cost_per_hour >= 0 or kind.running < 0:
                needed = "a throughput over 0, a cost of 0 or more and a count of 0 or more"
                raise WrongScaling(f"instance type {kind.name} needs {needed}")

    def keeps_promise(self, kind: InstanceType) -> bool:
        """HetSev, constraint (4): the profiled time is within the SLO. A type that breaks it serves nothing."""
        return kind.exec_ms <= self.promise.rt_max_ms


Actions = Mapping[str, int]
"""The number of instances to start (positive) or stop (negative), by type; missing types stay as they are."""


@dataclass(frozen=True, slots=True)
class ScalingBudget:
    """The branch-and-bound nodes that the exact solver may use: 0 skips it, None lets it run until it has a proof."""

    nodes: int | None = None
    solver: str = "ortools"  # or cbc


@dataclass(frozen=True, slots=True)
class ScalingOutcome:
    """The actions, the requests a second that they leave unserved, and the proof."""

    actions: Actions
    unserved_per_second: float
    proof: Proof
