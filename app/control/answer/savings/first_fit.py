"""Places instances by first fit, the largest first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from solvers.planning.fleet.offers import FleetShape
from solvers.planning.problem import Policy, Problem, Service

TOLERANCE_SHARE = 1e-9


@dataclass(frozen=True, slots=True)
class BaselineInstance:
    """An instance of a baseline on the `gpu`-th GPU of its type."""

    service: str
    shape: FleetShape
    gpu: int


@dataclass(slots=True)
class _OpenGpu:
    """A GPU that is being filled."""

    sm_percent: int = 0
    memory_gib: float = 0.0
    clients: int = 0
    is_dedicated: bool = False
    models: Counter[str] = field(default_factory=Counter)

    def fits(self, service: Service, shape: FleetShape, whole_gib: float, policy: Policy) -> bool:
        return not (
            self.sm_percent + shape.sm_percent > 100
            or self.memory_gib + shape.memory_gib > whole_gib * (1 + TOLERANCE_SHARE)
            or self.clients >= policy.clients_per_gpu
            or self.models[service.model] >= policy.same_model_per_gpu
            or self.is_dedicated
            or (service.is_dedicated and self.clients)
        )

    def take(self, service: Service, shape: FleetShape) -> None:
        self.sm_percent += shape.sm_percent
        self.memory_gib += shape.memory_gib
        self.clients += 1
        self.models[service.model] += 1
        self.is_dedicated = service.is_dedicated


def first_fit(problem: Problem, wanted: Iterable[tuple[Service, FleetShape]]) -> list[BaselineInstance]:
    """Places each on the first GPU of its type with room by SMs, memory, model and clients."""
    open_gpus: dict[str, list[_OpenGpu]] = defaultdict(list)
    found = []
    for service, shape in sorted(wanted, key=lambda manifest: (-manifest[1].share, manifest[0].name)):
        whole_gib, gpus = problem.gpu_types[shape.pool.gpu_type].memory_gib, open_gpus[shape.pool.gpu_type]
        fitting = (n for n, gpu in enumerate(gpus) if gpu.fits(service, shape, whole_gib, problem.policy))
        number = next(fitting, len(gpus))
        if number == len(gpus):
            gpus.append(_OpenGpu())
        gpus[number].take(service, shape)
        found.append(BaselineInstance(service.name, shape, number))
    return found
