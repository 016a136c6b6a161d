"""Follows new rates of language models by the instances that run, and of all else by the replanner of the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from solvers.planning.beside import has_language_models, merge_language_instances, narrow_problem, nothing_left, wide_of
from solvers.planning.fleet.token_services import language_models
from solvers.planning.fleet.token_shapes import carried_by, predicted
from solvers.planning.parts.follow import WarmReplanner, follow_services
from solvers.planning.plan import NONE_UNSERVED_SHARE, Changes, Plan, Unserved
from solvers.planning.problem import Instance, Problem, Service

FULL_PLAN_DUE = "the running instances carry no more; a full plan is due"
SAME_SHARE = 1e-12  # of a rate: rounding makes no other line


def set_present_rates(problem: Problem, wide: Sequence[Instance]) -> tuple[list[Instance], dict[str, Unserved]]:
    """Returns the instances with parts of the present rates, none over what it carries, and what is left."""
    found: list[Instance] = []
    rest: dict[str, Unserved] = {}
    for name, service in sorted(language_models(problem).items()):
        mine = [line for line in wide if line.service == name]
        found += _share_rate(problem, service, mine)
        left = service.rate_per_second - sum(line.rate_per_second for line in found if line.service == name)
        if left > NONE_UNSERVED_SHARE * service.rate_per_second:
            rest[name] = Unserved(name, left, FULL_PLAN_DUE)
    return found, rest


def _share_rate(problem: Problem, service: Service, mine: Sequence[Instance]) -> list[Instance]:
    """Returns a service's instances at the same parts of its rate as before, up to what each carries."""
    most = [carried_by(problem, service, line) for line in mine]
    before = sum(line.rate_per_second for line in mine)
    wanted = [service.rate_per_second * line.rate_per_second / before for line in mine] if before > 0 else most
    if any(rate > limit for rate, limit in zip(wanted, most, strict=True)):
        served, total = min(service.rate_per_second, sum(most)), sum(most)
        wanted = [limit * served / total for limit in most] if total > 0 else most
    return [_set_rate(problem, service, line, rate) for line, rate in zip(mine, wanted, strict=True) if rate > 0]


def _set_rate(problem: Problem, service: Service, line: Instance, rate: float) -> Instance:
    if abs(line.rate_per_second - rate) <= SAME_SHARE * rate:
        return line
    return predicted(problem, service, replace(line, rate_per_second=rate))


@dataclass
class MixedReplanner:
    """A valid plan in a warm process: its language models, and a replanner of the rest."""

    problem: Problem
    base: Plan
    wide: list[Instance]
    rest: WarmReplanner | None
    unserved: dict[str, Unserved]
    is_full: bool = False  # language models hold every GPU

    @classmethod
    def of(cls, problem: Problem, plan: Plan) -> MixedReplanner:
        wide = wide_of(problem, plan.instances)
        narrow = narrow_problem(problem, wide)
        rest = follow_services(narrow, _leave_out_models(problem, plan)) if narrow and narrow.services else None
        return cls(problem, plan, wide, rest, {}, narrow is None)

    def change(self, rates: Mapping[str, float]) -> tuple[str, ...]:
        """Changes the plan to follow new rates of these services; returns why a full plan is due."""
        self.problem = self.problem.change_rates(rates)
        of_rest = {name: rate for name, rate in rates.items() if self.problem.services[name].tokens is None}
        reasons = self.rest.change(of_rest) if self.rest and (of_rest or not rates) else ()
        self.wide, self.unserved = set_present_rates(self.problem, self.wide)
        missed = (f"{entry.rate_per_second:g}/s of {name} stay unserved" for name, entry in self.unserved.items())
        return (*reasons, *missed)

    @property
    def plan(self) -> Plan:
        """Returns the current plan of everything."""
        narrow = nothing_left(self.problem) if self.is_full else _leave_out_models(self.problem, self.base)
        narrow = self.rest.plan if self.rest else replace(narrow, changes=Changes())
        plan, _ = merge_language_instances(self.problem, narrow, self.wide, self.unserved, simulate=False)
        assert plan.certificate
        return replace(plan, changes=Changes(), certificate=replace(plan.certificate, bound=None))


def replanner_of(problem: Problem, plan: Plan) -> WarmReplanner:
    """Returns a replanner that holds the plan ready to be followed."""
    follow = MixedReplanner.of if has_language_models(problem) else follow_services
    return follow(problem, plan)


def _leave_out_models(problem: Problem, plan: Plan) -> Plan:
    """Returns the part of a plan that is not of language models."""
    wide = {line.service for line in wide_of(problem, plan.instances)}
    models = language_models(problem).keys() | wide
    return replace(
        plan,
        instances=tuple(line for line in plan.instances if line.service not in models),
        unserved=tuple(entry for entry in plan.unserved if entry.service not in models),
    )


def plan_beside_models(problem: Problem, planned: Callable[[Problem], Plan]) -> Plan:
    """Returns what `planned` answers for the rest of the fleet, with the running language models at present rates."""
    wide, unserved = set_present_rates(problem, wide_of(problem, problem.state.running if problem.state else ()))
    narrow = narrow_problem(problem, wide)
    rest = planned(narrow) if narrow is not None else nothing_left(problem)
    plan, _ = merge_language_instances(problem, rest, wide, unserved, simulate=False)
    return plan
