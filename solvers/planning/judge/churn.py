"""Counts what a plan changes of the instances that run, GPU by GPU, and prices it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import fsum

from solvers.planning.judge.changes import ChangeTally, GpuChanges, changes_on
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
        # Only of the GPUs that were looked at since the plan was last settled: on the others all that runs is kept
        self._planned: dict[Place, list[Instance]] = {}
        self._changes: dict[Place, GpuChanges] = {}
        self._running_count = sum(map(len, self._running.values()))
        self._tally = ChangeTally(self._running_count)
        self._price: dict[Place, float] = {}  # of the GPU x SM% / 100 of what starts, moves or is resized; those over 0

    @property
    def places(self) -> Iterable[Place]:
        """Returns the GPUs on which instances run."""
        return self._running.keys()

    def update(self, place: Place, gpu: JudgedGpu | None) -> None:
        """Takes over what the plan now places on this GPU."""
        planned, running = _first_here(gpu), self._running.get(place, ())
        found = changes_on(planned, running)
        before = self._changes.get(place) or GpuChanges(keep=len(running))
        if found != before:
            self._tally.replace(before, found)
        self._planned[place], self._changes[place] = planned, found
        if found.churned_sm_percent and place[0] in self._nodes:
            self._price[place] = self._nodes[place[0]].price_per_hour * found.churned_sm_percent / 100
        else:
            self._price.pop(place, None)

    def settle(self) -> None:
        """From now on, the plan is what runs."""
        for place, planned in self._planned.items():
            self._running_count += len(planned) - len(self._running.pop(place, ()))
            if planned:
                self._running[place] = planned
        self._tally = ChangeTally(self._running_count)
        self._planned, self._changes, self._price = {}, {}, {}

    def total(self) -> Changes:
        return self._tally.total()

    def cost(self) -> float:
        """movePrice x sum over starts, moves and resizes of the GPU's price x smPercent / 100"""
        return self._move_price * fsum(self._price.values())


def _first_here(gpu: JudgedGpu | None) -> list[Instance]:
    """Returns the instances on a GPU; one on several GPUs counts at the first of them, with the churn of all."""
    return [line.instance for line in gpu.residents if line.instance.gpu == gpu.index] if gpu else []
