"""Compares two plans: what the change costs and moves, and what it does to each service."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from app.control.answer.explain.shares import costs_of_services
from app.control.answer.explain.wording import count, money, ms, rate, spell_signed
from app.control.answer.whatif.wire import (
    ComparedPlansWire,
    PlanInForceWire,
    WhatIfServiceSideWire,
    WhatIfServiceWire,
    WhatIfSideWire,
)
from app.control.formulate.question import Question
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.plan_fields import spell_changes
from solvers.planning.problem import Problem
from solvers.planning.search.promise import keep
from solvers.planning.wire import changes_wire

FindPlan: TypeAlias = Callable[[Problem], Plan | None]

MOST_SERVICES = 200
EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class WhatIfSide:
    """A problem and its plan."""

    problem: Problem
    plan: Plan

    @property
    def cost(self) -> float:
        assert self.plan.certificate
        return self.plan.certificate.cost.total

    @property
    def value(self) -> float:
        """Returns the value by which plans are chosen: cost over the horizon, and churn."""
        assert self.plan.certificate
        return self.plan.certificate.cost.value(self.problem.policy)

    def or_better(self, other: Plan | None) -> WhatIfSide:
        """Returns this side, with the other plan where that is valid here too, and better."""
        if other is None:
            return self
        nodes = {instance.node for instance in other.instances} | {job.node for job in other.jobs}
        if not nodes <= self.problem.nodes.keys():
            return self
        if not {instance.service for instance in other.instances} <= self.problem.services.keys():
            return self
        verdict = judge(self.problem, other, simulate=False, keeps=keep)
        certificate = self.plan.certificate
        worse = verdict.cost.value(self.problem.policy) >= self.value * (1 - EQUAL)
        if not verdict.is_right or worse or certificate is None:
            return self
        better = replace(certificate, cost=verdict.cost)
        return WhatIfSide(self.problem, replace(other, certificate=better, changes=verdict.changes))


def compare(before: WhatIfSide, after: WhatIfSide, named: Collection[str] = ()) -> ComparedPlansWire:
    """Returns the difference on the wire. Services that neither change nor are named are left out."""
    services = _services(before, after, named)
    delta = after.cost - before.cost
    certificate = after.plan.certificate
    assert certificate
    return {
        "before": _side(before),
        "after": _side(after),
        "costDelta": 0.0 if abs(delta) <= EQUAL * max(1.0, before.cost) else delta,
        "changes": changes_wire(after.plan.changes),
        "churnCost": certificate.cost.churn,
        "services": services[:MOST_SERVICES],
        "servicesLeftOut": max(0, len(services) - MOST_SERVICES),
        "unserved": [
            {"service": line.service, "ratePerSecond": line.rate_per_second, "reason": line.reason,
             "relaxation": line.relaxation} for line in after.plan.unserved
        ],
        "releasable": [{"node": node.node, "perHour": node.price_per_hour} for node in after.plan.releasable],
    }  # fmt: skip


def _side(side: WhatIfSide) -> WhatIfSideWire:
    certificate = side.plan.certificate
    assert certificate
    return {
        "cost": certificate.cost.total,
        "resourceCost": certificate.cost.resource,
        "unservedCost": certificate.cost.unserved,
        "bound": certificate.bound,
        "gpus": len({place for instance in side.plan.instances for place in instance.places}),
        "instances": len(side.plan.instances),
        "unserved": len(side.plan.unserved),
        "unservedPerSecond": sum(line.rate_per_second for line in side.plan.unserved),
        "method": certificate.method,
    }


def read_in_force(today: Question) -> PlanInForceWire:
    """Returns what the plan in force costs at today's rates, and what it leaves unserved; zeros without a plan."""
    plan, cost = today.plan_in_force, today.verdict.cost
    return {
        "resourceCost": cost.resource,
        "unservedPerSecond": sum(line.rate_per_second for line in plan.unserved),
        "gpus": len({place for instance in plan.instances for place in instance.places}),
        "instances": len(plan.instances),
    }


def _services(before: WhatIfSide, after: WhatIfSide, named: Collection[str]) -> list[WhatIfServiceWire]:
    old, new = _each(before), _each(after)
    found: list[WhatIfServiceWire] = [
        {"service": name, "before": old.get(name), "after": new.get(name)}
        for name in sorted(old.keys() | new.keys())
        if name in named or _is_other(old.get(name), new.get(name))
    ]
    return sorted(found, key=lambda line: line["service"] not in named)


def _each(side: WhatIfSide) -> dict[str, WhatIfServiceSideWire]:
    costs = costs_of_services(side.problem, side.plan)
    missed = {line.service: line.rate_per_second for line in side.plan.unserved}
    found: dict[str, WhatIfServiceSideWire] = {}
    for name, service in side.problem.services.items():
        found[name] = {
            "instances": 0,
            "ratePerSecond": service.rate_per_second,
            "unservedPerSecond": missed.get(name, 0.0),
            "sloMs": service.slo_ms,
            "latencyMs": 0.0,
            "costPerHour": costs[name],
        }
    for instance in side.plan.instances:
        mine = found[instance.service]
        mine["instances"] += 1
        mine["latencyMs"] = max(mine["latencyMs"], instance.latency_ms)
    return found


def _is_other(old: WhatIfServiceSideWire | None, new: WhatIfServiceSideWire | None) -> bool:
    if old is None or new is None:
        return True
    return any(
        abs(old[name] - new[name]) > 1e-6 * max(1.0, abs(old[name]))
        for name in ("instances", "ratePerSecond", "unservedPerSecond", "sloMs", "latencyMs", "costPerHour")
    )


def describe_comparison(comparison: ComparedPlansWire, now: PlanInForceWire, not_kept: Mapping[str, str]) -> list[str]:
    """Returns the comparison in sentences, the most important first."""
    before, after, changes = comparison["before"], comparison["after"], comparison["changes"]
    paid = after["resourceCost"] - before["resourceCost"]
    sentences = [
        f"GPUs cost {money(now['resourceCost'])} an hour in the plan in force, {money(before['resourceCost'])} in the "
        f"best plan for today, {money(after['resourceCost'])} in the best plan for the change: "
        + (f"{spell_signed(paid)} to today's" if abs(paid) > EQUAL else "as much as today's"),
        f"GPUs that services use {now['gpus']}, {before['gpus']}, {after['gpus']}; "
        f"instances {now['instances']}, {before['instances']}, {after['instances']}",
    ]
    lacking = [side["unservedPerSecond"] for side in (now, before, after)]
    if any(lacking):
        sentences.append(f"unserved: {', '.join(map(rate, lacking))} requests a second")
    moved = spell_changes(changes)
    sentences.append(
        f"it would {moved}; churn {money(comparison['churnCost'])}" if moved else "no instance would change"
    )
    if comparison["unserved"]:
        sentences.append(f"{count(len(comparison['unserved']), 'service')} would be unserved, {before['unserved']} now")
    elif before["unserved"]:
        sentences.append(f"{count(before['unserved'], 'service')} that are unserved now would be served")
    sentences += [f"{service}: {not_kept[service]}" for service in sorted(not_kept)[:10]]
    return sentences + [_service_in_words(service) for service in comparison["services"][:10]]


def _service_in_words(service: WhatIfServiceWire) -> str:
    old, new = service["before"], service["after"]
    if old is None or new is None:
        side = new or old
        assert side
        word = "new" if old is None else "gone"
        costs = f"{count(side['instances'], 'instance')}, {money(side['costPerHour'])} an hour"
        return f"{service['service']}: {word}, {costs}"
    sentences = [f"{old['instances']} -> {new['instances']} instances"]
    sentences.append(f"{money(old['costPerHour'])} -> {money(new['costPerHour'])} an hour")
    if new["latencyMs"] or old["latencyMs"]:
        sentences.append(f"latency {ms(old['latencyMs'])} -> {ms(new['latencyMs'])} of {ms(new['sloMs'])}")
    if new["unservedPerSecond"] or old["unservedPerSecond"]:
        sentences.append(f"unserved {rate(old['unservedPerSecond'])} -> {rate(new['unservedPerSecond'])} a second")
    return f"{service['service']}: {', '.join(sentences)}"
