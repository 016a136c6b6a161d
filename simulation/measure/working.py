"""Reads from a simulated fleet how many SMs work and what it draws."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from statistics import fmean, pstdev

import numpy as np

from agents.keeper.copies import NodeCopy, Stage
from simulation.fleet.fleet import SimulatedFleet
from simulation.fleet.node import BEGAN_MJ
from solvers.planning.problem import Problem

MJ_IN_A_KWH = 3.6e9  # millijoules


class FleetUse:
    """The energy that a fleet's GPUs have drawn, and how much of their SMs worked, since the measurement began."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self._fleet, self._drawn_mj = fleet, energy_mj(fleet)
        self._working: Counter[tuple[str, str]] = Counter()
        self._present: Counter[tuple[str, str]] = Counter()  # moments: rented GPUs come and go

    def look(self) -> None:
        """Counts this moment."""
        now = gpu_use(self._fleet, with_jobs=True)
        self._working.update(now)
        self._present.update(now.keys())

    def figures(self) -> dict[str, object]:
        """Returns kilowatt-hours, and the mean share of SMs at work with its standard deviation among GPUs."""
        shares = [self._working[gpu] / moments for gpu, moments in self._present.items()]
        use = {"mean": fmean(shares), "spread": pstdev(shares)} if shares else {"mean": 0.0, "spread": 0.0}
        return {
            "energyKwh": round((energy_mj(self._fleet) - self._drawn_mj) / MJ_IN_A_KWH, 6),
            "utilisation": {name: round(share, 6) for name, share in use.items()},
        }


def gpu_use(fleet: SimulatedFleet, *, with_jobs: bool = False) -> dict[tuple[str, str], float]:
    """Returns the share of each GPU's SMs that work at this moment, as a device would count them.

    A job that runs keeps all of its SMs at work.
    """
    problem = fleet.truth.problem
    found = {(node.name, gpu): 0.0 for node in fleet.nodes.values() for gpu in node.uuids}
    for node in fleet.nodes.values():
        for copy in node.serving():
            for gpu in copy.devices:
                found[node.name, gpu] += node.work[copy.id].busy_share * find_needed_share(problem, node.name, copy)
        for copy in node.alive() if with_jobs else ():
            if copy.stage is Stage.READY and not copy.served:
                for gpu in copy.devices:
                    found[node.name, gpu] += copy.wanted.sm_percent / 100
    return found


def energy_mj(fleet: SimulatedFleet) -> int:
    """Returns what all GPUs have drawn since the beginning, those of machines that are gone included."""
    return sum(mj - BEGAN_MJ for node in fleet.machines for mj in node.energy_mj.values())


def find_needed_share(problem: Problem, node: str, copy: NodeCopy) -> float:
    """Returns the share of a GPU's SMs that a copy needs: an instance that is busy keeps no more of them at work than
    its batches need at the share on which they waste least."""
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
