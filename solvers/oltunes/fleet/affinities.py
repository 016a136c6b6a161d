"""The affinity of a shape with what runs on the GPUs of a fleet (O4), for many GPUs at once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from solvers.interference.affinity import compute_to_memory, variant_affinity, workload_affinity
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.fleet.offers import FleetShape
from solvers.planning.problem import Instance, Problem, Service

BEST_AFFINITY = 100.0  # with an empty GPU
DIGITS = 6  # that machines agree on
HIGH, LOW = 0, 1
VARIANTS = np.array([[variant_affinity(mine, other) for other in (True, False)] for mine in (True, False)])


class FleetAffinities:
    """The natures of all instances, by GPU: their ratios of compute to memory (1), and whether variants are high."""

    def __init__(self, problem: Problem, gpus: int) -> None:
        self._problem = problem
        self._natures: dict[tuple[str, str, int, str], tuple[float, int]] = {}
        self._ratios = np.zeros((gpus, problem.policy.clients_per_gpu))
        self._variants = np.zeros((gpus, problem.policy.clients_per_gpu), dtype=np.int64)
        self._counts = np.zeros(gpus, dtype=np.int64)

    def note(self, number: int, lines: Iterable[Instance]) -> None:
        """States what runs on a GPU."""
        natures = [self._nature(line.service, line.variant, line.batch, self._type_of(line)) for line in lines]
        self._counts[number] = len(natures)
        if (more := len(natures) - self._ratios.shape[1]) > 0:  # a policy that came later allows fewer
            none = np.zeros((len(self._counts), more))
            self._ratios = np.hstack((self._ratios, none))
            self._variants = np.hstack((self._variants, none.astype(np.int64)))
        for at, (ratio, variant) in enumerate(natures):
            self._ratios[number, at], self._variants[number, at] = ratio, variant

    def find_means(self, service: Service, shape: FleetShape, numbers: Ints) -> Floats:
        """Returns the mean affinity of a shape with the instances on each of these GPUs of its type."""
        ratio, variant = self._nature(service.name, shape.variant, shape.batch, shape.pool.gpu_type)
        counts = self._counts[numbers]
        most = int(counts.max(initial=0))
        if not most:
            return np.full(len(numbers), BEST_AFFINITY)
        ratios, variants = self._ratios[numbers, :most], self._variants[numbers, :most]
        is_there = np.arange(most) < counts[:, None]
        both = workload_affinity(ratio, ratios) + VARIANTS[variant][variants]
        means = np.where(is_there, both / 2, 0.0).sum(axis=1) / np.maximum(counts, 1)
        found: Floats = np.where(counts > 0, means, BEST_AFFINITY).round(DIGITS)
        return found

    def _type_of(self, line: Instance) -> str:
        return self._problem.nodes[line.node].gpu_type

    def _nature(self, service: str, variant: str, batch: int, gpu_type: str) -> tuple[float, int]:
        model = self._problem.services[service].model
        key = model, variant, batch, gpu_type
        if (nature := self._natures.get(key)) is None:
            ratio = compute_to_memory(self._problem.profiles[model, variant, gpu_type].latency_ms[batch])
            nature = self._natures[key] = ratio, HIGH if is_high(self._problem, model, variant) else LOW
        return nature


def is_high(problem: Problem, model: str, variant: str) -> bool:
    """Returns whether a variant is in the upper half of its model's accuracies, as an only variant is."""
    accuracies = {entry.name: entry.accuracy for entry in problem.models[model]}
    return accuracies[variant] >= (min(accuracies.values()) + max(accuracies.values())) / 2
