"""Draws of estates whose truth is known: nodes, workloads, what meters showed of them, and their true profiles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, log
from random import Random
from statistics import fmean

from clusters.bill import Bill, draw_bill
from clusters.certified.posing import KnownProfiles
from clusters.estate import Estate, WorkloadName
from clusters.gpu_use import MeasuredGpu
from clusters.measured import MeasuredLoads, WorkloadSeries
from clusters.metrics.gpu_metrics import ACTIVITIES
from clusters.objects import objects_of
from clusters.price_list import read_examples, read_prices
from clusters.promises import WorkloadPromise, find_promises
from clusters.reading import read_estate
from clusters.savings import Savings, find_savings
from solvers.planning.problem import GpuType, Variant
from tests.clusters.made_up import Item, autoscaler, budget, deployment, node, pod_spec
from tests.clusters.sharing.batching import TrueServer
from tests.clusters.sharing.families import FAMILIES, Family
from tests.clusters.sharing.truth import MeasuredStep, TrueModel, day_of

STEP_SECONDS = 900
STEPS = 96
SERVED, FIXED = "served", "fixed"


@dataclass(frozen=True)
class Product:
    """A GPU type that nodes of draws have."""

    label: str
    name: str
    memory_gib: int
    price_per_gpu: float


PRODUCTS = (
    Product("NVIDIA-L40S", "l40s", 48, 1.9), Product("NVIDIA-A100-SXM4-80GB", "a100", 80, 3.7),
    Product("NVIDIA-H100-80GB-HBM3", "h100", 80, 6.1), Product("NVIDIA-L4", "l4", 24, 0.8),
)  # fmt: skip


@dataclass(frozen=True)
class Holder:
    """A replica on a GPU: its memory, and by step the SMs that had work of it."""

    workload: WorkloadName
    memory_gib: float
    active: tuple[float, ...]


@dataclass
class DrawnEstate:
    """What was drawn, as the product reads it, with the profiles that it does not see."""

    items: list[Item] = field(default_factory=list)
    prices: list[str] = field(default_factory=list)
    series: dict[WorkloadName, WorkloadSeries] = field(default_factory=dict)
    holders: dict[tuple[str, int], list[Holder]] = field(default_factory=lambda: defaultdict(list))
    models: dict[str, tuple[TrueModel, str]] = field(default_factory=dict)
    has_activity: bool = True
    meters: Random = field(default_factory=lambda: Random(0))

    def read(self) -> ReadEstate:
        estate = read_estate(objects_of(self.items))
        bill = draw_bill(estate, read_examples(), read_prices("prices:\n" + "\n".join(self.prices), "prices"))
        passing = {each.name: (0.0,) * STEPS for each in estate.nodes}
        measured = MeasuredLoads(0.0, STEP_SECONDS, STEPS, "draw", self.series, passing)
        promises = find_promises(estate)
        kept = {name: promise.latency for name, promise in promises.items() if promise.latency}
        return ReadEstate(estate, bill, measured, promises, find_savings(estate, bill, measured, kept), self._gpus())

    def _gpus(self) -> tuple[MeasuredGpu, ...]:
        return tuple(self._measured(*place, holders) for place, holders in sorted(self.holders.items()))

    def _measured(self, node: str, gpu: int, holders: list[Holder]) -> MeasuredGpu:
        """Meters of one GPU, each a little wrong."""
        active = min(1.0, sum(fmean(each.active) for each in holders) * self.meters.uniform(0.96, 1.04))
        return MeasuredGpu(
            f"{node}-{gpu}", node, tuple(sorted({each.workload for each in holders})), len(holders),
            sum(each.memory_gib for each in holders), active if self.has_activity else None, None,
            ACTIVITIES[0][0] if self.has_activity else "",
        )  # fmt: skip

    def known(self) -> KnownProfiles:
        return KnownProfiles(
            {each.name: GpuType(each.name, each.memory_gib, 50, 400, (1000.0,)) for each in PRODUCTS},
            {name: (Variant("served", 1.0),) for name in self.models},
            tuple(model.profile(name, gpu_type) for name, (model, gpu_type) in self.models.items()),
            {each.label: each.name for each in PRODUCTS},
        )  # fmt: skip


@dataclass(frozen=True)
class ReadEstate:
    """A draw as `gpuwright assess` has it."""

    estate: Estate
    bill: Bill
    measured: MeasuredLoads
    promises: Mapping[WorkloadName, WorkloadPromise]
    savings: Savings
    gpus: tuple[MeasuredGpu, ...]


def draw_estate(random: Random, name: str) -> DrawnEstate:
    """One or two pools; in each some Deployments on whole GPUs or on slots, beside pods that nobody measured."""
    found, family = DrawnEstate(), FAMILIES[name]
    if random.random() < 0.12:
        found.has_activity = False
    for at, product in enumerate(random.sample(PRODUCTS, random.choice(family.pools))):
        _draw_pool(random, family, found, f"pool{at}", product)
    return found


def _draw_pool(random: Random, family: Family, found: DrawnEstate, pool: str, product: Product) -> None:
    gpus, count = random.choice((1, 4, 4, 8)), random.randrange(8, 26)
    slots = random.choice(family.slots)
    machine = f"{pool}-machine"
    found.prices.append(f"- {{instanceType: {machine}, perHour: {product.price_per_gpu * gpus:.4f}}}")
    names = [f"{pool}-n{at}" for at in range(count)]
    for name in names:
        found.items.append(
            node(
                name, gpus, product.label, machine, pool=pool, memory_mib=product.memory_gib * 1024, replicas=slots,
                sharing="mps" if slots > 1 else "none",
            )
        )  # fmt: skip
    free = [(name, gpu, slot) for slot in range(slots) for gpu in range(gpus) for name in names]
    if slots == 1:
        random.shuffle(free)
    _draw_fixed(random, found, pool, free)
    target = random.uniform(0.55, 0.95) * gpus * count * slots
    while len(free) > gpus * count * slots - target:
        _draw_workload(random, family, found, f"{pool}-{len(found.models)}", product, free, slots)


def _draw_fixed(random: Random, found: DrawnEstate, pool: str, free: list[tuple[str, int, int]]) -> None:
    """Pods of a Deployment that nobody measured: they stay."""
    count = random.choice((0, 0, 1, 2, 3))
    places = [free.pop() for _ in range(count)]
    if places:
        name = f"{pool}-{FIXED}"
        found.items += deployment("team", name, pod_spec("image:1", 1), [place for place, _, _ in places])
        for place, gpu, _ in places:
            found.holders[place, gpu].append(Holder(WorkloadName("team", "Deployment", name), 3.0, (0.2,) * STEPS))


def _draw_workload(
    random: Random, family: Family, found: DrawnEstate, name: str, product: Product, free: list[tuple[str, int, int]],
    slots: int,
) -> None:  # fmt: skip
    model = family.draw_model(random)
    replicas = min(len(free), random.choice(family.replicas))
    # Of a whole GPU, each replica's highest use; beside others on a GPU less.
    peak_use = family.draw_use(random) / (slots if slots > 1 else 1)
    server = family.draw_server(random, model)
    rate = _rate_at_use(server, peak_use)
    day = day_of(random, STEPS, family.draw_quiet(random))
    steps = [server(rate * part) for part in day]
    if any(step is None for step in steps):
        return
    kept = [step for step in steps if step]
    slo = family.draw_slack(random) * model.batch_ms(1, 1.0)
    slo = max(slo, 1.15 * max(step.latency_ms for step in kept))
    workload = WorkloadName("team", "Deployment", name)
    annotations = {"gpuwright.io/model": name, "gpuwright.io/slo-p99-ms": f"{slo:.3f}"}
    places = [free.pop() for _ in range(replicas)]
    found.items += deployment(
        "team", name, pod_spec("image:1", 1), [place for place, _, _ in places], annotations=annotations
    )
    if replicas > 2 and random.random() < 0.4:
        found.items.append(autoscaler("team", name, random.randrange(1, replicas), 2 * replicas))
    if replicas > 1 and random.random() < 0.3:
        found.items.append(budget("team", name, maxUnavailable=1))
    found.models[name] = (model, product.name)
    found.series[workload] = WorkloadSeries(
        tuple(rate * part * replicas for part in day), (float(replicas),) * STEPS,
        tuple(_read_latency(random, family, step) for step in kept),
    )  # fmt: skip
    memory = model.memory_gib(max(step.batch for step in kept)) * random.uniform(1.0, 1.15)
    for place, gpu, _ in places:
        found.holders[place, gpu].append(Holder(workload, memory, tuple(step.active for step in kept)))


def _read_latency(random: Random, family: Family, step: MeasuredStep) -> float:
    """What a server's counters show: a little more than the truth, or the bound of a bucket above it."""
    latency = step.latency_ms * random.uniform(1.0, 1.08)
    return latency if family.latency_bounds <= 1 else family.latency_bounds ** ceil(log(latency, family.latency_bounds))


def _rate_at_use(server: TrueServer, use: float) -> float:
    """The rate of a replica alone on its GPU at which it has work for so much of the time."""
    low, high = 0.0, 1e6
    for _ in range(60):
        middle = (low + high) / 2
        step = server(middle)
        low, high = (middle, high) if step and step.busy < use and step.batch <= 4 else (low, middle)
    return low
