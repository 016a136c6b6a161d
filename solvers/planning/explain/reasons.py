"""The limit that leaves a service unserved, in words: first what no fleet could mend, then what the others leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

import numpy as np

from solvers.planning.explain.applied import Case, case, offer
from solvers.planning.explain.ground import Ground, spot
from solvers.planning.explain.relaxations import taken
from solvers.planning.explain.seats import ENOUGH, measured, shapes
from solvers.planning.plan import Plan
from solvers.planning.problem import Policy, Problem, Profile, Service


def reason(problem: Problem, plan: Plan, name: str, about: Case | None = None) -> str:
    """Why the service is not served whole; with its case, also what the others leave of each limit."""
    service = problem.services[name]
    own = impossible(problem, service)
    if own:
        return own
    return _crowded(problem, plan, service, about or case(problem, plan, name))


def impossible(problem: Problem, service: Service) -> str | None:
    """What keeps it from running even on this fleet with nobody else on it."""
    if not service.variants:
        return f"no variant of model {service.model} is admitted by its variants and minAccuracy"
    types = {node.gpu_type for node in problem.nodes.values()}
    if not types:
        return "the fleet has no GPU"
    among = sorted(types if service.gpu_types is None else types & set(service.gpu_types))
    if not among:
        return f"the fleet has no GPU of its gpuTypes: {', '.join(service.gpu_types or ())}"
    profiles = [
        problem.profiles[service.model, variant, kind]
        for variant in service.variants
        for kind in among
        if (service.model, variant, kind) in problem.profiles
    ]
    listed = ", ".join(service.variants)
    if not profiles:
        return f"model {service.model} has no profile of {listed} on {', '.join(among)}"
    fastest, by = min((_fastest_ms(profile), profile.key) for profile in profiles)
    judged = fastest * (1 + problem.policy.exec_margin)
    if judged > service.slo_ms:
        return (
            f"its SLO of {service.slo_ms:.6g} ms is below the fastest exec, {judged:.6g} ms with execMargin "
            f"({by[1]} on {by[2]})"
        )
    if all(problem.gpu_types[one.gpu_type].memory_gib < min(one.memory_gib.values()) for one in profiles):
        least = min(min(one.memory_gib.values()) for one in profiles)
        return f"it needs {least:.6g} GiB of GPU memory at least, more than any GPU of {', '.join(among)} has"
    nodes = [node for node in problem.nodes.values() if node.gpu_type in among]
    if all(_least(profiles, node.gpu_type, "cpu_cores") > node.cpu_cores for node in nodes):
        return f"no node of {', '.join(among)} has the CPU cores that one instance takes"
    if all(_least(profiles, node.gpu_type, "host_memory_gib") > node.host_memory_gib for node in nodes):
        return f"no node of {', '.join(among)} has the host memory that one instance takes"
    kinds = {(node.gpu_type, node.templates): node for node in nodes}
    templates = {v.template for v in problem.models[service.model] if v.name in service.variants and v.template}
    able = {kind for kind, node in kinds.items() if shapes(problem, spot(problem, (node.name, 0), [], []), service, {})}
    if not able:
        if templates and all(node.templates is not None and not templates & node.templates for node in nodes):
            return f"no node of {', '.join(among)} offers the template {' or '.join(sorted(templates))}"
        return (
            f"on an empty GPU of {', '.join(among)} no load keeps its SLO of {service.slo_ms:.6g} ms at percentile "
            f"{service.percentile:g} within memory and maxW; the fastest exec is {judged:.6g} ms with execMargin"
        )
    there = sum(node.gpus for node in nodes if (node.gpu_type, node.templates) in able)
    if there < service.min_instances:
        return f"minInstances {service.min_instances} must stand on different GPUs, and {there} of the fleet may run it"
    return None


def _crowded(problem: Problem, plan: Plan, service: Service, about: Case) -> str:
    """Which limit, lifted by itself, lets it be served beside the others, or most of it; else the fleet is full."""
    rate, now = service.rate_per_second, offer(about).rate_per_second
    limit = problem.limits.get(service.tenant)
    found: list[tuple[float, str]] = []
    if limit and (limit.gpus is not None or limit.price_per_hour is not None):
        free = {name: one for name, one in problem.limits.items() if name != service.tenant}
        gpus, price = taken(problem, plan, service.tenant)
        told = [] if limit.gpus is None else [f"{limit.gpus:.6g} GPUs ({gpus:.4g} taken)"]
        told += [] if limit.price_per_hour is None else [f"{limit.price_per_hour:.6g} an hour ({price:.4g} taken)"]
        words = f"the limit of tenant {service.tenant}, {' and '.join(told)}, leaves no room for it"
        found.append((_carried(about.on(replace(problem, limits=free))), words))
    policy = problem.policy
    if policy.power_budget_w is not None:
        lifted = about.on(replace(problem, policy=replace(policy, power_budget_w=None)))
        drawn = (about.beside or about.afresh).drawn_w
        words = (
            f"powerBudgetW {policy.power_budget_w:.6g}, of which the plan draws {drawn:.5g} W, leaves no watts for it"
        )
        found.append((_carried(lifted), words))
    loose = _under(problem, lambda one: replace(one, same_model_per_gpu=100))
    for words, lifted in (
        ("CPU cores and host memory of the nodes leave no room for it", _each(about, _roomy)),
        (f"sameModelPerGpu {policy.same_model_per_gpu} keeps it off GPUs where its model runs", about.on(loose)),
        (f"clientsPerGpu {policy.clients_per_gpu} keeps it off GPUs that have room", _each(about, _welcoming)),
    ):
        found.append((_carried(lifted), words))
    if service.min_instances > 1:
        one = replace(service, min_instances=1)
        lifted = about.on(replace(problem, services={**problem.services, service.name: one}))
        words = (
            f"minInstances {service.min_instances} on different GPUs: too few have room, with half an even share each"
        )
        found.append((_carried(lifted), words))
    most = max((carried for carried, _ in found), default=0.0)
    so_far = sum(one.rate_per_second for one in about.own)
    if most > max(now, so_far) * (1 + 1e-6) and most > 0:
        words = next(words for carried, words in found if carried >= most * (1 - 1e-9))
        return words if most >= rate * ENOUGH else f"{words}, and the fleet is full"
    return _full(problem, service, plan, max(now, so_far))


def _full(problem: Problem, service: Service, plan: Plan, carried: float) -> str:
    at = {one.place for one in plan.instances} | {job.place for job in plan.jobs}
    types = {node.gpu_type for node in problem.nodes.values()} & set(service.gpu_types or problem.gpu_types)
    nodes = [node for node in problem.nodes.values() if node.gpu_type in types]
    gpus = sum(node.gpus for node in nodes)
    empty = gpus - sum(1 for place in at if problem.nodes[place[0]].gpu_type in types)
    if carried >= service.rate_per_second * ENOUGH:
        return f"the search found no room for it, though {empty} of {gpus} GPUs are empty: more work would serve it"
    return (
        f"the fleet is full: of {gpus} GPUs of types it may use {empty} are empty, and what the others leave "
        f"carries {carried:.4g} of {service.rate_per_second:.6g} requests a second"
    )


def _each(about: Case, change: Callable[[Ground], Ground]) -> Case:
    return replace(about, afresh=change(about.afresh), beside=change(about.beside) if about.beside else None)


def _roomy(ground: Ground) -> Ground:
    endless = dict.fromkeys(ground.cpu_cores, inf)
    return replace(ground, cpu_cores=endless, host_memory_gib=endless)


def _welcoming(ground: Ground) -> Ground:
    return replace(ground, spots=tuple(replace(one, clients=one.clients + 1000) for one in ground.spots))


def _carried(about: Case) -> float:
    return offer(about).rate_per_second


def _under(problem: Problem, change: Callable[[Policy], Policy]) -> Problem:
    return replace(problem, policy=change(problem.policy))


def _fastest_ms(profile: Profile) -> float:
    return float(np.min(measured(profile).exec_ms))


def _least(profiles: list[Profile], gpu_type: str, field: str) -> float:
    return min((getattr(one.demand, field) for one in profiles if one.gpu_type == gpu_type), default=inf)
