"""The problem that a planner solves for workloads whose models have profiles: the nodes of an estate, and its rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from app.manifests.prices import NANO
from clusters.estate import Estate, WorkloadName
from clusters.measured import MeasuredLoads
from clusters.promises import WorkloadPromise
from clusters.sharing.demand import peak_rate
from clusters.sharing.rooms import OpenKind, OpenNode, SharedRooms, Sharer
from solvers.planning.availability import ANYWHERE, Availability
from solvers.planning.problem import GpuType, Node, Policy, Problem, Profile, Service, Variant

PLENTY = 1e6  # of cores and memory: what nodes have besides GPUs is not compared
PAID_PRICE = 1.0  # of a GPU that is paid anyway: a problem's prices are over 0, and this one costs nothing


@dataclass(frozen=True, slots=True)
class KnownProfiles:
    """Profiles with what they refer to, and which GPU type a cluster's product is."""

    gpu_types: Mapping[str, GpuType]
    models: Mapping[str, tuple[Variant, ...]]
    profiles: tuple[Profile, ...]
    types_of_products: Mapping[str, str]  # `NVIDIA-L40S` -> the name of a GPU type
    gpu_specs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # as GpuTypes are declared: their links

    def type_of(self, kind: OpenKind) -> str:
        return self.types_of_products.get(kind.product, "")

    def find_profile(self, model: str, variant: str, gpu_type: str) -> Profile | None:
        found = (each for each in self.profiles if each.key == (model, variant, gpu_type))
        return next(found, None)


@dataclass(frozen=True, slots=True)
class PosedProblem:
    """The problem, and the workload of each of its services."""

    problem: Problem
    workloads: Mapping[str, WorkloadName]


def find_unprofiled(
    estate: Estate, promises: Mapping[WorkloadName, WorkloadPromise], known: KnownProfiles
) -> dict[WorkloadName, str]:
    """Returns why no plan can be made for a workload; empty: one can."""
    return {each.name: _find_lack(estate, each.name, promises.get(each.name), known) for each in estate.workloads}


def _find_lack(estate: Estate, name: WorkloadName, promise: WorkloadPromise | None, known: KnownProfiles) -> str:
    if promise is None or not promise.model:
        return "no annotation names its model"
    if "latencyMs" not in promise.slo:
        return "it promises times of tokens: it is sized by itself" if promise.slo else "it has no SLO"
    if promise.model not in known.models:
        return f"no Profile is of model {promise.model}"
    variant = find_variant(promise, known)
    if not variant:
        return f"no annotation says which variant of {promise.model} it serves"
    nodes = [estate.by_node[pod.node] for pod in estate.pods_of(name) if pod.node in estate.by_node]
    products = sorted({node.product for node in nodes})
    types = [known.types_of_products.get(product, "") for product in products]
    if not all(known.find_profile(promise.model, variant, each) for each in types):
        return f"no Profile is of {promise.model} ({variant}) on {' and '.join(products) or 'its GPUs'}"
    return ""


def find_variant(promise: WorkloadPromise, known: KnownProfiles) -> str:
    """Returns the variant that is served: the one that is named, or the only one that there is."""
    names = [variant.name for variant in known.models.get(promise.model, ())]
    if promise.variant:
        return promise.variant if promise.variant in names else ""
    return names[0] if len(names) == 1 else ""


def pose_problem(
    estate: Estate, rooms: SharedRooms, measured: MeasuredLoads, promises: Mapping[WorkloadName, WorkloadPromise],
    known: KnownProfiles,
) -> PosedProblem:  # fmt: skip
    """Returns the problem. Each kind of nodes has a GPU type of its own, so that services stay where they may stand."""
    types: dict[str, GpuType] = {}
    nodes: dict[str, Node] = {}
    profiles: dict[tuple[str, str, str], Profile] = {}
    services: dict[str, Service] = {}
    workloads: dict[str, WorkloadName] = {}
    names = {}
    for at, kind in enumerate(rooms.kinds):
        gpu_type = known.gpu_types.get(known.type_of(kind))
        if gpu_type is None:
            continue
        name = names[at] = f"{gpu_type.name}-{at}"
        types[name] = replace(gpu_type, name=name, memory_gib=min(gpu_type.memory_gib, kind.memory_gib or PLENTY))
        for node in kind.nodes:
            if node.gpus:
                nodes[node.name] = _node(node, name)
        for profile in known.profiles:
            if profile.gpu_type == gpu_type.name:
                profiles[profile.model, profile.variant, name] = replace(profile, gpu_type=name)
    for kind in rooms.kinds:
        for sharer in kind.sharers:
            promise = promises[sharer.workload]
            allowed = tuple(
                names[at]
                for at, other in enumerate(rooms.kinds)
                if at in names and may_stand(estate, sharer, kind, other)
            )
            text = str(sharer.workload)
            workloads[text] = sharer.workload
            services[text] = Service(
                name=str(sharer.workload),
                tenant=sharer.workload.namespace,
                model=promise.model,
                variants=(find_variant(promise, known),),
                slo_ms=promise.slo["latencyMs"],
                percentile=promise.slo["percentile"],
                rate_per_second=peak_rate(measured.workloads[sharer.workload]),
                gpu_types=allowed,
                min_instances=sharer.least,
                availability=Availability("node") if sharer.is_apart else ANYWHERE,
            )
    problem = Problem(types, nodes, known.models, profiles, services, policy=Policy())
    return PosedProblem(problem, workloads)


def may_stand(estate: Estate, sharer: Sharer, home: OpenKind, other: OpenKind) -> bool:
    """Returns whether the workload may stand on nodes of another kind: none bars it, and all else is alike."""
    barred = next(each.barred_nodes for each in estate.workloads if each.name == sharer.workload)
    first, second = (estate.by_node[kind.nodes[0].name] for kind in (home, other))
    is_alike = first.region == second.region and first.purchase == second.purchase
    return home is other or (is_alike and not any(node.name in barred for node in other.nodes))


def _node(node: OpenNode, gpu_type: str) -> Node:
    price = node.nano_per_hour / NANO / node.gpus if node.nano_per_hour else PAID_PRICE
    return Node(
        node.name, gpu_type, tuple(range(node.gpus)), PLENTY, PLENTY, price,
        pricing="node" if node.nano_per_hour else "paid",
    )  # fmt: skip
