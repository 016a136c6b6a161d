"""The policies that choose a host: ours, and the two it is measured against. Data only; kernels.py runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lab.baselines.online.workload import Workload


@dataclass(frozen=True)
class LeastWaste:
    """Our policy: chooses the place that adds least to the capacity expected to stay unused.

    A host's waste is, over its GPUs, the free part that no request of the declared mix is expected to fill (waste.py),
    plus the part that its CPU or host memory could not serve, at several assumed appetites per GPU. That table sees
    each GPU alone; what several whole GPUs on one host are worth, and GPUs of a type that requests name, is FGD's
    fragmentation, weighted by GPUs instead of requests. A GPU of a type that the mix overbooks is kept for the requests
    that name it (scarcity.py). The policy knows the declared mix, never the order of arrivals."""

    workload: Workload
    draws: int = 50
    shortage_weight: float = 0.5
    appetites: tuple[float, ...] = (0.7, 1.0, 1.3)  # x the mix's mean CPU and host memory per GPU
    unusable_weight: float = 0.2  # of the part that a request of the mix could not use
    hold_back: float | None = None
    """Refuses a request, even if it fits, that would waste more than this share of the GPU it requests.
    That pays only if demand exceeds capacity (rehearsal.py tries it); None places every request that fits."""


@dataclass(frozen=True)
class Fragmentation:
    """FGD (Weng et al., ATC'23): the place that adds least expected fragmentation, rounded as by its simulator."""

    workload: Workload
    popularity: float = 0.95


@dataclass(frozen=True)
class BestFit:
    """The place that leaves least free CPU and GPU, equally weighted, with the rounding of FGD's simulator."""

    most_cpu_milli: int = 128_000
    most_gpu_milli: int = 8_000


Policy: TypeAlias = LeastWaste | Fragmentation | BestFit
