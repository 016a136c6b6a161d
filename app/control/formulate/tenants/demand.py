"""The GPUs that tenants need for their whole load, and those that the plan in force gives them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from agents.contract.assignments import AssignedInstance
from solvers.planning.fleet.offers import read_offers
from solvers.planning.problem import Instance, Problem, Service

SHORTAGE_SHARE = 1e-4  # of a rate: less is no shortage
ROOM_FACTOR = 1.1  # whole SM%, whole instances and neighbours take more than the least that a rate needs


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """The GPU shares that instances use, with their price and the rate that they carry."""

    gpus: float = 0.0
    price_per_hour: float = 0.0
    rate_per_second: float = 0.0


class _Sums(defaultdict[str, list[float]]):
    """Sums of GPU usage by name."""

    def __init__(self) -> None:
        super().__init__(lambda: [0.0, 0.0, 0.0])

    def add(self, name: str, gpus: float, price_per_hour: float, rate_per_second: float) -> None:
        found = self[name]
        found[0] += gpus
        found[1] += price_per_hour
        found[2] += rate_per_second

    def used(self) -> dict[str, GpuUsage]:
        return {name: GpuUsage(*found) for name, found in self.items()}


def sum_use_by_service(problem: Problem, instances: Iterable[Instance]) -> dict[str, GpuUsage]:
    """Returns usage as tenants' limits count it: the whole GPU of a dedicated service, else the instance's SM%."""
    found = _Sums()
    for instance in instances:
        share = 1.0 if problem.services[instance.service].is_dedicated else instance.sm_percent / 100
        share *= instance.degree
        found.add(
            instance.service, share, share * problem.nodes[instance.node].price_per_hour, instance.rate_per_second
        )
    return found.used()


def sum_use_by_tenant(problem: Problem, by_service: dict[str, GpuUsage]) -> dict[str, GpuUsage]:
    """Returns the sums over each tenant's services."""
    found = _Sums()
    for service, used in by_service.items():
        found.add(problem.services[service].tenant, used.gpus, used.price_per_hour, used.rate_per_second)
    return found.used()


def sum_use_of_assigned(
    assigned: Iterable[tuple[str, AssignedInstance]], price_per_hour: Mapping[str, float]
) -> dict[str, GpuUsage]:
    """Returns what each tenant's services use, also on lost nodes, from (node, instance) pairs and prices by node."""
    found = _Sums()
    for node, instance in assigned:
        if instance.service:
            share = len(instance.all_gpus) * (1.0 if instance.dedicated else instance.sm_percent / 100)
            found.add(instance.tenant, share, share * price_per_hour.get(node, 0.0), instance.rate_per_second)
    return found.used()


def tenant_demands(problem: Problem, by_service: dict[str, GpuUsage]) -> dict[str, dict[int, float]]:
    """Returns the GPUs that each tenant's services need for their whole rates, by priority."""
    found: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    types = gpu_types(problem)
    for name, service in problem.services.items():
        found[service.tenant][service.priority] += gpus_needed(
            problem, service, by_service.get(name, GpuUsage()), types
        )
    return {tenant: dict(by) for tenant, by in found.items()}


def gpu_types(problem: Problem) -> tuple[str, ...]:
    """Returns the GPU types of the fleet."""
    return tuple(sorted({node.gpu_type for node in problem.nodes.values()}))


def gpus_needed(problem: Problem, service: Service, used: GpuUsage, types: Sequence[str]) -> float:
    """Returns the GPUs it uses, as far as it needs them, plus an estimate for the rest; 0 if nothing can serve it."""
    rate = service.rate_per_second
    if used.rate_per_second >= rate * (1 - SHORTAGE_SHARE):
        return used.gpus * rate / used.rate_per_second
    each = gpus_per_rate(problem, service, types)
    return used.gpus + (each * (rate - used.rate_per_second) * ROOM_FACTOR if each < inf else 0.0)


def gpus_per_rate(problem: Problem, service: Service, types: Sequence[str]) -> float:
    """Returns the smallest share of a GPU of these types that serves a request a second; infinite if none can."""
    if service.tokens is not None:
        return _least_whole(problem, service, types)
    return min(
        (
            read_offers(problem).find_least_share(service, profile)
            for variant in service.variants
            for gpu_type in types
            if (service.gpu_types is None or gpu_type in service.gpu_types)
            and (profile := problem.profiles.get((service.model, variant, gpu_type)))
        ),
        default=inf,
    )


def _least_whole(problem: Problem, service: Service, types: Sequence[str]) -> float:
    """Returns the fewest whole GPUs for a request a second of a language model."""
    shapes = [shape for shape in read_offers(problem).find_token_shapes(service) if shape.gpu_type in types]
    return min((shape.degree / shape.rate_per_second for shape in shapes), default=inf)
