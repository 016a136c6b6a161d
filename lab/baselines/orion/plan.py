"""Places latency-critical services first, apart from each other; best effort goes where it needs something else."""

from __future__ import annotations

from random import Random

from solvers.interference.affinity import compute_to_memory
from solvers.planning.fleet.offers import FleetShape
from solvers.planning.growing import GrowingFleet, is_critical
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Instance, Knowledge, Place, Problem, Service

COMPUTE_INTENSIVE_RATIO = 1.2
MOST_ROUNDS = 200
WAITS = "waits: each GPU has a high-priority client, or one that needs the same of it"


def plan(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns the next plan; the choice among GPUs is random, by the seed and the time."""
    state = problem.state
    random = Random(f"orion {budget.seed} {state.now if state else None}")  # noqa: S311 (a simulation of chance)
    fleet = GrowingFleet(problem)
    fleet.stop_spare(lambda seat: fleet.rates[seat.id])
    order = sorted(problem.services.values(), key=lambda service: (-service.priority, service.name))
    for service in order:
        for _ in range(MOST_ROUNDS):
            if not fleet.is_lacking(service) or not (able := _able(fleet, service)):
                break
            fleet.add(service, *random.choice(able))
            fleet.count()
    return fleet.draft("a high-priority client on each GPU, best effort beside it", WAITS)


def _able(fleet: GrowingFleet, service: Service) -> list[tuple[FleetShape, Place]]:
    """Returns for each GPU that may take the service the best shape there."""
    best: dict[Place, FleetShape] = {}
    for shape in reversed(fleet.best_first(service)):
        for place in fleet.rooms.places_for(shape, service):
            if all(_may_share(fleet.problem, service, shape, line) for line in fleet.at(place)):
                best[place] = shape
    return [(shape, place) for place, shape in sorted(best.items(), key=lambda entry: entry[0])]


def _may_share(problem: Problem, service: Service, shape: FleetShape, line: Instance) -> bool:
    other = problem.services[line.service]
    if is_critical(service) and is_critical(other):
        return False
    mine = _computes(problem, service, shape.variant, shape.batch, shape.pool.gpu_type)
    return mine != _computes(problem, other, line.variant, line.batch, shape.pool.gpu_type)


def _computes(problem: Problem, service: Service, variant: str, batch: int, gpu_type: str) -> bool:
    profile = problem.profiles[service.model, variant, gpu_type]
    return compute_to_memory(profile.latency_ms[batch]) >= COMPUTE_INTENSIVE_RATIO
