"""Says why a language model is left unserved, and what would serve it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

from solvers.planning.fleet.offers import read_offers
from solvers.planning.fleet.token_services import language_models
from solvers.planning.fleet.token_shapes import TokenShape
from solvers.planning.judge.adapters import find_unheld_adapters, keep_places
from solvers.planning.judge.whole import kv_tokens
from solvers.planning.plan import NONE_UNSERVED_SHARE, Unserved
from solvers.planning.problem import Problem, Service
from solvers.planning.wide.groups import LinkedNodes, node_groups
from solvers.planning.wide.programme import Terms, admits, choose, drawn_w

MOST_GPUS = 8  # of one instance


def reasons(
    problem: Problem, groups: Sequence[LinkedNodes], shapes: Sequence[TokenShape], unserved: Mapping[str, float]
) -> dict[str, Unserved]:
    """Returns an entry for each service with an unserved rate."""
    return {
        name: Unserved(name, rate, *_why(problem, groups, shapes, problem.services[name], rate))
        for name, rate in unserved.items()
        if rate > NONE_UNSERVED_SHARE * problem.services[name].rate_per_second
    }


def _why(
    problem: Problem, groups: Sequence[LinkedNodes], shapes: Sequence[TokenShape], service: Service, rate: float
) -> tuple[str, str]:
    mine = [shape for shape in shapes if shape.service == service.name]
    if not mine:
        return _impossible(problem, service)
    fitting = [shape for shape in mine if any(admits(problem, group, shape) for group in groups)]
    if not fitting:
        least = min(mine, key=lambda shape: (shape.degree, _price(problem, shape)))
        uncapped = [replace(group, caps_w=()) for group in groups]
        if near := [shape for shape in mine if any(admits(problem, group, shape) for group in uncapped)]:
            least = min(near, key=lambda shape: (drawn_w(problem, shape), shape.degree))
            wanted = f"capW of {drawn_w(problem, least):.6g} W on {least.degree} linked GPUs of type {least.gpu_type}"
            return "capW of the nodes allows none of its instances their watts", wanted
        wanted = f"a node with {least.degree} linked GPUs of type {least.gpu_type}"
        return f"no node of the fleet has {least.degree} linked GPUs of type {least.gpu_type} that may run it", wanted
    best = min(fitting, key=lambda shape: (shape.degree * _price(problem, shape) / shape.rate_per_second, shape.degree))
    more = ceil(rate / best.rate_per_second * (1 - 1e-9)) * best.degree
    wanted = f"{more} more GPUs of type {best.gpu_type}, {best.degree} linked on a node for each instance"
    if problem.limits.get(service.tenant) and _serves(replace(problem, limits={}), groups, shapes, service.name):
        return f"the limit of tenant {service.tenant} leaves no room for it", f"a higher limit: {wanted}"
    policy = problem.policy
    without = replace(problem, policy=replace(policy, power_budget_w=None))
    if policy.power_budget_w is not None and _serves(without, groups, shapes, service.name):
        watts = more * (best.busy_w + problem.gpu_types[best.gpu_type].idle_w)
        return "powerBudgetW leaves no room for it", f"powerBudgetW higher by {watts:.6g} W"
    dearer = replace(problem, policy=replace(policy, unserved_price=1e9))
    if _serves(dearer, groups, shapes, service.name):
        return "its GPUs would cost more than what it leaves unserved", "a higher unservedPrice or priority"
    free = sum(group.gpus * len(group.nodes) for group in groups)
    return f"the {free} GPUs of the fleet do not carry all language models", wanted


def _price(problem: Problem, shape: TokenShape) -> float:
    prices = [node.price_per_hour for node in problem.nodes.values() if node.gpu_type == shape.gpu_type]
    return min(prices, default=1.0)


def _serves(problem: Problem, groups: Sequence[LinkedNodes], shapes: Sequence[TokenShape], name: str) -> bool:
    found = choose(problem, groups, shapes, Terms())
    return found is not None and found.unserved[name] <= NONE_UNSERVED_SHARE * problem.services[name].rate_per_second


def _impossible(problem: Problem, service: Service) -> tuple[str, str]:
    """Returns why no shape carries any load of it."""
    variants = [v for v in problem.models[service.model] if v.name in service.variants and v.llm]
    if not variants:
        return f"no variant of {service.model} that its accuracy admits is a language model", "a lower minAccuracy"
    profiles = [
        (variant, keep_places(profile, service), problem.gpu_types[profile.gpu_type])
        for variant in variants
        for profile in problem.profiles.values()
        if profile.iteration
        and (profile.model, profile.variant) == (service.model, variant.name)
        and (service.gpu_types is None or profile.gpu_type in service.gpu_types)
    ]
    if not profiles:
        return f"no profile of iterations of {service.model} on a GPU type it may use", "a Profile with iteration"
    unheld = [find_unheld_adapters(profile, service) for _, profile, _ in profiles]
    if all(unheld):
        return "; ".join(dict.fromkeys(unheld)), "a Profile with adapters that has places for all of them, or fewer"
    profiles = [found for found, why in zip(profiles, unheld, strict=True) if not why]
    fit = [
        degree
        for variant, profile, gpu in profiles
        for degree in profile.iteration
        if variant.llm and kv_tokens(profile, variant.llm, degree, gpu.memory_gib) >= variant.llm.context_tokens
    ]
    if not fit:
        more = any(
            variant.llm and kv_tokens(profile, variant.llm, MOST_GPUS, gpu.memory_gib) >= variant.llm.context_tokens
            for variant, profile, gpu in profiles
        )
        wanted = (
            "a profile on more GPUs" if more else "a GPU type with more memory, or a variant with smaller weightsGib"
        )
        return "its weights and one context fit into no profiled number of GPUs", wanted
    assert service.tokens
    promise = service.tokens.promise
    return (
        f"no profiled shape keeps ttftMs {promise.ttft_ms:g} and tpotMs {promise.tpot_ms:g} at any rate",
        "longer ttftMs and tpotMs, or a profile of a faster GPU type",
    )


def reason_of(problem: Problem, unserved: Unserved) -> Unserved:
    """Returns the entry with the reason and what would serve it, found from the problem alone."""
    offers = read_offers(problem)
    shapes = [shape for service in language_models(problem).values() for shape in offers.find_token_shapes(service)]
    rates = {unserved.service: unserved.rate_per_second}
    return reasons(problem, node_groups(problem), shapes, rates).get(unserved.service, unserved)
