"""A planning question: the problem, the GPUs it covers, what is pinned, and the verdict on the plan in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec

from agents.contract.assignments import AssignedInstance
from app.control.domain.decision import PlanValue
from app.control.formulate.running import lower_to_todays_rates, running_plan
from app.control.formulate.value import value_plan
from app.store.plans.pieces import content_hash
from solvers.planning.judge import JudgedPlan, Verdict, Violation, judge
from solvers.planning.judge.plan_edit import edit_between, reuse_known
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem

SMALL_LACK_SHARE = 0.01  # of a service's rate
# Of a question without jobs; `judged` is left out, as the other question may be another thread's
KNOWN_AT_ANY_TIME = ("fingerprint", "plan_in_force", "verdict", "value_in_force")
MOST_EDITED_SHARE = 0.4  # of the instances of both plans: to judge a larger difference and to undo it takes longer


@dataclass(frozen=True)
class Question:
    """A problem and the part of the fleet that it covers."""

    problem: Problem
    pinned: tuple[tuple[str, AssignedInstance], ...] = ()  # (node, instance): they stay as they are
    shortages: Mapping[str, str] = field(default_factory=dict)  # why minInstances was lowered, by service

    def at(self, now: datetime) -> Question:
        """Returns the same question at another time with all that is known of it, which without jobs still holds."""
        assert self.problem.state is not None
        assert not self.problem.jobs
        found = replace(self, problem=replace(self.problem, state=replace(self.problem.state, now=now)))
        vars(found).update({name: known for name, known in vars(self).items() if name in KNOWN_AT_ANY_TIME})
        return found

    @cached_property
    def fingerprint(self) -> bytes:
        """A hash that two questions share if they differ only in the time and in the jobs' progress and urgency.

        What was measured of what runs moves all the time, too: people who read a proposal keep it.
        """
        problem = self.problem
        state = replace(problem.state, now=None, measured={}, paces={}) if problem.state else None
        nodes = [(replace(node, templates=None), sorted(node.templates or ())) for node in problem.nodes.values()]
        rest = replace(problem, state=None, nodes={}, profiles={}, services={}, jobs={})
        jobs = [replace(job, units=0.0, priority=0) for job in problem.jobs.values()]
        named = [*problem.profiles.values(), *problem.services.values(), *jobs]
        return content_hash(msgspec.json.encode((rest, state, nodes, named, self.pinned), enc_hook=_list_parts))

    @cached_property
    def plan_in_force(self) -> Plan:
        """The plan in force, in the problem's terms and at its rates."""
        return lower_to_todays_rates(self.problem, running_plan(self.problem))

    @cached_property
    def judged(self) -> JudgedPlan:
        """The plan in force as the judge sees it."""
        # Here, as it needs the solvers, which readers of plans may lack.
        from solvers.planning.search.promise import keep

        return JudgedPlan(self.problem, self.plan_in_force, keep)

    @cached_property
    def verdict(self) -> Verdict:
        """The judge's verdict on the plan in force."""
        return self.judged.verdict()

    @property
    def known_violations(self) -> Sequence[Violation]:
        """The rules that the plan in force breaks by now; none where nothing has needed the verdict so far."""
        return self.verdict.violations if "verdict" in vars(self) else ()

    def verdict_on(self, plan: Plan) -> Verdict:
        """Returns the judge's verdict on another plan: by what differs from the plan in force, if that is little."""
        from solvers.planning.search.promise import keep

        before = self.plan_in_force
        after = replace(plan, instances=reuse_known(before.instances, plan.instances))
        edit = edit_between(before, after)
        most = MOST_EDITED_SHARE * (len(before.instances) + len(after.instances))
        is_little = len(edit.stop) + len(edit.start) <= most
        if not is_little or not _names_each_once(before) or not _names_each_once(after):
            return judge(self.problem, plan, simulate=False, keeps=keep)
        judged = self.judged
        del self.__dict__["judged"]  # while it is edited
        verdict = judged.apply(edit)
        judged.apply(edit_between(after, before))
        self.__dict__["judged"] = judged
        return verdict

    @cached_property
    def value_in_force(self) -> PlanValue:
        """The value of the plan in force."""
        return value_plan(self.problem, self.plan_in_force, self.verdict)

    @property
    def falls_short(self) -> bool:
        """True if the plan in force leaves load unserved, or breaks a rule by now, usually an SLO."""
        return bool(self.plan_in_force.unserved) or not self.verdict.is_right

    @cached_property
    def needing(self) -> frozenset[str]:
        """What the plan in force leaves short or breaks a rule of by now: services, and other places."""
        short = {lack.service for lack in self.plan_in_force.unserved}
        return frozenset(short | {violation.owner for violation in self.verdict.violations})

    @cached_property
    def lacking(self) -> frozenset[str]:
        """The services that the plan in force leaves short, or of which it breaks a rule by now."""
        return self.needing & self.problem.services.keys()

    @property
    def falls_far_short(self) -> bool:
        """True if another plan is due before the one in force is rolled out: a small lack only shifts weights."""
        services = self.problem.services
        lacks = any(
            lack.rate_per_second >= SMALL_LACK_SHARE * services[lack.service].rate_per_second
            for lack in self.plan_in_force.unserved
        )
        return lacks or not self.verdict.is_right  # where the lack is enough, the verdict is found beside the search


def _names_each_once(plan: Plan) -> bool:
    """Returns whether no job and no remainder is listed twice, which an edit would not show."""
    lists = (plan.jobs, [entry.service for entry in plan.unserved], [entry.job for entry in plan.unplaced])
    return all(len(set(names)) == len(names) for names in lists)


def _list_parts(value: Any) -> list[float]:
    """Writes a pressure on compute and on bandwidth."""
    if isinstance(value, complex):
        return [value.real, value.imag]
    raise TypeError(f"a {type(value).__name__} has no form in JSON")
