"""Follows new rates of services that are divided: the replanner changes the plan of their parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from solvers.planning.judge import judge
from solvers.planning.parts.choose import divide_as
from solvers.planning.parts.division import Division
from solvers.planning.parts.join import join_parts
from solvers.planning.plan import Changes, Plan, ServicePlan
from solvers.planning.problem import Problem
from solvers.planning.replan.replanner import Replanner
from solvers.planning.search.promise import keep


class WarmReplanner(Protocol):
    """A valid plan in a warm process, ready to follow rates."""

    def change(self, rates: Mapping[str, float]) -> tuple[str, ...]:
        """Changes the plan to follow new rates of these services; returns why a full plan is due."""

    @property
    def plan(self) -> Plan:
        """Returns the current plan."""


@dataclass
class PartsReplanner:
    """A valid plan in a warm process, as the plan of the parts of its services."""

    division: Division
    replanner: Replanner
    base: Plan

    def change(self, rates: Mapping[str, float]) -> tuple[str, ...]:
        """Changes the plan to follow new rates of these services; returns why a full plan is due."""
        reasons = self.replanner.change(self.division.of_rates(rates))
        self.division = replace(self.division, whole=self.division.whole.change_rates(rates))
        return reasons

    @property
    def plan(self) -> Plan:
        """Returns the current plan of the whole services."""
        found = self.replanner.plan
        services = ServicePlan(list(found.instances), list(found.unserved), "")
        whole = join_parts(self.division, services, self.base.instances)
        plan = replace(
            found, instances=tuple(whole.instances), unserved=tuple(whole.unserved), changes=Changes(), certificate=None
        )
        assert found.certificate
        verdict = judge(self.division.whole, plan, simulate=False, keeps=keep)
        return replace(plan, certificate=replace(found.certificate, cost=verdict.cost))


def follow_services(problem: Problem, plan: Plan) -> WarmReplanner:
    """Returns a replanner that holds a plan without language models ready to be followed."""
    division = divide_as(problem, plan)
    if division is None:
        return Replanner.of(problem, plan)
    return PartsReplanner(division, Replanner.of(division.problem, division.split_plan(plan)), plan)
