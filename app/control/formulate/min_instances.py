"""minInstances that no fleet of today's size can give: what stands is kept, and what is missing is said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from solvers.planning.problem import Instance, Problem, Service


def relax_min_instances(problem: Problem) -> tuple[Mapping[str, Service], Mapping[str, str]]:
    """Services with no more minInstances than stand, where fewer GPUs than they ask for may run them; and why.

    A plan serves a service with minInstances copies or not at all. So one that asks for more GPUs than are there, for
    they have failed or it was changed, would lose the copies that serve. One of which nothing stands is as declared.
    """
    asking = {name for name, one in problem.services.items() if one.min_instances > 1}
    running: dict[str, list[Instance]] = defaultdict(list)
    for one in problem.state.running if asking and problem.state else ():
        if one.service in asking:
            running[one.service].append(one)
    if not running:
        return problem.services, {}
    gpus: dict[str, int] = defaultdict(int)  # by type
    for node in problem.nodes.values():
        gpus[node.gpu_type] += node.gpu_count
    changed, why = {}, {}
    for name in sorted(running):
        service = problem.services[name]
        there = sum(count for gpu_type, count in gpus.items() if _may_run(problem, service, gpu_type))
        if there < service.min_instances and (stands := _even(running[name])) < service.min_instances:
            changed[name] = replace(service, min_instances=stands)
            why[name] = (
                f"minInstances asks for {service.min_instances} GPUs and {there} may run it now: the copies that stand "
                f"serve on"
            )
    return ({**problem.services, **changed} if changed else problem.services), why


def _may_run(problem: Problem, service: Service, gpu_type: str) -> bool:
    if service.gpu_types is not None and gpu_type not in service.gpu_types:
        return False
    return any((service.model, variant, gpu_type) in problem.profiles for variant in service.variants)


def _even(running: Iterable[Instance]) -> int:
    """Of how many it is true that the largest carry half an even share each, on different GPUs."""
    lines = sorted(running, key=lambda one: (-one.rate_per_second, one.place))
    half = sum(one.rate_per_second for one in lines) / len(lines) / 2
    places: set[tuple[str, int]] = set()
    for one in lines:
        if one.place in places or one.rate_per_second < half:
            break
        places.add(one.place)
    return max(1, len(places))
