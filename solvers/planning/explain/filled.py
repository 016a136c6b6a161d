"""Services that a search left out, though there is room for them beside the others, are served there."""

from __future__ import annotations

from dataclasses import replace

from solvers.planning.explain.applied import case, serves
from solvers.planning.explain.free_capacity import ground
from solvers.planning.explain.meter import Meter, SpentError
from solvers.planning.explain.options import Notes
from solvers.planning.explain.worth import worth
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem

STEPS = 5_000_000  # about a third of a second
STEPS_FOR_GROUND = 300  # each instance that stands


def fill_unserved(problem: Problem, plan: Plan, steps: int = STEPS) -> Plan:
    """The plan with all of those served that are worth it, the dearest to miss first, as far as the steps go."""

    def missed(name_and_rate: tuple[str, float]) -> tuple[float, str]:
        name, rate = name_and_rate
        return (-problem.services[name].priority * max(rate, 1.0), name)

    known, notes = None, Notes(Meter(steps))
    try:
        for name, _ in sorted(((left.service, left.rate_per_second) for left in plan.unserved), key=missed):
            if known is None:
                notes.meter.spend(STEPS_FOR_GROUND * len(plan.instances))
                known = ground(problem, plan.instances, plan.jobs)
            about = case(problem, plan, name, known, Notes(notes.meter, notes.measured))
            offered = serves(about)
            gain = worth(about, offered) if offered else None
            if gain and gain.is_worth_it:
                plan, known = gain.plan, None
    except SpentError:
        pass
    return replace(plan, unserved=tuple(sorted(plan.unserved, key=lambda left: left.service)))
