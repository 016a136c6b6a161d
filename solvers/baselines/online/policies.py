"""The rules by which a host is chosen: ours, and the two it is measured against. Data only; kernels.py runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from solvers.baselines.online.workload import Workload


@dataclass(frozen=True)
class LeastWaste:
    """Ours: the place whose use adds least to the capacity that will stay unused.

    A host's waste is, over its GPUs, what of their free part no request of the declared mix is expected to fill
    (waste.py), and what of it its CPU or host memory could not serve, at several assumed appetites per GPU.
    The declared mix is planned for, never the order of arrivals."""

    workload: Workload
    draws: int = 50
    shortage_weight: float = 0.5
    appetites: tuple[float, ...] = (0.7, 1.0, 1.3)  # x the mix's mean CPU and host memory per GPU
    hold_back: float | None = None
    """Leave a request out, even where it fits, if it would waste more than this share of the GPU it asks for.
    Worth it only where more is asked for than there is; None places whatever fits."""


@dataclass(frozen=True)
class Fragmentation:
    """FGD (Weng et al., ATC'23): the place that raises the expected fragmentation least, as its simulator rounds it."""

    workload: Workload
    popularity: float = 0.95


@dataclass(frozen=True)
class BestFit:
    """The place that leaves least free CPU and GPU, equally weighted, as FGD's simulator rounds it."""

    most_cpu_milli: int = 128_000
    most_gpu_milli: int = 8_000


Policy: TypeAlias = LeastWaste | Fragmentation | BestFit
