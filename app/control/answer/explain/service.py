"""Explains a service: its instances and their cost, or why it is unserved and the least change that would help."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from app.control.answer.explain.instance import InstanceWhy, describe_instance, why_instance
from app.control.answer.explain.shares import costs_of_services
from app.control.answer.explain.tokens import describe_whole, spell_promise
from app.control.answer.explain.wording import count, money, ms, rate
from solvers.latency import burstiness_of
from solvers.planning import explain
from solvers.planning.beside import has_language_models, ordinary_part
from solvers.planning.explain.fleet import fleet
from solvers.planning.judge import JudgedPlan, judge
from solvers.planning.judge.measures import mean_accuracy
from solvers.planning.parts.reasons import RulePrice, price_of_rules
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Instance, Problem
from solvers.planning.search.promise import keep

SHAPES_IN_FULL = 2  # of a service: the most expensive


@dataclass(frozen=True, slots=True)
class UnservedWhy:
    """The reason why a part of a service is unserved, and the least change that would serve it."""

    rate_per_second: float
    reason: str
    relaxation: str
    is_proved: bool  # the judge accepts the plan that serves it after the change


@dataclass(frozen=True, slots=True)
class ServiceWhy:
    """The explanation of a service."""

    name: str
    rate_per_second: float
    instances: tuple[Instance, ...]
    cost_per_hour: float
    missing: UnservedWhy | None
    shapes: tuple[InstanceWhy, ...]
    rules: RulePrice | None = None  # what its availability costs


def why_service(problem: Problem, plan: Plan, name: str) -> ServiceWhy:
    """Explains a service of a plan."""
    mine = tuple(instance for instance in plan.instances if instance.service == name)
    unserved = next((line for line in plan.unserved if line.service == name), None)
    judged = JudgedPlan(problem, plan, keep) if mine else None
    shapes, is_tokens = _select_shapes(problem, mine), problem.services[name].tokens is not None
    judged = None if has_language_models(problem) else judged
    return ServiceWhy(
        name=name,
        rate_per_second=problem.services[name].rate_per_second,
        instances=mine,
        cost_per_hour=costs_of_services(problem, plan)[name],
        missing=find_unserved_why(problem, plan, unserved) if unserved else None,
        shapes=() if is_tokens else tuple(why_instance(problem, plan, line, judged) for line in shapes),
        rules=price_of_rules(problem, name),
    )


def find_unserved_why(problem: Problem, plan: Plan, unserved: Unserved) -> UnservedWhy:
    """Finds the full reason, and the least change that serves the service while the others keep what they have."""
    if problem.services[unserved.service].tokens is not None:
        from solvers.planning.wide.reasons import reason_of

        found = reason_of(problem, unserved)
        return UnservedWhy(unserved.rate_per_second, found.reason, found.relaxation, False)
    problem, plan = ordinary_part(problem, plan)
    about = explain.case(problem, plan, unserved.service)
    options = explain.explain_service(about, fleet(about.rooms))
    change = options.change
    proved = change is not None and judge(change.problem, change.plan, simulate=False, keeps=keep).is_right
    return UnservedWhy(unserved.rate_per_second, options.reason, options.relaxation, proved)


def _select_shapes(problem: Problem, mine: Sequence[Instance]) -> list[Instance]:
    """Returns an instance of each shape, the most expensive shapes first."""
    by_shape: dict[tuple[object, ...], list[Instance]] = defaultdict(list)
    for instance in mine:
        by_shape[problem.nodes[instance.node].gpu_type, instance.variant, instance.batch].append(instance)

    def price(alike: list[Instance]) -> float:
        return sum(problem.nodes[node.node].price_per_hour * node.sm_percent / 100 for node in alike)

    shapes = sorted(by_shape.values(), key=lambda alike: (-price(alike), alike[0].id))
    return [max(alike, key=lambda node: (node.sm_percent, node.id)) for alike in shapes[:SHAPES_IN_FULL]]


def describe_service(problem: Problem, why: ServiceWhy) -> list[str]:
    """Returns the sentences, the most important first."""
    service = problem.services[why.name]
    slo = f"{rate(why.rate_per_second)} requests a second, {service.percentile:g} % of them {spell_promise(service)}"
    served = sum(instance.rate_per_second for instance in why.instances)
    if not why.instances:
        sentences = [f"{why.name} needs {slo}; nothing of it is served"]
    else:
        slowest = max(instance.latency_ms for instance in why.instances)
        carry = "carries" if len(why.instances) == 1 else "carry"
        sentences = [
            f"{why.name} needs {slo}; {count(len(why.instances), 'instance')} on {_types(problem, why)} {carry} "
            f"{rate(served)} a second at {ms(slowest)} or less, for {money(why.cost_per_hour)} an hour"
        ]
        sentences += [
            describe_whole(problem, line) for line in _select_shapes(problem, why.instances) if service.tokens
        ]
    if service.variation > 0:
        index = burstiness_of(service.variation, service.rate_per_second, service.slo_ms)
        sentences.append(
            f"its requests come in bursts: counted over {service.slo_ms:g} ms, their variance is {index:.3g} times"
            " their mean; each instance carries less than it would of steady arrivals"
        )
    mean = mean_accuracy(why.instances, problem)
    if mean is not None and (service.mean_accuracy or len({line.variant for line in why.instances}) > 1):
        promised = f"; promised are {service.mean_accuracy:g} or more" if service.mean_accuracy else ""
        sentences.append(f"its requests have a mean accuracy of {mean:.4g} by {_variants(why)}{promised}")
    if why.rules and why.rules.per_hour < inf:
        sentences.append(f"its availability ({why.rules.rules}) costs about {money(why.rules.per_hour)} an hour")
    if why.missing:
        gone = why.missing
        sentences.append(f"unserved: {rate(gone.rate_per_second)} a second: {gone.reason}")
        proved = " (verified: it is then served, and all others keep what they have)" if gone.is_proved else ""
        if gone.relaxation:
            sentences.append(f"least change that helps: {gone.relaxation}{proved}")
    for shape in why.shapes:
        sentences += describe_instance(shape)
    return sentences


def _variants(why: ServiceWhy) -> str:
    """Returns the variants with the shares of the rate that they carry, the largest share first."""
    shares: dict[str, float] = defaultdict(float)
    for line in why.instances:
        shares[line.variant] += line.rate_per_second
    served = sum(shares.values())
    order = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} ({100 * carried / served:.3g} % of them)" for name, carried in order)


def _types(problem: Problem, why: ServiceWhy) -> str:
    counts: dict[str, int] = defaultdict(int)
    for instance in why.instances:
        counts[problem.nodes[instance.node].gpu_type] += 1
    return ", ".join(f"{number} x {name}" for name, number in sorted(counts.items()))
