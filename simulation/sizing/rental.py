"""Rentals: how many GPUs of each type are rented, what they cost an hour, and the fleet that has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

from app.control.formulate.problem import build_problem, qualify_name
from app.control.formulate.tenants.demand import gpus_per_rate
from app.control.tell.money import MOST_RENTED_GPUS, rentable_nodes, useful_counts
from app.manifests.model import JSON, Key, Kind, Manifest, WrittenSpec
from app.manifests.offline import DeclaredFiles
from app.manifests.prices import price_per_hour
from simulation.measure.fresh import bare_problem
from solvers.planning.indexes import gpu_indexes
from solvers.planning.problem import OWN, Node, Problem

LEFT_OUT = (Kind.STATE, Kind.JOB)  # jobs take only what services leave
UNSERVED_FACTOR = 1000.0  # times the price of the dearest GPU: no request a second is worth less
FEW_GPUS = 2  # more than the estimate, where rules ask for GPUs that no rate needs


class RentalRefused(Exception):
    """The files do not say what could be rented; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Rental:
    """Rented GPUs by type; types without a GPU are left out."""

    counts: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(counts: Mapping[str, int]) -> Rental:
        return Rental(tuple(sorted((name, count) for name, count in counts.items() if count)))

    @property
    def by_type(self) -> dict[str, int]:
        return dict(self.counts)

    @property
    def gpus(self) -> int:
        return sum(count for _, count in self.counts)

    def changed(self, gpu_type: str, by: int) -> Rental:
        """Returns the rental with more or fewer GPUs of one type."""
        return Rental.of({**self.by_type, gpu_type: self.by_type.get(gpu_type, 0) + by})

    def __str__(self) -> str:
        return " and ".join(f"{count} {name}" for name, count in self.counts) or "nothing"


@dataclass(frozen=True)
class RentalMarket:
    """The GPUs that may be rented in addition to the declared nodes, which are there already and cost nothing more."""

    declared: DeclaredFiles
    most: Mapping[str, int]  # GPU type -> GPUs that may be rented
    price_per_hour: Mapping[str, float]

    @staticmethod
    def of(declared: DeclaredFiles) -> RentalMarket:
        """Returns the market that the files declare. Raises RentalRefused where nothing is rentable, or pools are."""
        _refuse_pools(declared)
        specs: dict[str, Mapping[str, Any]] = {manifest.name: manifest.spec for manifest in declared.of(Kind.GPU_TYPE)}
        most = {name: min(int(spec.get("rentable", 0)), MOST_RENTED_GPUS) for name, spec in specs.items()}
        most = {name: count for name, count in most.items() if count}
        if not most:
            listed = f"declared: {', '.join(sorted(specs))}" if specs else "no GpuType is declared"
            raise RentalRefused(
                f"no GPU may be rented: give at least one GpuType spec.rentable, how many of its GPUs there are to rent"
                f" ({listed})"
            )
        market = RentalMarket(
            declared, most, {name: price_per_hour(specs[name], "default", "onDemand") for name in most}
        )
        for node in market._rent(Rental.of(most)).values():
            if Key(Kind.NODE, "", node.name) in declared.manifests:
                raise RentalRefused(f"Node {node.name} has a name that is kept for rented GPUs; give it another")
        return market

    def price(self, rental: Rental) -> float:
        return sum(self.price_per_hour[name] * count for name, count in rental.counts)

    def dearest_first(self, rental: Rental) -> list[str]:
        """Returns the rented types by falling price."""
        return sorted(rental.by_type, key=lambda name: (-self.price_per_hour[name], name))

    def nodes(self, rental: Rental) -> list[Manifest]:
        """Returns the rented GPUs as nodes of one GPU each."""
        return [_manifest(node) for node in self._rent(rental).values()]

    def wide_node(self, number: int, gpu_type: str, gpus: int) -> Manifest:
        """Returns a node of several rented GPUs; its name is that of the rented node with this number."""
        (one,) = self._rent(Rental.of({gpu_type: 1})).values()
        cores, host_gib = one.cpu_cores * gpus, one.host_memory_gib * gpus
        return _manifest(
            replace(
                one, name=f"rent-{gpu_type}-{number}", gpus=gpu_indexes(gpus), cpu_cores=cores, host_memory_gib=host_gib
            )
        )

    def fleet(self, rental: Rental, rates: Mapping[str, float]) -> DeclaredFiles:
        """Returns the declared world with the rented GPUs, these rates, nothing more to rent, and without jobs."""
        kept: dict[Key, Manifest] = {}
        for key, manifest in self.declared.manifests.items():
            changed: dict[str, JSON] = {}
            if key.kind is Kind.GPU_TYPE:
                changed["rentable"] = 0
            elif key.kind is Kind.SERVICE and qualify_name(manifest) in rates:
                changed["ratePerSecond"] = rates[qualify_name(manifest)]
            if key.kind not in LEFT_OUT:
                kept[key] = replace(manifest, spec={**manifest.spec, **changed})
        return DeclaredFiles(kept | {node.key: node for node in self.nodes(rental)})

    def problem(self, rental: Rental, rates: Mapping[str, float], more: Mapping[str, int] | None = None) -> Problem:
        """Returns the problem of serving these rates on the rental, and at a price on so many `more` GPUs."""
        added = more or {}
        whole = Rental.of({name: rental.by_type.get(name, 0) + added.get(name, 0) for name in self.most})
        problem = bare_problem(build_problem(self.fleet(whole, rates)))
        priced = {
            node.name
            for node in self._rent(whole).values()
            if int(node.name.rsplit("-", 1)[1]) > rental.by_type.get(node.gpu_type, 0)
        }
        nodes = {
            name: replace(node, pricing="gpu" if name in priced else "paid") for name, node in problem.nodes.items()
        }
        highest = max(self.price_per_hour.values()) * UNSERVED_FACTOR
        lowest = min(service.priority for service in problem.services.values()) / 100
        policy = replace(
            problem.policy, pricing="gpu", unserved_price=max(problem.policy.unserved_price, highest / lowest)
        )
        if added:  # GPUs that are not rented in the end draw nothing
            policy = replace(policy, power_budget_w=None)
        return replace(problem, nodes=nodes, policy=policy)

    def useful(self, rates: Mapping[str, float]) -> dict[str, int]:
        """Returns how many GPUs of each type could be of use at these rates, by a generous estimate."""
        wanted = useful_counts(self._empty.change_rates(rates), self.most)
        return {name: min(count + FEW_GPUS, self.most[name]) for name, count in wanted.items()}

    def usable_by(self, services: Collection[str]) -> list[str]:
        """Returns the rentable types on which one of these services can run."""
        problem = self._empty
        return [
            gpu_type
            for gpu_type in sorted(self.most)
            if any(
                (service.model, variant, gpu_type) in problem.profiles
                for service in map(problem.services.__getitem__, services)
                if service.gpu_types is None or gpu_type in service.gpu_types
                for variant in service.variants
            )
        ]

    def has_gpus(self, rental: Rental) -> bool:
        """Returns whether the fleet with the rental has a GPU at all."""
        return bool(rental.counts or self._empty.nodes)

    def worth(self) -> dict[str, float]:
        """Returns the least price an hour of what a request a second of each service takes of rentable GPUs."""
        problem = self._empty
        each = {
            name: [
                price * gpus_per_rate(problem, service, (gpu_type,)) for gpu_type, price in self.price_per_hour.items()
            ]
            for name, service in problem.services.items()
        }
        return {name: min((cost for cost in costs if cost < inf), default=0.0) for name, costs in each.items()}

    @cached_property
    def _empty(self) -> Problem:
        return build_problem(self.declared)

    def _rent(self, rental: Rental) -> dict[str, Node]:
        return rentable_nodes(self._empty, rental.by_type, self.price_per_hour)


def _refuse_pools(declared: DeclaredFiles) -> None:
    """Refuses pools: a simulated planner would rent from them, too, beside what is tried, and nobody would count it."""
    pools: dict[str, WrittenSpec] = {pool.name: pool.spec for pool in declared.of(Kind.POOL)}
    if not pools:
        return
    gpus = Counter[str]()
    for spec in pools.values():
        gpus[str(spec["gpuType"])] += int(spec["max"]) * int(spec["gpusPerNode"])
    rentable = ", ".join(f"rentable {count} of GpuType {name}" for name, count in sorted(gpus.items()))
    raise RentalRefused(
        f"Pool {', '.join(sorted(pools))}: size rents GPUs one by one, and no nodes of pools: leave Pools out, and"
        f" state {rentable} in their place; `gpuwright simulate` plays a load with pools and says what their nodes cost"
    )


def _manifest(node: Node) -> Manifest:
    spec: dict[str, JSON] = {
        "gpuType": node.gpu_type,
        "gpus": node.gpu_count,
        "cpuCores": node.cpu_cores,
        "memoryGib": node.host_memory_gib,
    }
    if node.templates is not None:
        spec["templates"] = [name for name in sorted(node.templates) if not name.startswith(OWN)]
    return Manifest(Kind.NODE, "", node.name, spec)
