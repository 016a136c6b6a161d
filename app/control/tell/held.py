"""Prices the GPUs that hold copies of services now: what the fleet costs, whatever the plan in force says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import fsum

from app.control.domain.snapshot import DeclaredObject, Snapshot
from app.control.domain.specs import Spec, gpu_count, gpu_type_of, memory_gib, node_price, pricing_of, purchase_of
from app.manifests.prices import pays_whole_node
from app.store.fleet.observed import HeldGpu
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance


def held_per_hour(snapshot: Snapshot, held: Iterable[HeldGpu]) -> float:
    """Returns the price an hour of these GPUs under the policy's pricing; a lost node's are not held any more.

    One GPU that is held holds all of a node that is billed whole.
    """
    pricing = pricing_of(_specs(snapshot.declared, "Policy").get("default", {}))
    specs = _specs(snapshot.declared, "Node")
    gpu_types = _specs(snapshot.declared, "GpuType")
    there = {name for name, node in snapshot.nodes.items() if node.state != "lost"}
    known = [
        gpu for gpu in held if gpu.node in there and gpu.node in specs and gpu_type_of(specs[gpu.node]) in gpu_types
    ]
    whole = {gpu.node for gpu in known if pays_whole_node(pricing, purchase_of(specs[gpu.node]))}
    single = [gpu for gpu in known if gpu.node not in whole]
    of_gpus = [_price(specs[gpu.node], gpu_types, gpu if pricing == "share" else None) for gpu in single]
    of_nodes = [gpu_count(specs[node]) * _price(specs[node], gpu_types, None) for node in sorted(whole)]
    return fsum(of_gpus + of_nodes)


def list_planned_gpus(plan: Plan) -> list[HeldGpu]:
    """Returns every GPU on which the plan has an instance of a service, to be priced as those that are held."""
    found: dict[tuple[str, int], list[Instance]] = defaultdict(list)
    for instance in plan.instances:
        for place in instance.places:
            found[place].append(instance)
    return [
        HeldGpu(node, gpu, fsum(each.sm_percent for each in there), fsum(each.memory_gib for each in there))
        for (node, gpu), there in found.items()
    ]


def _price(node: Spec, gpu_types: Mapping[str, Spec], share: HeldGpu | None) -> float:
    gpu_type = gpu_types[gpu_type_of(node)]
    price = node_price(node, gpu_type)
    if share is None:
        return price
    return price * min(1.0, max(share.sm_percent / 100, share.memory_gib / memory_gib(gpu_type)))


def _specs(declared: Sequence[DeclaredObject], kind: str) -> dict[str, Spec]:
    return {item.name: item.spec for item in declared if item.kind == kind}
