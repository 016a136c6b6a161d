"""Compares what serving a service next to the others would cost an hour with what leaving it out costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf

from solvers.planning.explain.applied import Offer, RelaxedCase, apply_offer, part
from solvers.planning.explain.proposals import Relaxation
from solvers.planning.explain.rounding import rounded_up
from solvers.planning.judge import judge
from solvers.planning.plan import Plan

HIGHEST_PRIORITY = 1000


@dataclass(frozen=True, slots=True)
class Worth:
    """The cost that an hour of serving adds, the cost that it saves, and the plan that serves."""

    adds: float
    saves: float
    plan: Plan

    @property
    def is_worth_it(self) -> bool:
        return self.adds < self.saves


def worth(case: RelaxedCase, offered: Offer) -> Worth | None:
    """Returns the worth of an offer of the whole rate; None if the judge refuses it."""
    plan = apply_offer(case, offered)
    if plan is None:
        return None
    problem, service = case.problem, case.terms.service
    new = [instance for instance in plan.instances if instance.service == case.name]
    at = {instance.node for instance in (*new, *case.own)}
    adds = resource_cost(case, plan, at) - resource_cost(case, case.plan, at)
    state = problem.state
    if state and case.name not in {running.service for running in state.running}:
        price = sum(problem.nodes[i.node].price_per_hour * i.sm_percent / 100 for i in new)
        adds += problem.policy.move_price * price * 60 / problem.policy.horizon_minutes
    return Worth(max(adds, 0.0), problem.policy.price_unserved(service) * _missed(case), plan)


def dearer(case: RelaxedCase, known: Worth) -> Relaxation:
    """Returns the least priority, or unservedPrice, at which serving it costs no more than leaving it out."""
    policy, service = case.terms.policy, case.terms.service
    needed = known.adds / (_missed(case) * service.unserved_weight)  # unservedPrice x priority / 100
    if policy.unserved_price > 0:
        priority = max(ceil(100 * needed / policy.unserved_price * (1 + 1e-9)), service.priority + 1)
        if priority <= HIGHEST_PRIORITY:
            words = f"priority: {priority} (now {service.priority})"
            changed = case.wishing(priority=priority).changed
            return Relaxation("priority", words, priority / service.priority - 1, changed, known.plan)
    price = rounded_up(max(100 * needed / service.priority * (1 + 1e-9), 1e-6))
    share = price / policy.unserved_price - 1 if policy.unserved_price > 0 else inf
    words = f"unservedPrice: {price:.10g} (now {policy.unserved_price:.6g})"
    changed = case.under(policy=replace(policy, unserved_price=price)).changed
    return Relaxation("unservedPrice", words, share, changed, known.plan)


def _missed(case: RelaxedCase) -> float:
    """Returns the unserved rate as it is priced."""
    return max(1.0, *(u.rate_per_second for u in case.plan.unserved if u.service == case.name))


def resource_cost(case: RelaxedCase, plan: Plan, at: set[str]) -> float:
    """Returns the plan's cost of resources on these nodes."""
    return judge(*part(case.problem, plan, at, case.name, case.rooms), simulate=False).cost.resource
