"""Reads from a simulated fleet the SMs that work, of all and of GPUs in use, and what the memory of instances costs."""

from __future__ import annotations

from dataclasses import dataclass

from simulation.fleet.fleet import SimulatedFleet
from simulation.measure.working import find_needed_share
from solvers.oltunes.fleet.candidates import estimate_power_w


@dataclass(frozen=True, slots=True)
class SmUse:
    """GPUs' worth of SMs that work, of GPUs in use, and of all, added up over moments."""

    working: float = 0.0
    used: int = 0
    gpus: int = 0

    def __add__(self, other: SmUse) -> SmUse:
        return SmUse(self.working + other.working, self.used + other.used, self.gpus + other.gpus)

    @property
    def fleet_share(self) -> float:
        return self.working / max(1, self.gpus)

    @property
    def used_share(self) -> float:
        return self.working / max(1, self.used)


def sm_use(fleet: SimulatedFleet) -> SmUse:
    """Returns the SMs that do work at this moment, as a device would count them.

    An instance that is busy keeps no more SMs at work than its batches need at the share on which they waste least.
    """
    problem, working, used, gpus = fleet.truth.problem, 0.0, 0, 0
    for node in fleet.nodes.values():
        gpus += problem.nodes[node.name].gpu_count
        serving = node.serving()
        used += len({gpu for copy in serving for gpu in copy.devices})
        for copy in serving:
            share = node.work[copy.id].busy_share * find_needed_share(problem, node.name, copy)
            working += share * len(copy.devices)
    return SmUse(working, used, gpus)


def estimate_fleet_power_w(fleet: SimulatedFleet) -> float:
    """Returns what all instances draw at this moment by OLTunes' estimate (7): each has a GPU's idle power."""
    problem, total = fleet.truth.problem, 0.0
    for node in fleet.nodes.values():
        for copy in node.serving():
            wanted, batch = copy.wanted, copy.wanted.batch.planned if copy.wanted.batch else 1.0
            key = (wanted.model, wanted.variant, problem.nodes[node.name].gpu_type)
            seconds = fleet.truth.exec_ms(key, batch, wanted.sm_percent, ()) / 1000
            gpu = problem.type_of(node.name)
            total += estimate_power_w(gpu, wanted.sm_percent, wanted.memory_gib, seconds) * len(copy.devices)
    return total


def memory_prices(fleet: SimulatedFleet) -> tuple[dict[str, float], dict[str, float]]:
    """Returns by service the price an hour of the memory that its copies hold, and of all memory of their GPUs.

    A GPU's price is that of its memory, as HetSev bills it (section 6.3).
    """
    used, whole = dict.fromkeys(fleet.services, 0.0), dict.fromkeys(fleet.services, 0.0)
    for node in fleet.nodes.values():
        price = fleet.truth.problem.nodes[node.name].price_per_hour
        memory_gib = fleet.truth.problem.type_of(node.name).memory_gib
        for copy in node.alive():
            if copy.served:
                used[copy.service] += price * copy.wanted.memory_gib / memory_gib * len(copy.devices)
                whole[copy.service] += price * len(copy.devices)
    return used, whole
