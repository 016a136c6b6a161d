"""Finds the profiles with which a service may run on the GPUs of a pool."""

from __future__ import annotations

from solvers.planning.problem import Problem, Profile, Service
from solvers.planning.rooms import GpuPool

NO_SHAPE = "no GPU type of the fleet keeps its SLO in any profiled shape"
NO_GPU = "no GPU may be used now: no node reports one, or all are cordoned, drained or failed"


def why_no_shape(problem: Problem) -> str:
    """Returns why a service has no shape on any GPU of the fleet."""
    return NO_SHAPE if any(node.gpus for node in problem.nodes.values()) else NO_GPU


def runnable_profiles(problem: Problem, service: Service, pool: GpuPool) -> list[Profile]:
    """Returns the profile of each variant that the pool's type and templates admit, in the order of the variants."""
    if service.gpu_types is not None and pool.gpu_type not in service.gpu_types:
        return []
    templates = {variant.name: variant.template for variant in problem.models[service.model]}
    return [
        profile
        for variant in service.variants
        if pool.offers(templates.get(variant))
        and (profile := problem.profiles.get((service.model, variant, pool.gpu_type)))
    ]
