"""What is placed and on what: requests, hosts, and the declared mix of requests that a policy may plan for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

GPU_MILLI = 1000  # one whole GPU


class WrongRequest(ValueError):
    """A request or host that no machine could be."""


@dataclass(frozen=True, slots=True, order=True)
class GpuRequest:
    """What one instance asks of its host: a part of one GPU, or whole GPUs, or none."""

    cpu_milli: int
    host_memory_mib: int
    gpu_milli: int = 0  # of each GPU
    gpus: int = 0

    def __post_init__(self) -> None:
        if self.cpu_milli < 0 or self.host_memory_mib < 0:
            raise WrongRequest(f"{self} asks for less than nothing")
        whole = self.gpus > 0 and self.gpu_milli == GPU_MILLI
        part = self.gpus == 1 and 0 < self.gpu_milli < GPU_MILLI
        if not (whole or part or (self.gpus == 0 and self.gpu_milli == 0)):
            raise WrongRequest(f"{self} asks for neither whole GPUs, nor a part of one GPU, nor none")

    @property
    def is_part(self) -> bool:
        """Whether it shares a GPU."""
        return 0 < self.gpu_milli < GPU_MILLI

    @property
    def total_gpu_milli(self) -> int:
        return self.gpu_milli * self.gpus


@dataclass(frozen=True, slots=True)
class Host:
    """A machine."""

    name: str
    cpu_milli: int
    host_memory_mib: int
    gpus: int

    def __post_init__(self) -> None:
        if self.cpu_milli < 0 or self.host_memory_mib < 0 or self.gpus < 0:
            raise WrongRequest(f"host {self.name} has less than nothing")


@dataclass(frozen=True)
class Workload:
    """The declared mix: how often each request is expected among those to come. Nothing of their order."""

    counts: tuple[tuple[GpuRequest, float], ...]

    @staticmethod
    def of(requests: Iterable[GpuRequest]) -> Workload:
        return Workload(tuple(sorted((request, float(count)) for request, count in Counter(requests).items())))

    @cached_property
    def pieces(self) -> tuple[tuple[int, float], ...]:
        """(milli of one GPU, how often): requests for several GPUs count once per GPU."""
        found: Counter[int] = Counter()
        for request, count in self.counts:
            if request.gpus:
                found[request.gpu_milli] += count * request.gpus  # type: ignore[assignment]
        return tuple(sorted(found.items()))

    def typical(self, popularity: float) -> tuple[tuple[GpuRequest, float], ...]:
        """The most frequent requests that together make this share of all, and their frequency among themselves.

        Host memory is left out of the comparison, as in FGD's simulator; ties go to the larger request."""
        alike: dict[tuple[int, int, int], float] = {}
        for request, count in self.counts:
            shape = (request.cpu_milli, request.gpu_milli, request.gpus)
            alike[shape] = alike.get(shape, 0.0) + count
        ranked = sorted(alike.items(), key=lambda entry: (entry[1], entry[0]), reverse=True)
        total = sum(alike.values())
        kept: list[tuple[tuple[int, int, int], float]] = []
        covered = 0.0
        for shape, count in ranked:
            if covered >= popularity * total:
                break
            kept.append((shape, count))
            covered += count
        return tuple((GpuRequest(cpu, 0, milli, gpus), count / covered) for (cpu, milli, gpus), count in kept)

    @cached_property
    def cpu_milli_per_gpu_milli(self) -> float:
        """What a GPU's worth of requests takes of the CPU, on average."""
        return self._per_gpu([(request.cpu_milli, request, count) for request, count in self.counts])

    @cached_property
    def host_memory_mib_per_gpu_milli(self) -> float:
        return self._per_gpu([(request.host_memory_mib, request, count) for request, count in self.counts])

    @staticmethod
    def _per_gpu(rows: list[tuple[int, GpuRequest, float]]) -> float:
        taken = sum(amount * count for amount, request, count in rows if request.gpus)
        gpu = sum(request.total_gpu_milli * count for _, request, count in rows)
        return taken / gpu if gpu else 0.0
