"""Draws an estate: its nodes with prices, what stands on them, and the workloads with their truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random

from tests.clusters.made_up import (
    Item,
    autoscaler,
    budget,
    deployment,
    leader_worker_set,
    node,
    pod,
    pod_spec,
)
from tests.kubernetes.estates.services import DrawnService, draw_service
from tests.kubernetes.estates.shapes import Shape, draw_days


@dataclass(frozen=True)
class EstateKind:
    """What estates of one kind have in common: the machine, and how a workload's pods hold its GPUs."""

    namespace: str
    workload: str  # kind
    machine: str
    product: str
    gpus: int  # of a node
    shared_by: int  # pods that share a GPU
    sizes: tuple[tuple[int, int], ...]  # slots of a pod, and pods of a replica
    server: str  # whose counters Prometheus has


KINDS = {
    "deployments": EstateKind(
        "shop", "Deployment", "g6e.12xlarge", "NVIDIA-L40S", 4, 1, ((1, 1), (1, 1), (2, 1)), "istio"
    ),
    "groups": EstateKind(
        "chat", "LeaderWorkerSet", "p5.48xlarge", "NVIDIA-H100-80GB-HBM3", 8, 1, ((1, 2), (1, 2), (2, 2)), "vllm"
    ),
    "shared": EstateKind("vision", "Deployment", "g4dn.12xlarge", "Tesla-T4", 4, 4, ((1, 1),), "triton"),
}


@dataclass(frozen=True)
class DrawnEstate:
    """The objects of a cluster, what its machines cost an hour, and the loads and truths of its workloads."""

    kind: EstateKind
    items: tuple[Item, ...]
    services: tuple[DrawnService, ...]
    prices: Mapping[str, Decimal]  # of a node on demand and of a spot node
    reserved: tuple[int, Decimal]  # machines of the same type that are paid in any case, and what each costs
    minutes: int

    @property
    def price_file(self) -> str:
        """Returns the file of --prices."""
        machine, (count, reserved) = self.kind.machine, self.reserved
        lines = [
            "currency: USD", "prices:",
            *(
                f"- {{instanceType: {machine}, purchase: {purchase}, perHour: {price}}}"
                for purchase, price in self.prices.items()
            ),
        ]  # fmt: skip
        if count:
            where = f"instanceType: {machine}, region: us-east-1"
            lines += ["reservations:", f"- {{{where}, count: {count}, perHour: {reserved}}}"]
        return "\n".join(lines) + "\n"


def draw_estate(name: str, gpus: int, seed: int, minutes: int, shapes: Sequence[Shape] = ()) -> DrawnEstate:
    """Draws one of about so many GPUs; loads have these shapes, or made-up ones where there are none."""
    random, kind = Random(f"{name} {gpus} {seed}"), KINDS[name]
    count = max(2, gpus // kind.gpus)
    pools = {"onDemand": range(count - count // 5), "spot": range(count - count // 5, count)}
    free = {
        purchase: {f"{kind.namespace}-{at}": kind.gpus * kind.shared_by for at in places}
        for purchase, places in pools.items()
    }
    placed: list[tuple[DrawnService, list[list[str]]]] = []
    for places in free.values():
        left = int(sum(places.values()) * random.uniform(0.7, 0.9))
        while left > 0:
            size = random.choice(kind.sizes)
            most = max(1, min(left // (size[0] * size[1]), random.randrange(4, 10) * (3 if kind.shared_by > 1 else 1)))
            place = kind.namespace, kind.workload, f"{'model' if size[1] > 1 else 'ranker'}-{len(placed)}"
            shape = random.choice(shapes) if shapes else draw_days(random)
            service = draw_service(random, place, (*size, kind.server), most, shape, minutes)
            groups = [_place(random, places, size) for _ in range(service.now)]
            if not all(groups):
                break
            placed.append((service, groups))
            left -= most * size[0] * size[1]
    prices = {purchase: Decimal(random.randrange(100_000, 9_000_000)) / 100_000 for purchase in ("onDemand", "spot")}
    reserved = random.choice((0, 0, 1, count // 4 + 1)), Decimal(random.randrange(100_000, 9_000_000)) / 100_000
    items = (
        *(
            node(
                each, kind.gpus, kind.product, kind.machine, replicas=kind.shared_by,
                sharing="mps" if kind.shared_by > 1 else "none",
                purchase="SPOT" if purchase == "spot" else "ON_DEMAND", pool=purchase,
            )
            for purchase, places in free.items()
            for each in places
        ),
        *(item for service, groups in placed for item in _objects(random, service, groups)),
        *_bare_pods(random, kind, free["onDemand"]),
    )  # fmt: skip
    return DrawnEstate(kind, items, tuple(service for service, _ in placed), prices, reserved, minutes)


def _place(random: Random, free: dict[str, int], size: tuple[int, int]) -> list[str]:
    """Takes room for each pod of a replica, mostly on the first node that has some; nothing where there is none."""
    taken: list[str] = []
    for _ in range(size[1]):
        roomy = [each for each, slots in free.items() if slots >= size[0]]
        if not roomy:
            return []
        taken.append(random.choice(roomy) if random.random() < 0.3 else roomy[0])
        free[taken[-1]] -= size[0]
    return taken


def _objects(random: Random, service: DrawnService, groups: list[list[str]]) -> Iterator[Item]:
    spec = pod_spec(f"registry.example/{service.truth.server}:1", service.gpus)
    noted = {"first_token": "slo-ttft-ms", "token": "slo-tpot-ms", "latency": "slo-p99-ms"}
    notes = {f"gpuwright.io/{noted[time]}": f"{limit:.3f}" for time, limit in service.slo_ms.items()}
    if service.kind == "LeaderWorkerSet":
        for item in leader_worker_set(service.namespace, service.name, spec, groups):
            if item["kind"] == "LeaderWorkerSet":
                item["metadata"]["annotations"] = notes
            yield item
    else:
        places = [nodes[0] for nodes in groups]
        yield from deployment(service.namespace, service.name, spec, places, annotations=notes)
    if service.bounds:
        yield autoscaler(service.namespace, service.name, *service.bounds, kind=service.kind)
    if random.random() < 0.3:
        rule = {"maxUnavailable": 1} if random.random() < 0.5 else {"minAvailable": "50%"}
        yield budget(service.namespace, service.name, **rule)


def _bare_pods(random: Random, kind: EstateKind, free: dict[str, int]) -> Iterator[Item]:
    """A notebook or two, one of which waits, and web servers without GPUs, which hold nothing."""
    for at in range(random.randrange(0, 3)):
        place = _place(random, free, (1, 1))
        yield pod(kind.namespace, f"notebook-{at}", pod_spec("notebook:1", 1), place[0] if place else "")
    yield from deployment(kind.namespace, "web", pod_spec("web:1", 0), [next(iter(free))] * 2)
