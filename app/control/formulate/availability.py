"""Lifts rules of availability that what is left of the fleet cannot keep, so that all load is served; reports it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

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
    broken = _find_broken(problem)
    if not broken:
        return problem.services, {}
    if _is_served(_Asked(problem)):
        return problem.services, {}
    changed = {name: replace(problem.services[name], availability=ANYWHERE) for name in broken}
    why = {
        name: f"the fleet is too small for its availability now, its copies that run go on without it: {sentence}"
        for name, sentence in broken.items()
    }
    return {**problem.services, **changed}, why


class _Asked:
    """A problem. It equals another if a search finds the same for both: time and the progress of jobs do not count."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.rates = hash(tuple(service.rate_per_second for service in problem.services.values()))

    def __hash__(self) -> int:
        return self.rates

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Asked):
            return NotImplemented
        return self.rates == other.rates and self._rests_on() == other._rests_on()

    def _rests_on(self) -> tuple[object, ...]:
        p, state = self.problem, self.problem.state
        jobs = state.jobs if state else ()
        staying = {place for job in jobs if not p.jobs[job.job].is_preemptible for place in job.places}
        running = state.running if state else ()
        return (p.services, p.nodes, running, staying, p.limits, p.policy, p.gpu_types, p.models, p.profiles)


@lru_cache(maxsize=4)
def _is_served(asked: _Asked) -> bool:
    """Returns whether some plan keeps the rules and serves everything. A cycle asks the same several times."""
    from solvers.planning.parts import is_served  # needs the planner's loops: only after a loss

    return is_served(asked.problem)


def _find_broken(problem: Problem) -> dict[str, str]:
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
