"""Follows new rates: language models by their instances, all else by the replanner of services or of their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from solvers.planning.beside import has_language_models, merge_language_instances, ordinary_part, wide_of
from solvers.planning.fleet.token_services import language_models
from solvers.planning.fleet.token_shapes import share_token_rate
from solvers.planning.parts.choose import divide_as
from solvers.planning.parts.division import Division
from solvers.planning.parts.join import join_parts
from solvers.planning.plan import NONE_UNSERVED_SHARE, Changes, Plan, ServicePlan, Unserved
from solvers.planning.problem import Instance, Problem
from solvers.planning.replan.replanner import Replanner

FULL_PLAN_DUE = "the running instances carry no more; a full plan is due"


@dataclass
class PlanFollower:
    """A valid plan in a warm process, ready to follow rates."""

    problem: Problem
    base: Plan  # without language models
    models: Sequence[Instance]
    division: Division | None
    replanner: Replanner | None  # None where there are language models alone
    unserved: dict[str, Unserved] = field(default_factory=dict)  # of language models

    @classmethod
    def of(cls, problem: Problem, plan: Plan) -> PlanFollower:
        """Reads a plan of this problem, and computes all prices from scratch, which takes a while."""
        rest, base = ordinary_part(problem, plan)
        division = divide_as(rest, base)
        replanner = None
        if division is not None:
            replanner = Replanner.of(division.problem, division.split_plan(base))
        elif rest.services or not has_language_models(problem):
            replanner = Replanner.of(rest, base)
        return cls(problem, base, wide_of(problem, plan.instances), division, replanner)

    def change(self, rates: Mapping[str, float]) -> tuple[str, ...]:
        """Changes the plan to follow new rates of these services; returns why a full plan is due."""
        self.problem = self.problem.change_rates(rates)
        of_rest = {name: rate for name, rate in rates.items() if self.problem.services[name].tokens is None}
        reasons: tuple[str, ...] = ()
        if self.replanner and (of_rest or not rates):
            reasons = self.replanner.change(self.division.of_rates(of_rest) if self.division else of_rest)
        if self.division:
            self.division = replace(self.division, whole=self.division.whole.change_rates(of_rest))
        self._share_rates()
        missed = (f"{entry.rate_per_second:g}/s of {name} stay unserved" for name, entry in self.unserved.items())
        return (*reasons, *missed)

    @property
    def plan(self) -> Plan:
        """Returns the current plan."""
        found = self.replanner.plan if self.replanner else replace(self.base, changes=Changes())
        if self.division:
            services = ServicePlan(list(found.instances), list(found.unserved), "")
            whole = join_parts(self.division, services, self.base.instances)
            found = replace(found, instances=tuple(whole.instances), unserved=tuple(whole.unserved))
        elif not has_language_models(self.problem):
            return found
        plan, _ = merge_language_instances(self.problem, found, self.models, self.unserved, simulate=False)
        assert plan.certificate
        return replace(plan, changes=Changes(), certificate=replace(plan.certificate, bound=None))

    def _share_rates(self) -> None:
        """Gives language models parts of the present rates, none over what it carries, and notes what is left."""
        found: list[Instance] = []
        self.unserved = {}
        for name, service in sorted(language_models(self.problem).items()):
            mine = share_token_rate(self.problem, service, [line for line in self.models if line.service == name])
            found += mine
            left = service.rate_per_second - sum(line.rate_per_second for line in mine)
            if left > NONE_UNSERVED_SHARE * service.rate_per_second:
                self.unserved[name] = Unserved(name, left, FULL_PLAN_DUE)
        self.models = found
