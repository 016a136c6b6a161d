"""Services leave the GPUs on which a running job must stay and cannot beside them, and are served from what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from solvers.planning.explain.applied import case, offer, renewed
from solvers.planning.explain.seats import instances
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, PlacedJob, Problem


def reseat(problem: Problem, stand: Sequence[Instance], staying: Sequence[PlacedJob]) -> list[Instance]:
    """The instances of a plan with all that stood on these jobs' GPUs elsewhere, or beside them, or gone."""
    places = {job.place for job in staying}
    found = [one for one in stand if one.place not in places]

    def dearest(name: str) -> tuple[float, str]:
        service = problem.services[name]
        return (-service.priority * service.rate_per_second, name)

    for name in sorted({one.service for one in stand if one.place in places}, key=dearest):
        about = case(problem, Plan(tuple(found), tuple(staying)), name)
        offered = offer(about)
        kept = [replace(one, rate_per_second=rate) for one, rate in zip(offered.kept, offered.found.own, strict=True)]
        new = instances(offered.found, about.terms)
        others = [one for one in found if one.service != name]
        at = {one.place for one in (*about.own, *new)}
        found = renewed(problem, (*others, *kept, *new), staying, at)[0]
    return found
