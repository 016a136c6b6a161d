"""What is asked of solvers: a problem, what of the fleet it is about, and what stands, judged by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from agents.contract import AssignedInstance
from app.control.formulate.running import running_plan
from app.store.plans.pieces import hashed
from solvers.planning.judge import Verdict, judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem


@dataclass(frozen=True)
class Question:
    """A problem, and what of the fleet it is about."""

    problem: Problem
    pinned: tuple[tuple[str, AssignedInstance], ...] = ()  # (node, instance): as they are, whatever is planned
    short: Mapping[str, str] = field(default_factory=dict)  # services that ask for more GPUs than are there: in words

    @cached_property
    def fingerprint(self) -> bytes:
        """What makes two problems the same question: not the time of day, nor how far jobs are and how they press."""
        problem = self.problem
        state = replace(problem.state, now=None) if problem.state else None
        nodes = [(replace(node, templates=None), sorted(node.templates or ())) for node in problem.nodes.values()]
        rest = replace(problem, state=None, nodes={}, profiles={}, services={}, jobs={})
        jobs = [replace(job, units=0.0, priority=0) for job in problem.jobs.values()]
        named = [*problem.profiles.values(), *problem.services.values(), *jobs]
        return hashed(msgspec.json.encode((rest, state, nodes, named, self.pinned)))

    @cached_property
    def plan_in_force(self) -> Plan:
        """The plan in force."""
        return running_plan(self.problem)

    @cached_property
    def verdict(self) -> Verdict:
        """Of the judge, on the plan in force."""
        from solvers.planning.search.promise import (
            keep,  # it needs the solvers, and who reads plans may be without them
        )

        return judge(self.problem, self.plan_in_force, simulate=False, keeps=keep)

    @property
    def falls_short(self) -> bool:
        """Whether the plan in force leaves something unserved, or breaks a rule by now: a promise, mostly."""
        return bool(self.plan_in_force.unserved) or not self.verdict.is_right
