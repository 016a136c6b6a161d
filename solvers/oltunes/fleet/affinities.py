"""The affinity of the instances of a fleet (O4), each pair computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from solvers.interference.affinity import compute_to_memory, variant_affinity, workload_affinity
from solvers.planning.offers import FleetShape
from solvers.planning.problem import Instance, Problem, Service

BEST_AFFINITY = 100.0  # with an empty GPU


class _Nature(NamedTuple):
    """What affinity tells apart of a variant at a batch on a GPU type."""

    ratio: float  # compute to memory (1)
    is_high: bool


class FleetAffinities:
    """The affinities of the variants of a problem."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._natures: dict[tuple[str, str, int, str], _Nature] = {}
        self._pairs: dict[tuple[_Nature, _Nature], float] = {}

    def find_mean(self, service: Service, shape: FleetShape, beside: Sequence[Instance]) -> float:
        """Returns the mean affinity of a shape with the instances on a GPU of its type."""
        if not beside:
            return BEST_AFFINITY
        gpu_type, total = shape.pool.gpu_type, 0.0
        own = self._nature(service.model, shape.variant, shape.batch, gpu_type)
        for line in beside:
            model = self._problem.services[line.service].model
            total += self._pair(own, self._nature(model, line.variant, line.batch, gpu_type))
        return total / len(beside)

    def _nature(self, model: str, variant: str, batch: int, gpu_type: str) -> _Nature:
        key = model, variant, batch, gpu_type
        if (nature := self._natures.get(key)) is None:
            ratio = compute_to_memory(self._problem.profiles[model, variant, gpu_type].latency_ms[batch])
            nature = self._natures[key] = _Nature(ratio, is_high(self._problem, model, variant))
        return nature

    def _pair(self, own: _Nature, other: _Nature) -> float:
        if (affinity := self._pairs.get((own, other))) is None:
            workload = workload_affinity(own.ratio, other.ratio)
            affinity = self._pairs[own, other] = (workload + variant_affinity(own.is_high, other.is_high)) / 2
        return affinity


def is_high(problem: Problem, model: str, variant: str) -> bool:
    """Returns whether a variant is in the upper half of its model's accuracies, as an only variant is."""
    accuracies = {entry.name: entry.accuracy for entry in problem.models[model]}
    return accuracies[variant] >= (min(accuracies.values()) + max(accuracies.values())) / 2
