"""Splits a problem in two: language models on whole GPUs, and everything else on the GPUs that are left."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from solvers.planning.judge import judge
from solvers.planning.judge.billing import is_billed_whole
from solvers.planning.plan import Certificate, Cost, Plan, Unplaced, Unserved, unserved_rest
from solvers.planning.problem import (
    Instance,
    Limit,
    Node,
    Place,
    Policy,
    Problem,
)
from solvers.planning.search.promise import keep
from solvers.planning.solved import Progress, SearchStatus
from solvers.planning.wide.services import busy_w, language_models

NO_GPU = "language models hold every GPU"


def has_language_models(problem: Problem) -> bool:
    """Returns whether any service's SLO counts tokens."""
    return any(service.tokens is not None for service in problem.services.values())


def wide_of(problem: Problem, instances: Sequence[Instance]) -> list[Instance]:
    """Returns the instances of language models."""
    return [line for line in instances if (s := problem.services.get(line.service)) and s.tokens is not None]


def narrowed(problem: Problem, wide: Sequence[Instance]) -> Problem | None:
    """Returns the problem without language models and the GPUs that they hold; None if they hold all.

    A node that is billed whole and runs a language model is paid by it: all else there is free, as its price is due
    anyway. What runs on a GPU that is taken does not run any more.
    """
    taken = {place for line in wide for place in line.places}
    by_node: dict[str, list[Instance]] = defaultdict(list)
    for line in wide:
        by_node[line.node].append(line)
    nodes = {name: left for name, node in problem.nodes.items() if (left := _left(problem, node, by_node[name]))}
    if not nodes:
        return None
    state = problem.state
    if state is not None:
        state = replace(
            state,
            running=tuple(i for i in state.running if _stays(problem, i, nodes, taken)),
            jobs=tuple(job for job in state.jobs if job.node in nodes and job.place not in taken),
        )
    return replace(
        problem,
        nodes=nodes,
        services={name: service for name, service in problem.services.items() if service.tokens is None},
        limits={tenant: _rest(problem, tenant, limit, wide) for tenant, limit in problem.limits.items()},
        policy=_powered(problem, wide),
        state=state,
    )


def _stays(problem: Problem, line: Instance, nodes: Mapping[str, Node], taken: Collection[Place]) -> bool:
    service = problem.services.get(line.service)
    return line.node in nodes and line.place not in taken and service is not None and service.tokens is None


def _left(problem: Problem, node: Node, wide: Sequence[Instance]) -> Node | None:
    if not wide:
        return node
    taken = {index for line in wide for _, index in line.places}
    gpus = tuple(index for index in node.gpus if index not in taken)
    demands = [p.demand for line in wide if (p := problem.profile(line.service, line.variant, line.node))]
    return None if not gpus else replace(
        node,
        gpus=gpus,
        cpu_cores=max(0.0, node.cpu_cores - sum(demand.cpu_cores for demand in demands)),
        host_memory_gib=max(0.0, node.host_memory_gib - sum(demand.host_memory_gib for demand in demands)),
        pricing="paid" if is_billed_whole(node, problem.policy) else node.pricing,
    )  # fmt: skip


def _rest(problem: Problem, tenant: str, limit: Limit, wide: Sequence[Instance]) -> Limit:
    mine = [line for line in wide if problem.services[line.service].tenant == tenant]
    gpus = sum(line.degree for line in mine)
    price = sum(line.degree * problem.nodes[line.node].price_per_hour for line in mine)
    return replace(
        limit,
        gpus=None if limit.gpus is None else max(0.0, limit.gpus - gpus),
        price_per_hour=None if limit.price_per_hour is None else max(0.0, limit.price_per_hour - price),
    )


def _powered(problem: Problem, wide: Sequence[Instance]) -> Policy:
    policy = problem.policy
    if policy.power_budget_w is None:
        return policy
    drawn = sum(line.degree * (problem.type_of(line.node).idle_w + _busy_w(problem, line)) for line in wide)
    return replace(policy, power_budget_w=max(1e-9, policy.power_budget_w - drawn))


def _busy_w(problem: Problem, line: Instance) -> float:
    profile = problem.profile(line.service, line.variant, line.node)
    return 0.0 if profile is None else busy_w(profile, problem.type_of(line.node), line.clock_mhz)


def ordinary(problem: Problem) -> Problem:
    """Returns the services that are not language models with the whole fleet, each GPU paid by itself: for a bound."""
    nodes = {
        name: replace(node, pricing="gpu") if is_billed_whole(node, problem.policy) else node
        for name, node in problem.nodes.items()
    }
    services = {name: service for name, service in problem.services.items() if service.tokens is None}
    return replace(problem, nodes=nodes, services=services, state=None)


def with_wide(
    problem: Problem, narrow: Plan, wide: Sequence[Instance], why: Mapping[str, Unserved], *, simulate: bool
) -> tuple[Plan, Sequence[str]]:
    """Returns the plan of everything, with its cost as judged, and where the judge finds a rule broken."""
    # What runs now names other services, too.
    models = replace(problem, services=language_models(problem), state=None)
    rest = [why.get(entry.service, entry) for entry in unserved_rest(models, wide)]
    instances = tuple(sorted([*narrow.instances, *wide], key=lambda line: line.place))
    plan = replace(
        narrow, instances=instances, unserved=tuple(sorted([*narrow.unserved, *rest], key=lambda e: e.service))
    )
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


def with_models(problem: Problem, wide: Sequence[Instance], on_better: Progress) -> Progress:
    """Returns a callback for better plans of all else that adds language models; their bound comes last."""
    began = time.monotonic()
    alone = replace(problem, services=language_models(problem), jobs={}, state=None)
    whole, _ = with_wide(alone, Plan(()), wide, {}, simulate=False)
    assert whole.certificate
    fixed, serves_models = whole.certificate.cost.total, not whole.unserved

    def add(rest: SearchStatus) -> None:
        seconds, serves_all = time.monotonic() - began, rest.serves_all and serves_models
        on_better(SearchStatus(seconds, rest.cost + fixed, None, rest.method, serves_all))

    return add


def beside(problem: Problem, plan: Plan) -> tuple[Problem, Plan]:
    """Returns everything but language models, with the GPUs that these leave; the problem itself if they leave none."""
    return ordinary_part(problem, plan) or (problem, plan)


def ordinary_part(problem: Problem, plan: Plan) -> tuple[Problem, Plan] | None:
    """Returns everything but language models, with the GPUs that these leave; None if they leave none."""
    narrow = narrowed(problem, wide_of(problem, plan.instances))
    if narrow is None:
        return None
    return narrow, replace(
        plan,
        instances=tuple(line for line in plan.instances if line.service in narrow.services),
        unserved=tuple(entry for entry in plan.unserved if entry.service in narrow.services),
    )


def rejoined(problem: Problem, narrow: Plan, before: Plan) -> Plan:
    """Returns the plan of the ordinary part with the very lines that language models had in the plan of everything."""
    models = language_models(problem)
    unserved = [*narrow.unserved, *(entry for entry in before.unserved if entry.service in models)]
    return replace(
        narrow,
        instances=(*narrow.instances, *wide_of(problem, before.instances)),
        unserved=tuple(sorted(unserved, key=lambda entry: entry.service)),
    )


def nothing_left(problem: Problem) -> Plan:
    """Returns the plan of a fleet without a free GPU."""
    services = [s for s in problem.services.values() if s.tokens is None]
    zero = Certificate(Cost(0.0, 0.0), None, "", 0, 0.0)
    return Plan(
        (),
        unserved=tuple(Unserved(s.name, s.rate_per_second, NO_GPU, "more GPUs") for s in services),
        unplaced=tuple(Unplaced(name, NO_GPU, "more GPUs") for name in problem.jobs),
        certificate=zero,
    )
