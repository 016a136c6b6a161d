"""Finds nodes that could be given back, and GPUs to rent for what is left unserved."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from app.control.formulate.tenants.demand import GpuUsage, gpus_per_rate, sum_use_by_service, sum_use_by_tenant
from solvers.planners.names import JOINT
from solvers.planning.availability import ANYWHERE
from solvers.planning.plan import Plan, Releasable
from solvers.planning.problem import Limit, Node, Problem, Service

MOST_RENTED_GPUS = 512  # of a type, in one question
GENEROUS_FACTOR = 2.0  # of a first estimate; the solver takes no more than it needs
NAMED_SERVICES = 3  # in a sentence


@dataclass(frozen=True, slots=True)
class Addition:
    """GPUs that could be rented, and the services that they would serve."""

    gpus: Mapping[str, int]  # by type
    price_per_hour: float
    serves: tuple[str, ...]
    in_part: tuple[str, ...] = ()  # even all GPUs that could be rented serve only a part of these
    leaves: tuple[str, ...] = ()  # no GPU that could be rented helps these

    @property
    def words(self) -> str:
        """Returns one sentence; empty where renting helps no service."""
        if not self.gpus:
            return ""
        rented = " and ".join(f"{count} more {gpu_type}" for gpu_type, count in sorted(self.gpus.items()))
        helped = [join_names(self.serves)] if self.serves else []
        helped += [f"a part of {join_names(self.in_part)}"] if self.in_part else []
        sentence = f"{rented} at {self.price_per_hour:.6g} an hour would serve {' and '.join(helped)}"
        return sentence + (f"; no GPU that could be rented helps {join_names(self.leaves)}" if self.leaves else "")


def find_empty_nodes(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """Returns nodes that run nothing and could be given back to save money: owned and reserved nodes save none."""
    used = {instance.node for instance in plan.instances} | {job.node for job in plan.jobs}
    return tuple(
        name for name, node in sorted(problem.nodes.items()) if name not in used and not node.is_paid_anyway
    )  # fmt: skip


def find_releasable(
    problem: Problem, idle_seconds: Mapping[str, float], idle_minutes: float
) -> tuple[Releasable, ...]:  # fmt: skip
    """Returns the nodes that have been empty for `idle_minutes`, the most expensive first."""
    found = [
        Releasable(name, problem.nodes[name].gpu_count * problem.nodes[name].price_per_hour)
        for name, seconds in idle_seconds.items()
        if name in problem.nodes and seconds >= idle_minutes * 60
    ]
    return tuple(sorted(found, key=lambda node: (-node.price_per_hour, node.node)))


def pose_rental(problem: Problem, plan: Plan, price_per_hour: Mapping[str, float]) -> Problem | None:
    """Poses the question which GPUs to rent: only what is unserved, only on GPUs that could be rented.

    Everything else keeps its plan, so the answer does not depend on later plans. A tenant may use what is left of its
    limit. None where nothing is unserved or nothing could be rented. Prices are by type.
    """
    rates = {line.service: line.rate_per_second for line in plan.unserved if line.rate_per_second > 0}
    spare = {name: count for name, count in problem.spare.items() if count > 0 and name in price_per_hour}
    if not rates or not spare:
        return None
    served = {instance.service for instance in plan.instances}
    wanted = {name: _select_unserved(problem.services[name], rate, name in served) for name, rate in rates.items()}
    nodes = rentable_nodes(problem, spare, price_per_hour)
    question = replace(problem, nodes=nodes, services=wanted, jobs={}, state=None, spare={})
    counts = useful_counts(question, spare)
    nodes = {name: node for name, node in nodes.items() if int(name.rsplit("-", 1)[1]) <= counts[node.gpu_type]}
    if not nodes:
        return None
    used = sum_use_by_tenant(problem, sum_use_by_service(problem, plan.instances))
    limits = {tenant: _rest(limit, used.get(tenant, GpuUsage())) for tenant, limit in problem.limits.items()}
    policy = replace(problem.policy, pricing="gpu", power_budget_w=None, planner=JOINT)
    return replace(question, nodes=nodes, limits=limits, policy=policy)


def read_rental(question: Problem, answer: Plan) -> Addition:
    """Reads the answer to `pose_rental`."""
    used = {place for instance in answer.instances for place in instance.places}
    short = {unserved.service for unserved in answer.unserved}
    carried = {instance.service for instance in answer.instances}
    return Addition(
        gpus=dict(Counter(question.nodes[node].gpu_type for node, _ in used)),
        price_per_hour=sum(question.nodes[node].price_per_hour for node, _ in used),
        serves=tuple(sorted(question.services.keys() - short)),
        in_part=tuple(sorted(short & carried)),
        leaves=tuple(sorted(short - carried)),
    )


def join_names(names: Sequence[str]) -> str:
    """Returns a few names, and how many more there are."""
    if len(names) <= NAMED_SERVICES:
        return ", ".join(names)
    return f"{', '.join(names[:NAMED_SERVICES])} and {len(names) - NAMED_SERVICES} more"


def rentable_nodes(problem: Problem, spare: Mapping[str, int], price_per_hour: Mapping[str, float]) -> dict[str, Node]:
    """Returns a node for each GPU that could be rented: a part of one like the cheapest of its type."""
    like: dict[str, Node] = {}
    for node in sorted(problem.nodes.values(), key=lambda node: (node.price_per_hour, node.name)):
        like.setdefault(node.gpu_type, node)
    found = {}
    for gpu_type, count in sorted(spare.items()):
        known = like.get(gpu_type)
        cores = known.cpu_cores / known.gpu_count if known else inf
        host = known.host_memory_gib / known.gpu_count if known else inf
        templates = known.templates if known else None
        for number in range(1, min(count, MOST_RENTED_GPUS) + 1):
            name = f"rent-{gpu_type}-{number}"
            price = price_per_hour[gpu_type]
            found[name] = Node(name, gpu_type, (0,), min(cores, 1e6), min(host, 1e6), price, templates=templates)
    return found


def useful_counts(question: Problem, spare: Mapping[str, int]) -> dict[str, int]:
    """Returns how many GPUs of each type could be of use, so that the solver looks at no more."""
    wanted: dict[str, float] = defaultdict(float)
    for gpu_type in spare:
        for service in question.services.values():
            types = service.gpu_types
            if types is not None and gpu_type not in types:
                continue
            each = gpus_per_rate(question, service, (gpu_type,))
            if each < inf:
                wanted[gpu_type] += max(GENEROUS_FACTOR * each * service.rate_per_second, service.min_instances)
    return {gpu_type: min(spare[gpu_type], MOST_RENTED_GPUS, ceil(wanted[gpu_type])) for gpu_type in spare}


def _select_unserved(service: Service, rate: float, is_served: bool) -> Service:
    """Returns the unserved part of a service; where instances run already, one more is enough."""
    least = 1 if is_served else service.min_instances
    rules = ANYWHERE if is_served else service.availability
    return replace(service, rate_per_second=rate, min_instances=least, availability=rules)


def _rest(limit: Limit, used: GpuUsage) -> Limit:
    gpus, price = limit.gpus, limit.price_per_hour
    return Limit(
        None if gpus is None else max(gpus - used.gpus, 0.0),
        None if price is None else max(price - used.price_per_hour, 0.0),
        limit.source,
    )
