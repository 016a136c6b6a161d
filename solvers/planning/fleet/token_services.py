"""Services on language models, and the watts that their instances draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from solvers.planning.judge.readings import power, value_at
from solvers.planning.problem import GpuType, Policy, Problem, Profile, Service, Variant


class TokenFacts(NamedTuple):
    """All of a problem that shapes depend on, besides the service."""

    policy: Policy
    gpu_types: Mapping[str, GpuType]
    models: Mapping[str, tuple[Variant, ...]]
    profiles: Mapping[tuple[str, str, str], Profile]
    caps_w: Mapping[str, frozenset[float]]  # by GPU type: those below its maxW

    @classmethod
    def of(cls, problem: Problem) -> TokenFacts:
        caps: dict[str, set[float]] = {name: set() for name in problem.gpu_types}
        for node in problem.nodes.values():
            most_w = problem.gpu_types[node.gpu_type].max_w
            caps[node.gpu_type].update(cap_w for cap_w in node.caps_w if cap_w < most_w)
        lowered = {name: frozenset(found) for name, found in caps.items()}
        return cls(problem.policy, problem.gpu_types, problem.models, problem.profiles, lowered)


def language_models(problem: Problem) -> dict[str, Service]:
    """Returns the services whose SLO counts tokens."""
    return {name: service for name, service in problem.services.items() if service.tokens is not None}


def busy_w(profile: Profile, gpu: GpuType, clock_mhz: float) -> float:
    """Returns the watts above idle that each GPU of a language model's instance draws at a clock."""
    demand = profile.demand
    return value_at(demand.power_w, 100) * power(clock_mhz / gpu.top_clock_mhz, demand.power_exponent)
