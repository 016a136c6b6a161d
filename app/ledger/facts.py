"""The inputs of an allocation. Moments are whole microseconds since 1970, money is whole billionths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

HOUR = 3_600_000_000
QUARTER = HOUR // 4
FOREVER = 2**62  # later than any moment


@dataclass(frozen=True, slots=True)
class OwnedGpus:
    """The GPUs 0 .. gpus - 1 of a node, while they are paid for."""

    id: int
    gpus: int
    gpu_type: str
    region: str
    purchase: str
    memory_gib: float
    start: int
    stop: int = FOREVER


@dataclass(frozen=True, slots=True)
class GpuRate:
    """The price of a GPU's hour, while it is in force."""

    nano_per_hour: int
    start: int
    stop: int = FOREVER


@dataclass(frozen=True, slots=True)
class Usage:
    """A share of a GPU, its holder and its time. From `stop` to `doubted` it is unknown whether the holder ran."""

    id: str
    instance: str
    gpu: int
    tenant: str
    service: str
    job: str
    model: str
    sm_percent: float
    memory_gib: float
    dedicated: bool
    start: int
    stop: int
    doubted: int = 0


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """All that is known of a node in a time. After `reported_at`, its last report, nothing is certain."""

    owned: Sequence[OwnedGpus]
    rates: Mapping[tuple[str, str, str], Sequence[GpuRate]]  # by GPU type, region, purchase
    usage: Sequence[Usage]
    reported_at: int = FOREVER
    energy_mj: Mapping[tuple[int, int], int] = field(default_factory=dict)  # by slice and GPU, where it was measured
    pricing: str = "gpu"  # of the policy: `node` bills some nodes whole


class AllocationLine(NamedTuple):
    """A holder of a GPU in a slice."""

    slice: int
    gpu: int
    owned: int
    instance: str
    tenant: str
    service: str
    job: str
    model: str
    kind: str  # used, idle, unallocated
    evidence: str  # measured, gap


@dataclass(slots=True)
class AllocatedAmount:
    """The amounts of a line."""

    gpu_microseconds: int = 0
    nano: int = 0
    energy_mj: int | None = None

    def add(self, gpu_microseconds: int, nano: int) -> None:
        self.gpu_microseconds += gpu_microseconds
        self.nano += nano
