"""Counts what a plan changes of the instances that run, GPU by GPU, and prices it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import fsum

from solvers.planning.judge.changes import NO_CHANGES, ChangeTally, GpuChanges, changes_on
from solvers.planning.judge.readings import JudgedGpu
from solvers.planning.plan import Changes
from solvers.planning.problem import Instance, Place, Problem


class Churn:
    """The changes from what runs to the plan."""

    def __init__(self, problem: Problem) -> None:
        self._nodes = problem.nodes
        self._move_price = problem.policy.move_price
        self._running: dict[Place, list[Instance]] = defaultdict(list)
        for instance in problem.state.running if problem.state else ():
            self._running[instance.place].append(instance)
        self._changes: dict[Place, GpuChanges] = {}
        self._tally = ChangeTally()
        self._price: dict[Place, float] = {}  # of the GPU x SM% / 100 of what starts, moves or is resized; those over 0
        self._unsettled: set[Place] = set()

    @property
    def places(self) -> Iterable[Place]:
        """Returns the GPUs on which instances run."""
        return self._running.keys()

    def update(self, place: Place, gpu: JudgedGpu | None) -> None:
        """Takes over what the plan now places on this GPU."""
        planned = _first_here(place, gpu)
        found = changes_on(planned, self._running.get(place, ()))
        self._take_over(place, found)
        self._unsettled.add(place)
        if found.churned_sm_percent and place[0] in self._nodes:
            self._price[place] = self._nodes[place[0]].price_per_hour * found.churned_sm_percent / 100
        else:
            self._price.pop(place, None)

    def settle(self, gpus: dict[Place, JudgedGpu]) -> None:
        """From now on, the plan is what runs."""
        for place in self._unsettled:
            gpu = gpus.get(place)
            if here := _first_here(place, gpu):
                self._running[place] = here
                self._take_over(place, GpuChanges(keep=len(here)))
            else:
                self._running.pop(place, None)
                self._take_over(place, NO_CHANGES)
            self._price.pop(place, None)
        self._unsettled = set()

    def _take_over(self, place: Place, found: GpuChanges) -> None:
        self._tally.replace(self._changes.get(place, NO_CHANGES), found)
        self._changes[place] = found

    def total(self) -> Changes:
        return self._tally.total()

    def cost(self) -> float:
        """movePrice x sum over starts, moves and resizes of the GPU's price x smPercent / 100"""
        return self._move_price * fsum(self._price.values())


def _first_here(place: Place, gpu: JudgedGpu | None) -> list[Instance]:
    """Returns the instances on a GPU; one on several GPUs counts at the first of them, with the churn of all."""
    return [line.instance for line in gpu.residents if line.instance.place == place] if gpu else []
