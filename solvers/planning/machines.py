"""Machines of a planning problem: kinds of GPUs, and nodes with them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import Literal

from solvers.planning.indexes import are_rising


class WrongProblem(ValueError):
    """A problem that names something unknown, or holds a number that is not allowed."""


@dataclass(frozen=True, slots=True)
class GpuType:
    """A kind of GPU."""

    name: str
    memory_gib: float
    idle_w: float
    max_w: float
    clocks_mhz: tuple[float, ...]  # rising; profiles are taken at the last

    @property
    def top_clock_mhz(self) -> float:
        return self.clocks_mhz[-1]


@lru_cache(maxsize=4096)
def cap_type(kind: GpuType, cap_w: float) -> GpuType:
    """Returns the type as a GPU of it is that may draw only so many watts; its name and all else stay."""
    return kind if cap_w >= kind.max_w else replace(kind, max_w=cap_w)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with GPUs of one type; its price is that of one of them."""

    name: str
    gpu_type: str
    gpus: tuple[int, ...]  # the indexes that the node itself uses, rising; some may be missing
    cpu_cores: float
    host_memory_gib: float
    price_per_hour: float
    purchase: Literal["owned", "reserved", "onDemand", "spot"] = "onDemand"
    region: str = "default"
    templates: frozenset[str] | None = None  # None: all
    # What services there pay: the GPUs that they use, all of it, or nothing because something else pays for all of it.
    pricing: Literal["gpu", "node", "paid"] = "gpu"
    cell: str = ""  # the group of nodes that it belongs to, while services are divided
    linked_gpus: int = 0  # so many GPUs are linked with each other, counted from index 0; 0: all of them
    caps_w: tuple[float, ...] = ()  # watts that the operator allows each GPU, by its index; empty: as the type says

    def __post_init__(self) -> None:
        if not are_rising(self.gpus):
            raise WrongProblem(f"node {self.name} has GPUs {self.gpus}; indexes from 0 that rise are needed")
        if self.caps_w and self.gpus and len(self.caps_w) <= self.gpus[-1]:
            have, needed = len(self.caps_w), self.gpus[-1] + 1
            raise WrongProblem(f"node {self.name} has {have} caps of watts; one for each of {needed} GPUs is needed")
        if not all(0 < cap_w < inf for cap_w in self.caps_w):
            raise WrongProblem(f"node {self.name} has caps of {self.caps_w} W; watts over 0 are needed")

    @property
    def gpu_count(self) -> int:
        return len(self.gpus)

    def has_gpu(self, index: float) -> bool:
        """Returns whether one of its GPUs has this index, which may come from an untrusted plan."""
        at = bisect_left(self.gpus, index)
        return at < len(self.gpus) and self.gpus[at] == index

    def link_of(self, index: int) -> int:
        """Returns the number of the group of linked GPUs that this one is in."""
        return index // self.linked_gpus if self.linked_gpus else 0

    def type_at(self, index: int, kind: GpuType) -> GpuType:
        """Returns the type of one of its GPUs, with maxW lowered to that GPU's cap."""
        return cap_type(kind, self.caps_w[index]) if self.caps_w else kind

    def group_by_watts(self, kind: GpuType) -> list[tuple[float, tuple[int, ...]]]:
        """Returns its GPUs by the watts that they may draw at most, the fewest first."""
        if not self.caps_w:
            return [(kind.max_w, self.gpus)]
        most_w = {index: self.type_at(index, kind).max_w for index in self.gpus}
        return [(each, tuple(gpu for gpu in self.gpus if most_w[gpu] == each)) for each in sorted(set(most_w.values()))]

    @property
    def is_paid_anyway(self) -> bool:
        """Returns whether its GPUs cost a job nothing."""
        return self.purchase in ("owned", "reserved") or self.pricing == "paid"
