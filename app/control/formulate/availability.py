"""Lifts rules of availability that what is left of the fleet cannot keep, so that all load is served; reports it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from solvers.planning.availability import ANYWHERE
from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.judge.readings import Resident, slow_down
from solvers.planning.judge.services import largest_apart, spot_within_share, survives_a_node
from solvers.planning.problem import Problem, Service

RULES = (largest_apart, survives_a_node, spot_within_share)


def relax_availability(problem: Problem) -> tuple[Mapping[str, Service], Mapping[str, str]]:
    """Returns the services, without the rules that running copies break and no plan can keep, and why.

    A plan leaves unserved what the rules do not allow to run. After the loss of a node that would take load off the
    copies that are left, which can carry it. A service without running copies keeps its rules.
    """
    broken = _broken(problem)
    if not broken:
        return problem.services, {}
    from solvers.planning.parts import is_served  # needs the planner's loops: only after a loss

    if is_served(problem):
        return problem.services, {}
    changed = {name: replace(problem.services[name], availability=ANYWHERE) for name in broken}
    why = {
        name: f"the fleet is too small for its availability now, its copies that run go on without it: {sentence}"
        for name, sentence in broken.items()
    }
    return {**problem.services, **changed}, why


def _broken(problem: Problem) -> dict[str, str]:
    """Returns the running services whose rules of availability do not hold, and what is wrong."""
    asking = {name for name, s in problem.services.items() if s.availability.binds(s.min_instances)}
    if not asking or not problem.state:
        return {}
    lines: dict[str, list[Resident]] = defaultdict(list)
    for gpu in gpus_with(problem, problem.state.running, problem.state.jobs).values():
        slow_down(gpu, problem.policy)
        for line in gpu.residents:
            lines[line.instance.service].append(line)
    found = {}
    for name in sorted(asking & lines.keys()):
        sentences = (rule(problem, problem.services[name], lines[name], ()) for rule in RULES)
        if wrong := next((sentence for sentence in sentences if sentence), ""):
            found[name] = wrong
    return found
