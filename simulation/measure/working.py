"""Reads from a simulated fleet how many SMs work, what it draws, and what the GPU memory of its instances costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, pstdev

import numpy as np

from agents.keeper.copies import NodeCopy, Stage
from simulation.fleet import SimulatedFleet
from solvers.planning.problem import Problem

MJ_IN_A_KWH = 3.6e9  # millijoules


@dataclass(frozen=True, slots=True)
class SmUse:
    """GPUs' worth of SMs that work, of GPUs in use, and of all, added up over moments."""

    working: float = 0.0
    used: int = 0
    gpus: int = 0

    def __add__(self, other: SmUse) -> SmUse:
        return SmUse(self.working + other.working, self.used + other.used, self.gpus + other.gpus)

    @property
    def of_fleet(self) -> float:
        return self.working / max(1, self.gpus)

    @property
    def of_used(self) -> float:
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
            share = node.work[copy.id].busy_share * _needed_share(problem, node.name, copy)
            working += share * len(copy.devices)
    return SmUse(working, used, gpus)


class FleetUse:
    """The energy that a fleet's GPUs have drawn, and how much of their SMs worked, since the measurement began."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self._fleet, self._drawn_mj, self._moments = fleet, energy_mj(fleet), 0
        self._working: Counter[tuple[str, str]] = Counter()

    def look(self) -> None:
        """Counts this moment."""
        self._working.update(gpu_use(self._fleet, with_jobs=True))
        self._moments += 1

    def figures(self) -> dict[str, object]:
        """Returns kilowatt-hours, and the mean share of SMs at work with its standard deviation among GPUs."""
        shares = [self._working[gpu] / max(1, self._moments) for gpu in gpu_use(self._fleet)]
        use = {"mean": fmean(shares), "spread": pstdev(shares)} if shares else {"mean": 0.0, "spread": 0.0}
        return {
            "energyKwh": round((energy_mj(self._fleet) - self._drawn_mj) / MJ_IN_A_KWH, 6),
            "utilisation": {name: round(share, 6) for name, share in use.items()},
        }


def gpu_use(fleet: SimulatedFleet, *, with_jobs: bool = False) -> dict[tuple[str, str], float]:
    """Returns the share of each GPU's SMs that work at this moment, counted as `sm_use` does.

    A job that runs keeps all of its SMs at work.
    """
    problem = fleet.truth.problem
    found = {(node.name, gpu): 0.0 for node in fleet.nodes.values() for gpu in node.uuids}
    for node in fleet.nodes.values():
        for copy in node.serving():
            for gpu in copy.devices:
                found[node.name, gpu] += node.work[copy.id].busy_share * _needed_share(problem, node.name, copy)
        for copy in node.alive() if with_jobs else ():
            if copy.stage is Stage.READY and not copy.served:
                for gpu in copy.devices:
                    found[node.name, gpu] += copy.wanted.sm_percent / 100
    return found


def energy_mj(fleet: SimulatedFleet) -> int:
    """Returns what all GPUs have drawn since the beginning."""
    return sum(sum(node.energy_mj.values()) for node in fleet.nodes.values())


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


def _needed_share(problem: Problem, node: str, copy: NodeCopy) -> float:
    wanted = copy.wanted
    profile = problem.profiles.get((wanted.model, wanted.variant, problem.nodes[node].gpu_type))
    batch = int(wanted.batch.planned) if wanted.batch else 1
    if profile is None or batch not in profile.latency_ms:
        return wanted.sm_percent / 100
    return min(wanted.sm_percent, _least_sm_percent(tuple(profile.latency_ms[batch]), wanted.sm_percent)) / 100


@lru_cache(maxsize=1024)
def _least_sm_percent(curve: tuple[tuple[int, float], ...], sm_percent: float) -> float:
    """Returns the SM% that would do an instance's work at the share on which it wastes least."""
    here = float(np.interp(sm_percent, [sm for sm, _ in curve], [ms for _, ms in curve]))
    return min(sm * ms for sm, ms in curve) / here
