"""Moves services off the GPUs on which a running job must stay and has no room next to them."""

from __future__ import annotations

from collections.abc import Sequence

from solvers.planning.explain.applied import case, find_offer, place_offer
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, PlacedJob, Problem


def reseat(problem: Problem, placed: Sequence[Instance], staying: Sequence[PlacedJob]) -> list[Instance]:
    """Returns a plan's instances; those of these jobs' GPUs run next to the jobs or elsewhere, or are dropped."""
    places = {place for job in staying for place in job.places}
    found = [instance for instance in placed if instance.place not in places]

    def dearest(name: str) -> tuple[float, str]:
        service = problem.services[name]
        return (-service.priority * service.rate_per_second, name)

    for name in sorted({instance.service for instance in placed if instance.place in places}, key=dearest):
        about = case(problem, Plan(tuple(found), tuple(staying)), name)
        found = place_offer(about, find_offer(about), problem)[0]
    return found
