"""The affinity of a task with what runs on a GPU (O4, O6): the mean of workload (10) and variant affinity."""

from __future__ import annotations

from collections.abc import Sequence

from solvers.interference.affinity import THRESHOLD_AFFINITY, compute_to_memory, variant_affinity, workload_affinity
from solvers.planning.growing import GrowingFleet
from solvers.planning.problem import Instance, Problem, Service

BEST_AFFINITY = 100.0  # with an empty GPU


def mean_affinity(
    problem: Problem, service: Service, variant: str, batch: int, gpu_type: str, beside: Sequence[Instance]
) -> float:
    """Returns the mean affinity of a variant with the instances on a GPU."""
    if not beside:
        return BEST_AFFINITY
    own = _ratio(problem, service, variant, batch, gpu_type)
    total = 0.0
    for line in beside:
        other = problem.services[line.service]
        workload = workload_affinity(own, _ratio(problem, other, line.variant, line.batch, gpu_type))
        variants = variant_affinity(is_high(problem, service, variant), is_high(problem, other, line.variant))
        total += (workload + variants) / 2
    return total / len(beside)


def suits(
    problem: Problem, service: Service, variant: str, batch: int, gpu_type: str, beside: Sequence[Instance]
) -> bool:
    """Returns whether a variant suits the instances on a GPU: isAffinityHigh of Algorithm 3."""
    return mean_affinity(problem, service, variant, batch, gpu_type, beside) >= THRESHOLD_AFFINITY


def is_high(problem: Problem, service: Service, variant: str) -> bool:
    """Returns whether a variant is in the upper half of its model's accuracies, as an only variant is."""
    accuracies = {entry.name: entry.accuracy for entry in problem.models[service.model]}
    return accuracies[variant] >= (min(accuracies.values()) + max(accuracies.values())) / 2


def keeps_accuracy(fleet: GrowingFleet, service: Service, variant: str, rate: float, most_loss_share: float) -> bool:
    """Returns whether an instance of this variant keeps the mean accuracy of its service (O6).

    The mean is over the rates that instances can carry. The loss is from the best variant that the service admits.
    """
    best = max(fleet.accuracy(service, admitted) for admitted in service.variants)
    least = max(service.mean_accuracy, (1 - most_loss_share) * best)
    lines = [(fleet.rates[seat.id], fleet.accuracy(service, seat.variant)) for seat in fleet.of(service.name)]
    lines.append((rate, fleet.accuracy(service, variant)))
    return sum(carried * (accuracy - least) for carried, accuracy in lines) >= -1e-9


def _ratio(problem: Problem, service: Service, variant: str, batch: int, gpu_type: str) -> float:
    profile = problem.profiles[service.model, variant, gpu_type]
    return compute_to_memory(profile.latency_ms[batch])
