"""Whether the change that an explanation names serves the service: `python -m tests.proofs.relaxations --cases 200`.

Small fleets of every kind are planned; some then lose a node, or are asked for more. Each service that is left
unserved, and each that was served before and no longer is, is explained, the change that is named is made, and the
referee simulates the plan that it leads to: it must be right, serve the service whole, and leave all others what they
have. What has no such change (nothing helps, or a profile is missing) is counted apart.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from app.control.answer.explain.service import why_service
from solvers.planning import explain
from solvers.planning.explain.fleet import fleet
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem, RunningState
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.random_problems import random_problem

QUICK = SolveBudget(seconds=None, work=1)
PRICED_OUT = 1.0  # unservedPrice below which leaving a service out may be what is wanted


@dataclass(frozen=True, slots=True)
class Case:
    """One explained service."""

    seed: int
    service: str
    is_displaced: bool
    relaxation: str
    holds: bool
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """All cases that have a change, and how many have none."""

    cases: tuple[Case, ...]
    without: int

    @property
    def failed(self) -> list[Case]:
        return [case for case in self.cases if not case.holds]


def prove(count: int, first: int = 0) -> Found:
    """So many services with a named change, the first seeds first."""
    cases: list[Case] = []
    without, seed = 0, first
    while len(cases) < count:
        for case in explained(seed):
            if case is None:
                without += 1
            elif len(cases) < count:
                cases.append(case)
        seed += 1
    return Found(tuple(cases), without)


def explained(seed: int) -> Iterator[Case | None]:
    """Every unserved service of one problem; None for one that no single change serves."""
    problem, before = scarce(seed)
    plan = solve(problem, QUICK)
    served = {one.service for one in before.instances} - {left.service for left in before.unserved}
    for left in plan.unserved:
        found = with_its_relaxation(problem, plan, left.service)
        if found is None:
            yield None
            continue
        why = why_service(problem, plan, left.service).missing
        assert why, "what is unserved has its reason"
        broken = wrong(plan, left.service, *found)
        yield Case(seed, left.service, left.service in served, why.relaxation, not broken and why.is_proved, broken)


def with_its_relaxation(problem: Problem, plan: Plan, name: str) -> tuple[Problem, Plan] | None:
    """Returns the problem after the named change, and the plan that serves the service then; None where none helps."""
    about = explain.case(problem, plan, name)
    change = explain.explain_service(about, fleet(about.rooms)).change
    return (change.problem, change.plan) if change else None


def wrong(plan: Plan, name: str, changed: Problem, after: Plan) -> str:
    """What is wrong with the plan that a change leads to; nothing where the service is served whole by it."""
    verdict = judge(changed, after)
    if verdict.violations:
        return str(verdict.violations[0])
    if name in {left.service for left in after.unserved}:
        return "the service is not served whole"
    if kept(plan, name) != kept(after, name):
        return "another service is not what it was"
    return ""


def kept(plan: Plan, but: str) -> set[tuple[object, ...]]:
    """What the others have."""
    return {
        (one.id, one.place, one.variant, one.batch, one.sm_percent, one.rate_per_second)
        for one in plan.instances
        if one.service != but
    }


def scarce(seed: int) -> tuple[Problem, Plan]:
    """A problem in which something is short, and the plan before it was."""
    r = Random(seed)
    problem = random_problem(seed)
    if problem.policy.unserved_price < PRICED_OUT:
        problem = replace(problem, policy=replace(problem.policy, unserved_price=1000.0))
    before = solve(replace(problem, state=None), QUICK)
    twist = r.randrange(3)
    if twist == 0 and len(problem.nodes) > 1:
        return _without_a_node(problem, before, r.choice(sorted(problem.nodes))), before
    name = r.choice(sorted(problem.services))
    times = r.choice([5.0, 30.0]) if twist == 1 else 1.0
    services = {**problem.services}
    service = services[name]
    services[name] = replace(
        service, rate_per_second=service.rate_per_second * times, slo_ms=service.slo_ms * (0.3 if twist == 2 else 1.0)
    )
    return _running(replace(problem, services=services), before), before


def _without_a_node(problem: Problem, before: Plan, gone: str) -> Problem:
    nodes = {name: node for name, node in problem.nodes.items() if name != gone}
    return _running(replace(problem, nodes=nodes, state=None), before)


def _running(problem: Problem, before: Plan) -> Problem:
    """What still runs of the plan before, where the problem still knows it."""
    running = tuple(one for one in before.instances if one.node in problem.nodes)
    jobs = tuple(job for job in before.jobs if job.node in problem.nodes)
    now = problem.state.now if problem.state else None
    return replace(problem, state=RunningState(now, running, jobs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed to begin with")
    args = parser.parse_args()
    found = prove(args.cases, args.first)
    displaced = sum(case.is_displaced for case in found.cases)
    for case in found.failed:
        print(f"seed {case.seed}: {case.service}: {case.relaxation}: {case.broken}")
    print(
        f"{len(found.cases) - len(found.failed)} of {len(found.cases)} served by the change that was named "
        f"({displaced} were served before); {found.without} more have no single change that helps"
    )
    return 1 if found.failed else 0


if __name__ == "__main__":
    sys.exit(main())
