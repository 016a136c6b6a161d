"""The plan in force, laid over today's question."""

from __future__ import annotations

from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Problem

NONE_UNSERVED = 1e-5  # of a rate


def as_it_stands(problem: Problem) -> Plan:
    """What runs, as a plan; what it does not carry of today's rates is unserved."""
    running = problem.state.running if problem.state else ()
    carried = dict.fromkeys(problem.services, 0.0)
    for one in running:
        carried[one.service] += one.rate_per_second
    left = [
        Unserved(name, service.rate_per_second - carried[name])
        for name, service in sorted(problem.services.items())
        if service.rate_per_second - carried[name] > NONE_UNSERVED * service.rate_per_second
    ]
    return Plan(running, problem.state.jobs if problem.state else (), tuple(left))
