"""GSLICE (Dhakal et al., SoCC 2020): the smallest share and the batch that a service needs, found by trying all.

It goes by average latency and throughput of each service alone, and ignores interference. The placement on several
GPUs is not described for it; ours is first fit, services of the smallest share first: where GPUs are short, that serves
far more requests than the largest first, the other reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from lab.baselines.sharing.fleet import SharedShape, SharingFleet, leftovers, shared
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Knowledge, Place, Problem

STEP_PERCENT = 10


def plan_gslice(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns GSLICE's next plan."""
    return shared(problem, knowledge, _fill, "the smallest shares that are enough alone, first fit")


def plan_gslice_largest_first(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns GSLICE's next plan if services of the largest share are placed first."""
    fill = partial(_fill, largest_first=True)
    return shared(problem, knowledge, fill, "the smallest shares that are enough alone, first fit, the largest first")


def _fill(fleet: SharingFleet, *, largest_first: bool = False) -> None:
    wanted = []
    for name, service in fleet.problem.services.items():
        for rate in fleet.parts(service):
            least = [shape.sm_percent for place in fleet.places if (shape := _smallest(fleet, name, place, rate))]
            wanted.append((min(least, default=100), name, rate))
    for _, name, rate in sorted(wanted, reverse=largest_first):
        fitting = _first_fit(fleet, name, rate)
        place, shape = next(fitting, None) or next(leftovers(fleet, name, STEP_PERCENT), (None, None))
        if place and shape:
            fleet.put(place, name, shape)


def _first_fit(fleet: SharingFleet, name: str, rate: float) -> Iterator[tuple[Place, SharedShape]]:
    for place in fleet.places:
        shape = _smallest(fleet, name, place, rate)
        if shape and fleet.can_put(place, name, shape):
            yield place, shape


def _smallest(fleet: SharingFleet, name: str, place: Place, rate: float) -> SharedShape | None:
    """Returns the smallest share whose average latency and throughput are good enough at some batch."""
    service = fleet.problem.services[name]
    for sm_percent in range(STEP_PERCENT, 101, STEP_PERCENT):
        shapes = [fleet.shape_of(name, place, batch, sm_percent) for batch in fleet.batches(name, place)]
        enough = [
            shape
            for shape in shapes
            if shape and shape.per_second >= rate and _average_ms(shape, rate) <= service.slo_ms
        ]
        if enough:
            return max(enough, key=lambda shape: shape.per_second)
    return None


def _average_ms(shape: SharedShape, rate: float) -> float:
    """Returns half the time in which a batch fills, half of the batch that runs, and its own time."""
    return (shape.batch - 1) / 2 / rate * 1000 + 1.5 * shape.exec_ms
