"""Services on language models, and the watts that their instances draw."""

from __future__ import annotations

from solvers.planning.judge.readings import power, value_at
from solvers.planning.problem import GpuType, Problem, Profile, Service


def language_models(problem: Problem) -> dict[str, Service]:
    """Returns the services whose SLO counts tokens."""
    return {name: service for name, service in problem.services.items() if service.tokens is not None}


def busy_w(profile: Profile, gpu: GpuType, clock_mhz: float) -> float:
    """Returns the watts above idle that each GPU of a language model's instance draws at a clock."""
    demand = profile.demand
    return value_at(demand.power_w, 100) * power(clock_mhz / gpu.top_clock_mhz, demand.power_exponent)
