"""Requests, hosts, and the declared mix of requests that a policy may plan for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

GPU_MILLI = 1000  # one whole GPU


class WrongRequest(ValueError):
    """A request or a host that cannot exist."""


@dataclass(frozen=True, slots=True, order=True)
class GpuRequest:
    """The resources that one instance needs of its host, with a part of one GPU, whole GPUs, or none."""

    cpu_milli: int
    host_memory_mib: int
    gpu_milli: int = 0  # of each GPU
    gpus: int = 0
    gpu_types: tuple[str, ...] = ()  # it runs on these only; empty: on all

    def __post_init__(self) -> None:
        if self.cpu_milli < 0 or self.host_memory_mib < 0:
            raise WrongRequest(f"{self} has an amount below 0")
        whole = self.gpus > 0 and self.gpu_milli == GPU_MILLI
        part = self.gpus == 1 and 0 < self.gpu_milli < GPU_MILLI
        if not (whole or part or (self.gpus == 0 and self.gpu_milli == 0)):
            raise WrongRequest(f"{self} must request whole GPUs, a part of one GPU, or none")

    @property
    def is_part(self) -> bool:
        """True if the request shares a GPU with others."""
        return 0 < self.gpu_milli < GPU_MILLI

    @property
    def total_gpu_milli(self) -> int:
        return self.gpu_milli * self.gpus


@dataclass(frozen=True, slots=True)
class Host:
    """A machine with its CPU, memory and GPUs of one type."""

    name: str
    cpu_milli: int
    host_memory_mib: int
    gpus: int
    gpu_type: str = ""

    def __post_init__(self) -> None:
        if self.cpu_milli < 0 or self.host_memory_mib < 0 or self.gpus < 0:
            raise WrongRequest(f"host {self.name} has an amount below 0")


@dataclass(frozen=True)
class Workload:
    """The declared mix: how often each request is expected, without any order."""

    counts: tuple[tuple[GpuRequest, float], ...]

    @staticmethod
    def count(requests: Iterable[GpuRequest]) -> Workload:
        return Workload(tuple(sorted((request, float(count)) for request, count in Counter(requests).items())))

    @cached_property
    def pieces(self) -> tuple[tuple[int, float], ...]:
        """Pairs of milli of one GPU and frequency; a request for several GPUs counts once per GPU."""
        found: Counter[int] = Counter()
        for request, count in self.counts:
            if request.gpus:
                found[request.gpu_milli] += count * request.gpus  # type: ignore[assignment]
        return tuple(sorted(found.items()))

    def typical(self, popularity: float) -> tuple[tuple[GpuRequest, float], ...]:
        """Returns the most frequent requests that make up this share of all, with their relative frequency.

        Host memory is ignored in the comparison, as in FGD's simulator; ties go to the larger request."""
        alike: dict[tuple[int, int, int, tuple[str, ...]], float] = {}
        for request, count in self.counts:
            shape = (request.cpu_milli, request.gpu_milli, request.gpus, request.gpu_types)
            alike[shape] = alike.get(shape, 0.0) + count
        ranked = sorted(alike.items(), key=lambda entry: (entry[1], entry[0]), reverse=True)
        total = sum(alike.values())
        typical: list[tuple[tuple[int, int, int, tuple[str, ...]], float]] = []
        covered = 0.0
        for shape, count in ranked:
            if covered >= popularity * total:
                break
            typical.append((shape, count))
            covered += count
        return tuple(
            (GpuRequest(cpu, 0, milli, gpus, gpu_types), count / covered)
            for (cpu, milli, gpus, gpu_types), count in typical
        )

    @cached_property
    def cpu_milli_per_gpu_milli(self) -> float:
        """The CPU that requests use per milli of GPU, on average."""
        return self._divide_by_gpus([(request.cpu_milli, request, count) for request, count in self.counts])

    @cached_property
    def host_memory_mib_per_gpu_milli(self) -> float:
        return self._divide_by_gpus([(request.host_memory_mib, request, count) for request, count in self.counts])

    @staticmethod
    def _divide_by_gpus(rows: list[tuple[int, GpuRequest, float]]) -> float:
        taken = sum(amount * count for amount, request, count in rows if request.gpus)
        gpu = sum(request.total_gpu_milli * count for _, request, count in rows)
        return taken / gpu if gpu else 0.0
