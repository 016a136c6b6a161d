"""Servers of a language model with the rates that they carry: in shapes of the joint planner, and for half the work."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from solvers.llm.capacity import rough_rate
from solvers.llm.iteration import TokenLengths, TokenPromise
from solvers.planning.fleet.token_shapes import BATCHES, TokenShape, carries
from solvers.planning.judge.adapters import find_unheld_adapters, keep_places
from solvers.planning.judge.whole import MOST_SEQUENCES, iterations, kv_tokens
from solvers.planning.problem import Problem, Service, Variant
from solvers.pools.servers import RatedServer


def rate_shape(problem: Problem, service: Service, shape: TokenShape, gpu_price_per_hour: float) -> RatedServer:
    """Returns the server of a shape."""
    profile = keep_places(problem.profiles[service.model, shape.variant, shape.gpu_type], service)
    size = next(variant.llm for variant in problem.models[service.model] if variant.name == shape.variant)
    assert size
    cost, limits = iterations(
        profile, size, problem.gpu_types[shape.gpu_type], shape.degree, shape.batch, shape.memory_gib, shape.clock_mhz,
        problem.policy.exec_margin,
    )  # fmt: skip
    return RatedServer(
        shape.gpu_type, shape.degree, cost, limits, shape.rate_per_second, gpu_price_per_hour, shape.variant
    )


def list_kinds(
    problem: Problem, service: Service, variant: Variant, gpu_types: Collection[str]
) -> Iterator[RatedServer]:
    """Yields a server of each GPU type and degree that holds the longest request, at the highest clock, without a rate.

    Its price is not known here.
    """
    assert variant.llm
    for name in sorted(gpu_types):
        profile, gpu = problem.profiles.get((service.model, variant.name, name)), problem.gpu_types[name]
        if profile is None or (service.gpu_types is not None and name not in service.gpu_types):
            continue
        if find_unheld_adapters(profile, service):
            continue
        profile = keep_places(profile, service)
        for degree in sorted(set(profile.iteration) & set(variant.llm.degrees)):
            if kv_tokens(profile, variant.llm, degree, gpu.memory_gib) >= variant.llm.context_tokens:
                cost, limits = iterations(
                    profile, variant.llm, gpu, degree, MOST_SEQUENCES, gpu.memory_gib, gpu.top_clock_mhz,
                    problem.policy.exec_margin,
                )  # fmt: skip
                yield RatedServer(name, degree, cost, limits, 0.0, 0.0, variant.name)


def rate_best(server: RatedServer, lengths: TokenLengths, promise: TokenPromise) -> Iterator[RatedServer]:
    """Yields the server with the number of requests at once that carries most; nothing if none carries anything."""
    best, most = server.limits, 0.0
    for batch in reversed(BATCHES):
        limits = replace(server.limits, sequences=batch)
        rate = rough_rate(server.cost, limits, lengths, promise)
        if rate < most:
            break
        if rate > most:
            best, most = limits, rate
    if rate := carries(server.cost, best, lengths, promise).rate_per_second if most else 0.0:
        yield replace(server, limits=best, rate_per_second=rate)
