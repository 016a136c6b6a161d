"""The rules of availability as the bound knows them."""

from __future__ import annotations

from dataclasses import replace

from solvers.planning.problem import Problem

FIRM = "no spot"


def relax_to_needed(problem: Problem) -> Problem:
    """Returns a problem that every valid plan of this one solves, too, for a search that knows GPUs alone.

    A service that no spot node may carry is kept off them.
    """
    firm = {name: s for name, s in problem.services.items() if s.availability.max_spot_share <= 0}
    if not firm or not any(node.purchase == "spot" for node in problem.nodes.values()):
        return problem
    nodes = {
        name: node if node.purchase == "spot" else replace(node, cell=FIRM) for name, node in problem.nodes.items()
    }
    changed = {name: replace(service, cells=frozenset({FIRM})) for name, service in firm.items()}
    return replace(problem, nodes=nodes, services={**problem.services, **changed})
