"""Lowers minInstances while too few GPUs are left, so that running copies survive, and reports the shortfall."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from solvers.planning.problem import Instance, Problem, Service


def relax_min_instances(problem: Problem) -> tuple[Mapping[str, Service], Mapping[str, str]]:
    """Returns the services, with minInstances lowered to the running copies where too few GPUs can run them, and why.

    A plan serves a service with at least minInstances copies or not at all. A service that asks for more GPUs than
    there are, because GPUs failed or its manifest changed, would therefore lose the copies that serve. A service
    without running copies keeps its declared minInstances.
    """
    asking = {name for name, service in problem.services.items() if service.min_instances > 1}
    running: dict[str, list[Instance]] = defaultdict(list)
    for instance in problem.state.running if asking and problem.state else ():
        if instance.service in asking:
            running[instance.service].append(instance)
    if not running:
        return problem.services, {}
    gpus: dict[str, int] = defaultdict(int)  # by type
    for node in problem.nodes.values():
        gpus[node.gpu_type] += node.gpu_count
    changed, why = {}, {}
    for name in sorted(running):
        service = problem.services[name]
        available = sum(count for gpu_type, count in gpus.items() if _may_run(problem, service, gpu_type))
        if available < service.min_instances and (copies := _count_even_copies(running[name])) < service.min_instances:
            changed[name] = replace(service, min_instances=copies)
            why[name] = (
                f"minInstances asks for {service.min_instances} GPUs, but only {available} can run it now: its running "
                f"copies stay"
            )
    return ({**problem.services, **changed} if changed else problem.services), why


def _may_run(problem: Problem, service: Service, gpu_type: str) -> bool:
    if service.gpu_types is not None and gpu_type not in service.gpu_types:
        return False
    return any((service.model, variant, gpu_type) in problem.profiles for variant in service.variants)


def _count_even_copies(running: Iterable[Instance]) -> int:
    """Counts the largest copies, on different GPUs, that each carry at least half an even share."""
    lines = sorted(running, key=lambda instance: (-instance.rate_per_second, instance.place))
    half = sum(instance.rate_per_second for instance in lines) / len(lines) / 2
    places: set[tuple[str, int]] = set()
    for instance in lines:
        if instance.place in places or instance.rate_per_second < half:
            break
        places.add(instance.place)
    return max(1, len(places))
