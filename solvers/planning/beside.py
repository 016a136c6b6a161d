"""Splits a problem in two: language models on whole GPUs, and everything else on the GPUs that are left."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from solvers.planning.fleet.offers import NO_GPU
from solvers.planning.fleet.rooms import WholeNeed
from solvers.planning.fleet.token_services import busy_w, language_models
from solvers.planning.judge import judge
from solvers.planning.judge.billing import is_billed_whole
from solvers.planning.plan import Certificate, Plan, Unserved, list_unserved
from solvers.planning.problem import (
    Instance,
    Limit,
    Node,
    Place,
    Problem,
)
from solvers.planning.search.promise import keep
from solvers.planning.solved import Progress, SearchStatus

MODELS_HOLD_ALL = "language models hold every GPU that may be used now"


class Holder(NamedTuple):
    """An instance or a job with its whole GPUs of a node, and what it takes of each and of the node."""

    places: Sequence[Place]
    need: WholeNeed


def has_language_models(problem: Problem) -> bool:
    """Returns whether any service's SLO counts tokens."""
    return any(service.tokens is not None for service in problem.services.values())


def wide_of(problem: Problem, instances: Sequence[Instance]) -> list[Instance]:
    """Returns the instances of language models."""
    return [line for line in instances if (s := problem.services.get(line.service)) and s.tokens is not None]


def take_whole_gpus(problem: Problem, holders: Sequence[Holder], *, are_paid: bool = True) -> Problem:
    """Returns the problem without the GPUs, cores, host memory and watts of these holders.

    What runs on such a GPU does not run any more. A node that is billed whole is paid by its holders, so all else there
    is free; where they do not pay for it, what is left of it costs as much as the whole.
    """
    by_node: dict[str, list[Holder]] = defaultdict(list)
    for holder in holders:
        by_node[holder.places[0][0]].append(holder)
    left = {name: _left(problem, node, by_node[name], are_paid) for name, node in problem.nodes.items()}
    nodes = {name: node for name, node in left.items() if node.gpus}
    taken = {place for holder in holders for place in holder.places}
    state, policy = problem.state, problem.policy
    if state is not None:
        state = replace(
            state,
            running=tuple(line for line in state.running if line.node in nodes and taken.isdisjoint(line.places)),
            jobs=tuple(job for job in state.jobs if job.node in nodes and taken.isdisjoint(job.places)),
        )
    if policy.power_budget_w is not None:
        drawn = sum(len(h.places) * (problem.type_of(h.places[0][0]).idle_w + h.need.top_w) for h in holders)
        policy = replace(policy, power_budget_w=max(1e-9, policy.power_budget_w - drawn))
    return replace(problem, nodes=nodes, state=state, policy=policy)


def _left(problem: Problem, node: Node, holders: Sequence[Holder], are_paid: bool) -> Node:
    if not holders:
        return node
    taken = {index for holder in holders for _, index in holder.places}
    if is_billed_whole(node, problem.policy):
        share = node.gpu_count / max(1, node.gpu_count - len(taken))
        node = replace(node, pricing="paid") if are_paid else replace(node, price_per_hour=share * node.price_per_hour)
    return replace(
        node,
        gpus=tuple(index for index in node.gpus if index not in taken),
        cpu_cores=max(0.0, node.cpu_cores - sum(holder.need.cpu_cores for holder in holders)),
        host_memory_gib=max(0.0, node.host_memory_gib - sum(holder.need.host_memory_gib for holder in holders)),
    )


def narrow_problem(problem: Problem, wide: Sequence[Instance]) -> Problem:
    """Returns the problem without language models and the GPUs that they hold: it has no node if they hold all."""
    rest = take_whole_gpus(problem, [Holder(line.places, _need(problem, line)) for line in wide])
    services = {name: service for name, service in problem.services.items() if service.tokens is None}
    state = rest.state
    if state is not None:
        state = replace(state, running=tuple(line for line in state.running if line.service in services))
    limits = {tenant: _rest(problem, tenant, limit, wide) for tenant, limit in problem.limits.items()}
    return replace(rest, services=services, limits=limits, state=state)


def _need(problem: Problem, line: Instance) -> WholeNeed:
    profile = problem.profile(line.service, line.variant, line.node)
    if profile is None:
        return WholeNeed(line.memory_gib, 0.0, 0.0, 0.0)
    demand, watts = profile.demand, busy_w(profile, problem.type_of(line.node), line.clock_mhz)
    return WholeNeed(line.memory_gib, watts, demand.cpu_cores, demand.host_memory_gib)


def _rest(problem: Problem, tenant: str, limit: Limit, wide: Sequence[Instance]) -> Limit:
    mine = [line for line in wide if problem.services[line.service].tenant == tenant]
    gpus = sum(line.degree for line in mine)
    price = sum(line.degree * problem.nodes[line.node].price_per_hour for line in mine)
    return replace(
        limit,
        gpus=None if limit.gpus is None else max(0.0, limit.gpus - gpus),
        price_per_hour=None if limit.price_per_hour is None else max(0.0, limit.price_per_hour - price),
    )


def ordinary(problem: Problem) -> Problem:
    """Returns the services that are not language models with the whole fleet, each GPU paid by itself: for a bound."""
    nodes = {
        name: replace(node, pricing="gpu") if is_billed_whole(node, problem.policy) else node
        for name, node in problem.nodes.items()
    }
    services = {name: service for name, service in problem.services.items() if service.tokens is None}
    return replace(problem, nodes=nodes, services=services, state=None)


def merge_language_instances(
    problem: Problem, narrow: Plan, wide: Sequence[Instance], why: Mapping[str, Unserved], *, simulate: bool
) -> tuple[Plan, Sequence[str]]:
    """Returns the plan of everything, with its cost as judged, and where the judge finds a rule broken."""
    # What runs now names other services, too.
    models = replace(problem, services=language_models(problem), state=None)
    rest = [why.get(entry.service, entry) for entry in list_unserved(models, wide)]
    others = narrow.unserved
    if any(node.gpus for node in problem.nodes.values()):  # the narrow problem has none only because of models
        others = tuple(replace(each, reason=MODELS_HOLD_ALL) if each.reason == NO_GPU else each for each in others)
    instances = tuple(sorted([*narrow.instances, *wide], key=lambda line: line.place))
    plan = replace(narrow, instances=instances, unserved=tuple(sorted([*others, *rest], key=lambda e: e.service)))
    verdict = judge(problem, plan, simulate=simulate, keeps=keep)
    used = {line.node for line in instances} | {job.node for job in plan.jobs}
    certificate = replace(narrow.certificate or Certificate(verdict.cost, None, "", 0, 0.0), cost=verdict.cost)
    plan = replace(
        plan,
        releasable=tuple(entry for entry in narrow.releasable if entry.node not in used),
        changes=verdict.changes,
        certificate=certificate,
    )
    return plan, [str(violation) for violation in verdict.violations]


def report_with_models(problem: Problem, wide: Sequence[Instance], on_better: Progress) -> Progress:
    """Returns a callback for better plans of all else that adds language models; their bound comes last."""
    began = time.monotonic()
    alone = replace(problem, services=language_models(problem), jobs={}, state=None)
    whole, _ = merge_language_instances(alone, Plan(()), wide, {}, simulate=False)
    assert whole.certificate
    fixed, serves_models = whole.certificate.cost.total, not whole.unserved

    def add(rest: SearchStatus) -> None:
        seconds, serves_all = time.monotonic() - began, rest.serves_all and serves_models
        on_better(SearchStatus(seconds, rest.cost + fixed, None, rest.method, serves_all))

    return add


def ordinary_part(problem: Problem, plan: Plan) -> tuple[Problem, Plan]:
    """Returns everything but language models, with the GPUs that these leave."""
    if not has_language_models(problem):
        return problem, plan
    narrow = narrow_problem(problem, wide_of(problem, plan.instances))
    return narrow, replace(
        plan,
        instances=tuple(line for line in plan.instances if line.service in narrow.services),
        unserved=tuple(entry for entry in plan.unserved if entry.service in narrow.services),
    )


def rejoin(problem: Problem, narrow: Plan, before: Plan) -> Plan:
    """Returns the plan of the ordinary part with the very lines that language models had in the plan of everything."""
    models = language_models(problem)
    unserved = [*narrow.unserved, *(entry for entry in before.unserved if entry.service in models)]
    return replace(
        narrow,
        instances=(*narrow.instances, *wide_of(problem, before.instances)),
        unserved=tuple(sorted(unserved, key=lambda entry: entry.service)),
    )
