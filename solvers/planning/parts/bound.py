"""The rules of availability as the bound knows them."""

from __future__ import annotations

from dataclasses import replace

from solvers.planning.problem import Problem


def needed(problem: Problem) -> Problem:
    """Returns a problem that every valid plan of this one solves, too, for a search that knows GPUs alone.

    A service that survives the loss of any one node has instances on two nodes at least, so on two GPUs.
    """
    changed = {
        name: replace(service, min_instances=max(service.min_instances, 2))
        for name, service in problem.services.items()
        if service.availability.survive_nodes
    }
    return replace(problem, services={**problem.services, **changed}) if changed else problem
