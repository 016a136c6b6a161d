"""Money out loud: which nodes could be given back, and which GPUs to rent for what is left unserved."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from app.control.formulate.tenants.demand import GpuUsage, gpus_per_rate, used_by_service, used_by_tenant
from solvers.planning.plan import Plan, Releasable
from solvers.planning.problem import Limit, Node, Problem, Service

MOST_RENTED = 512  # GPUs of a type that are looked at
GENEROUS = 2.0  # times what a first estimate says; the solver takes no more than it needs
NAMED = 3  # services in a sentence


@dataclass(frozen=True, slots=True)
class Addition:
    """GPUs that could be rented, and whom they would serve."""

    gpus: Mapping[str, int]  # by type
    price_per_hour: float
    serves: tuple[str, ...]
    in_part: tuple[str, ...] = ()  # what could be rented is not enough for these
    leaves: tuple[str, ...] = ()  # no GPU that could be rented helps these

    @property
    def words(self) -> str:
        """One sentence for people; empty where renting helps nobody."""
        if not self.gpus:
            return ""
        rented = " and ".join(f"{count} more {gpu_type}" for gpu_type, count in sorted(self.gpus.items()))
        helped = [join_names(self.serves)] if self.serves else []
        helped += [f"a part of {join_names(self.in_part)}"] if self.in_part else []
        said = f"{rented}, {self.price_per_hour:.6g} an hour, would serve {' and '.join(helped)}"
        return said + (f"; nothing that could be rented helps {join_names(self.leaves)}" if self.leaves else "")


def find_empty_nodes(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """Nodes that nothing runs on, and that cost less when they are given back: owned and reserved ones do not."""
    used = {one.node for one in plan.instances} | {one.node for one in plan.jobs}
    return tuple(
        name for name, node in sorted(problem.nodes.items()) if name not in used and not node.is_paid_anyway
    )  # fmt: skip


def find_releasable(
    problem: Problem, idle_seconds: Mapping[str, float], idle_minutes: float
) -> tuple[Releasable, ...]:  # fmt: skip
    """Those that have been empty for longer than `idle_minutes`, the dearest first."""
    found = [
        Releasable(name, problem.nodes[name].gpu_count * problem.nodes[name].price_per_hour)
        for name, seconds in idle_seconds.items()
        if name in problem.nodes and seconds >= idle_minutes * 60
    ]
    return tuple(sorted(found, key=lambda one: (-one.price_per_hour, one.node)))


def pose_rental(problem: Problem, plan: Plan, price_per_hour: Mapping[str, float]) -> Problem | None:
    """The question which GPUs to rent: only what is unserved, on nothing but GPUs that could be had.

    All others keep their plan, so the answer is true whatever becomes of it. A tenant has left of its limit what it
    does not use. None where nothing is unserved, or nothing could be rented. Prices are by type.
    """
    left = {one.service: one.rate_per_second for one in plan.unserved if one.rate_per_second > 0}
    spare = {name: count for name, count in problem.spare.items() if count > 0 and name in price_per_hour}
    if not left or not spare:
        return None
    served = {one.service for one in plan.instances}
    wanted = {name: _left(problem.services[name], rate, name in served) for name, rate in left.items()}
    nodes = _nodes(problem, spare, price_per_hour)
    asked = replace(problem, nodes=nodes, services=wanted, jobs={}, state=None, spare={})
    counts = _counts(asked, spare)
    nodes = {name: node for name, node in nodes.items() if int(name.rsplit("-", 1)[1]) <= counts[node.gpu_type]}
    if not nodes:
        return None
    used = used_by_tenant(problem, used_by_service(problem, plan.instances))
    limits = {tenant: _rest(limit, used.get(tenant, GpuUsage())) for tenant, limit in problem.limits.items()}
    policy = replace(problem.policy, pricing="gpu", power_budget_w=None)
    return replace(asked, nodes=nodes, limits=limits, policy=policy)


def read_rental(asked: Problem, answer: Plan) -> Addition:
    """What the answer to `renting` says."""
    used = {one.place for one in answer.instances}
    short = {one.service for one in answer.unserved}
    carried = {one.service for one in answer.instances}
    return Addition(
        gpus=dict(Counter(asked.nodes[node].gpu_type for node, _ in used)),
        price_per_hour=sum(asked.nodes[node].price_per_hour for node, _ in used),
        serves=tuple(sorted(asked.services.keys() - short)),
        in_part=tuple(sorted(short & carried)),
        leaves=tuple(sorted(short - carried)),
    )


def join_names(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    if len(names) <= NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"


def _left(service: Service, rate: float, is_served: bool) -> Service:
    """The part of a service that is unserved: one instance more will do where others stand already."""
    least = 1 if is_served else service.min_instances
    return replace(service, rate_per_second=rate, min_instances=least)


def _nodes(problem: Problem, spare: Mapping[str, int], price_per_hour: Mapping[str, float]) -> dict[str, Node]:
    """Rented GPUs one by one, each on a part of a node like the cheapest of its type."""
    like: dict[str, Node] = {}
    for node in sorted(problem.nodes.values(), key=lambda node: (node.price_per_hour, node.name)):
        like.setdefault(node.gpu_type, node)
    found = {}
    for gpu_type, count in sorted(spare.items()):
        known = like.get(gpu_type)
        cores = known.cpu_cores / known.gpu_count if known else inf
        host = known.host_memory_gib / known.gpu_count if known else inf
        templates = known.templates if known else None
        for number in range(1, min(count, MOST_RENTED) + 1):
            name = f"rent-{gpu_type}-{number}"
            price = price_per_hour[gpu_type]
            found[name] = Node(name, gpu_type, (0,), min(cores, 1e6), min(host, 1e6), price, templates=templates)
    return found


def _counts(asked: Problem, spare: Mapping[str, int]) -> dict[str, int]:
    """As many of each type as could be of use: the solver need not look at hundreds where two will do."""
    wanted: dict[str, float] = defaultdict(float)
    for gpu_type in spare:
        for service in asked.services.values():
            types = service.gpu_types
            if types is not None and gpu_type not in types:
                continue
            each = gpus_per_rate(asked, service, (gpu_type,))
            if each < inf:
                wanted[gpu_type] += max(GENEROUS * each * service.rate_per_second, service.min_instances)
    return {gpu_type: min(spare[gpu_type], MOST_RENTED, ceil(wanted[gpu_type])) for gpu_type in spare}


def _rest(limit: Limit, used: GpuUsage) -> Limit:
    gpus, price = limit.gpus, limit.price_per_hour
    return Limit(
        None if gpus is None else max(gpus - used.gpus, 0.0),
        None if price is None else max(price - used.price_per_hour, 0.0),
    )
