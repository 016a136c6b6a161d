"""gpulet (Choi et al., USENIX ATC 2022): GPUs in at most two pieces, the smallest that are efficient or enough.

Services of the highest rate come first. A piece is as small as the load allows, and no larger than the size of most
throughput for its SMs; the smallest free piece of that size is taken, and a whole GPU is split. A batch takes less than
half of the SLO; ours, in its favour, is the one of these that carries most, since the largest leaves little for a
queue. It ignores interference, as InSS describes it.
"""

from __future__ import annotations

from lab.baselines.sharing.fleet import LEAST_SHARE, SharedShape, SharingFleet, shared
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Knowledge, Place, Problem

SIZES_PERCENT = (20, 40, 50, 60, 80, 100)
Piece = tuple[Place, int]


def plan_gpulet(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns gpulet's next plan."""
    return shared(problem, knowledge, _fill, "pieces by best fit, batches below half of the SLO")


def _fill(fleet: SharingFleet) -> None:
    pieces = {place: [100] if fleet.free_percent(place) == 100 else [] for place in fleet.places}
    for name, service in sorted(
        fleet.problem.services.items(), key=lambda entry: (-entry[1].rate_per_second, entry[0])
    ):
        rest, made = service.rate_per_second, 0
        while (rest > LEAST_SHARE * service.rate_per_second or made < service.min_instances) and made < len(pieces):
            found = _best_fit(fleet, pieces, name, rest)
            if found is None:
                break
            (place, size), shape = found
            pieces[place].remove(size)
            if size == 100 and shape.sm_percent < 100:
                pieces[place].append(100 - shape.sm_percent)
            fleet.put(place, name, shape)
            rest, made = rest - shape.per_second, made + 1


def _best_fit(
    fleet: SharingFleet, pieces: dict[Place, list[int]], name: str, rest: float
) -> tuple[Piece, SharedShape] | None:
    """Returns the smallest free piece of the ideal size, else the largest that is left."""
    fitting: list[tuple[tuple[int, Place], Piece, SharedShape]] = []
    smaller: list[tuple[tuple[float, Place], Piece, SharedShape]] = []
    for place, sizes in pieces.items():
        if not sizes:
            continue
        shapes = {size: shape for size in SIZES_PERCENT if (shape := _shape(fleet, name, place, size))}
        if not shapes:
            continue
        efficient = max(shapes, key=lambda size: (shapes[size].per_second / size, size))
        enough = min((size for size in shapes if shapes[size].per_second >= rest), default=efficient)
        ideal = min(efficient, enough)
        for size in sizes:
            taken = ideal if size == 100 else size
            if taken in shapes and fleet.can_put(place, name, shapes[taken]):
                if size >= ideal:
                    fitting.append(((size, place), (place, size), shapes[taken]))
                else:
                    smaller.append(((-shapes[taken].per_second, place), (place, size), shapes[taken]))
    if fitting:
        return min(fitting, key=lambda entry: entry[0])[1:]
    return min(smaller, key=lambda entry: entry[0])[1:] if smaller else None


def _shape(fleet: SharingFleet, name: str, place: Place, size: int) -> SharedShape | None:
    """Returns the batch below half of the SLO that carries most alone."""
    known = [shape for batch in fleet.batches(name, place) if (shape := fleet.shape_of(name, place, batch, size))]
    half_ms = fleet.problem.services[name].slo_ms / 2
    found = [shape for shape in known if shape.exec_ms <= half_ms and shape.per_second > 0]
    return max(found, key=lambda shape: shape.per_second, default=None)
