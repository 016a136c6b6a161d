"""Makes the fleet that a baseline plans on: as many GPUs of each type as it can use, each at the type's lowest price.

So a baseline never costs less because GPUs ran out. Where nodes lie, which tenants share a GPU, what runs now, jobs,
tenants' limits and the power budget do not matter there, which makes a baseline cheaper than it could be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, inf

from solvers.planning.availability import ANYWHERE
from solvers.planning.fleet.offers import GpuPool, read_offers
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.problem import Node, Problem, Service

SPARE_SHARE = 1.25  # of the GPUs that instances with a GPU each would need


def open_market(problem: Problem, rates: Mapping[str, float]) -> Problem:
    """Returns the services that the rates name, and nodes like the fleet's. Language models are left out."""
    named = {name: rate for name, rate in rates.items() if problem.services[name].tokens is None}
    services = {
        name: replace(problem.services[name], rate_per_second=rate, availability=ANYWHERE, cells=None)
        for name, rate in named.items()
        if rate > 0
    }
    policy = replace(problem.policy, pricing="gpu", power_budget_w=None, share_across_tenants=True)
    kinds = _kinds(problem)
    nodes = {node.name: node for node in kinds}
    one_each = replace(problem, nodes=nodes, services=services, jobs={}, limits={}, state=None, policy=policy)
    needed = _count_needed(one_each)
    many = {
        f"{node.name}-{number}": replace(node, name=f"{node.name}-{number}")
        for node in kinds
        for number in range(ceil(needed.get(node.gpu_type, 0) / node.gpu_count))
    }
    return replace(one_each, nodes=many or nodes)


def open_node_per_type(problem: Problem, gpus: Mapping[str, int]) -> Problem:
    """Returns a market with a node for each type, of so many GPUs, cores and host memory without end."""
    nodes = {
        pool.gpu_type: Node(pool.gpu_type, pool.gpu_type, tuple(range(count)), inf, inf, pool.price_per_hour)
        for pool in list_pools(problem)
        if (count := gpus.get(pool.gpu_type))
    }
    policy = replace(problem.policy, power_budget_w=None)
    return replace(problem, nodes=nodes, jobs={}, limits={}, state=None, policy=policy)


def list_pools(problem: Problem) -> list[GpuPool]:
    """Returns the fleet's GPU types, each at the lowest price that is paid for it, on nodes with every template."""
    price: dict[str, float] = {}
    for node in problem.nodes.values():
        price[node.gpu_type] = min(price.get(node.gpu_type, node.price_per_hour), node.price_per_hour)
    return [GpuPool(name, price[name], None, problem.gpu_types[name].max_w) for name in sorted(price)]


def _kinds(problem: Problem) -> list[Node]:
    """Returns of each GPU type and set of templates the cheapest node, at the lowest price of the type."""
    price = {pool.gpu_type: pool.price_per_hour for pool in list_pools(problem)}
    cheapest: dict[object, Node] = {}
    for node in problem.nodes.values():
        known = cheapest.get((node.gpu_type, node.templates))
        if known is None or node.price_per_hour < known.price_per_hour:
            cheapest[node.gpu_type, node.templates] = node
    return [
        replace(node, price_per_hour=price[node.gpu_type], pricing="gpu", cell="", caps_w=())
        for node in cheapest.values()
    ]


def _count_needed(problem: Problem) -> dict[str, int]:
    """Returns by type the GPUs that all services that can run there would need, one for each instance."""
    pools = FleetRooms(problem, (), ()).pools
    found: dict[str, float] = {}
    for service in problem.services.values():
        most: dict[str, float] = {}
        for shape in read_offers(problem).find_whole_shapes(service, pools):
            most[shape.pool.gpu_type] = max(_count(service, shape.rate_per_second), most.get(shape.pool.gpu_type, 0))
        for name, count in most.items():
            found[name] = found.get(name, 0) + count
    return {name: ceil(SPARE_SHARE * count) for name, count in found.items()}


def _count(service: Service, each: float) -> int:
    return max(service.min_instances, 1, ceil(service.rate_per_second / each))
