"""The shapes that an instance of a language model may have on each kind of node, and what each carries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from solvers.llm.capacity import LlmCapacity, capacity, find_capacity, rough_rate
from solvers.llm.iteration import BatchingLimits, IterationCost, TokenLengths, TokenPromise
from solvers.planning.fleet.token_services import TokenFacts, busy_w
from solvers.planning.judge.adapters import find_unheld_adapters, keep_places
from solvers.planning.judge.tolerances import is_at_most
from solvers.planning.judge.whole import MOST_SEQUENCES, iterations, kv_tokens
from solvers.planning.language import LlmSize
from solvers.planning.problem import GpuType, Instance, Policy, Problem, Profile, Service, Variant

BATCHES = (8, 16, 32, 64, 128, MOST_SEQUENCES)
WORSE_SHARE = 0.999  # of the best rate so far: below it, fewer requests at once are not tried
SAME_SHARE = 1e-12  # of a rate: rounding makes no other instance
MOST_CLOCKS = 4  # tried where watts matter, the highest among them


@dataclass(frozen=True, slots=True)
class TokenShape:
    """A variant on so many GPUs of a type, with its best number of requests at once, at a clock."""

    service: str
    variant: str
    accuracy: float
    gpu_type: str
    degree: int
    batch: int
    clock_mhz: float
    memory_gib: float  # of each GPU
    rate_per_second: float  # that it carries
    ttft_ms: float
    tpot_ms: float
    busy_w: float  # above idle, of each GPU
    cpu_cores: float
    host_memory_gib: float
    template: str | None


def list_shapes(facts: TokenFacts, service: Service) -> list[TokenShape]:
    """Returns the shapes in which an instance of this service carries any load."""
    found: list[TokenShape] = []
    for variant in facts.models[service.model]:
        if variant.name not in service.variants or variant.llm is None:
            continue
        for name, gpu in facts.gpu_types.items():
            profile = facts.profiles.get((service.model, variant.name, name))
            if profile is None or find_unheld_adapters(profile, service):
                continue
            profile = keep_places(profile, service)
            if service.gpu_types is None or name in service.gpu_types:
                clocks = _clocks(facts, profile, gpu)
                for degree in sorted(set(profile.iteration) & set(variant.llm.degrees)):
                    found += _list_on(facts.policy, service, variant, profile, gpu, degree, clocks)
    return found


def _list_on(
    policy: Policy, service: Service, variant: Variant, profile: Profile, gpu: GpuType, degree: int,
    clocks: Sequence[float],
) -> Iterable[TokenShape]:  # fmt: skip
    assert variant.llm
    if kv_tokens(profile, variant.llm, degree, gpu.memory_gib) < variant.llm.context_tokens:
        return
    for clock in clocks:
        above_idle_w = busy_w(profile, gpu, clock)
        if not is_at_most(gpu.idle_w + above_idle_w, gpu.max_w):
            continue
        batch, carried = best_batch(policy, service, profile, variant.llm, gpu, degree, clock)
        if carried.rate_per_second > 0:
            yield TokenShape(
                service.name, variant.name, variant.accuracy, gpu.name, degree, batch, clock, gpu.memory_gib,
                carried.rate_per_second, carried.ttft_ms, carried.tpot_ms, above_idle_w, profile.demand.cpu_cores,
                profile.demand.host_memory_gib, variant.template,
            )  # fmt: skip


def best_batch(
    policy: Policy, service: Service, profile: Profile, size: LlmSize, gpu: GpuType, degree: int, clock: float
) -> tuple[int, LlmCapacity]:
    """Returns the number of requests at once that carries most by a rough look, and what it carries."""
    assert service.tokens
    lengths, promise = replace(service.tokens.lengths, context_tokens=size.context_tokens), service.tokens.promise

    def limited(batch: int) -> tuple[IterationCost, BatchingLimits]:
        return iterations(profile, size, gpu, degree, batch, gpu.memory_gib, clock, policy.exec_margin)

    best, most = MOST_SEQUENCES, 0.0
    for batch in reversed(BATCHES):
        rate = _rough_rate(*limited(batch), lengths, promise)
        if rate < WORSE_SHARE * most:
            break  # fewer at once nearly always carry less
        if rate > most:
            best, most = batch, rate
    return best, carries(*limited(best), lengths, promise)


@lru_cache(maxsize=20_000)
def _rough_rate(cost: IterationCost, limits: BatchingLimits, lengths: TokenLengths, promise: TokenPromise) -> float:
    return rough_rate(cost, limits, lengths, promise)


@lru_cache(maxsize=20_000)
def carries(cost: IterationCost, limits: BatchingLimits, lengths: TokenLengths, promise: TokenPromise) -> LlmCapacity:
    """Returns what such a server carries; shapes that are alike are computed once."""
    return capacity(cost, limits, lengths, promise)


def carried_by(problem: Problem, service: Service, instance: Instance) -> float:
    """Returns the largest rate of an instance in its shape, as plans are made with it."""
    server = _server(problem, service, instance)
    return 0.0 if server is None else carries(*server).rate_per_second


def predicted(problem: Problem, service: Service, instance: Instance) -> Instance:
    """Returns the instance with the times of its tokens at its rate, at the promised percentile."""
    server = _server(problem, service, instance)
    if server is None:
        return instance
    found = find_capacity(*server, instance.rate_per_second)
    return replace(instance, latency_ms=found.ttft_ms, tpot_ms=found.tpot_ms)


def share_token_rate(problem: Problem, service: Service, instances: Sequence[Instance]) -> list[Instance]:
    """Returns a service's instances at the same parts of its rate as before, up to what each carries.

    One that carries nothing is left out.
    """
    most = [carried_by(problem, service, line) for line in instances]
    before = sum(line.rate_per_second for line in instances)
    wanted = [service.rate_per_second * line.rate_per_second / before for line in instances] if before > 0 else most
    if any(rate > limit for rate, limit in zip(wanted, most, strict=True)):
        served, total = min(service.rate_per_second, sum(most)), sum(most)
        wanted = [limit * served / total for limit in most] if total > 0 else most
    return [
        line
        if abs(line.rate_per_second - rate) <= SAME_SHARE * rate
        else predicted(problem, service, replace(line, rate_per_second=rate))
        for line, rate in zip(instances, wanted, strict=True)
        if rate > 0
    ]


def _server(
    problem: Problem, service: Service, instance: Instance
) -> tuple[IterationCost, BatchingLimits, TokenLengths, TokenPromise] | None:
    """Returns what an instance's capacity depends on; None where no context fits, or no profile is known."""
    gpu = problem.type_of(instance.node)
    profile = problem.profile(service.name, instance.variant, instance.node)
    size = next((v.llm for v in problem.models[service.model] if v.name == instance.variant), None)
    if profile is None or size is None or service.tokens is None or instance.degree not in profile.iteration:
        return None
    if find_unheld_adapters(profile, service):
        return None
    profile = keep_places(profile, service)
    if kv_tokens(profile, size, instance.degree, instance.memory_gib) < size.context_tokens:
        return None
    cost, limits = iterations(
        profile, size, gpu, instance.degree, instance.batch, instance.memory_gib, instance.clock_mhz,
        problem.policy.exec_margin,
    )  # fmt: skip
    lengths = replace(service.tokens.lengths, context_tokens=size.context_tokens)
    return cost, limits, lengths, service.tokens.promise


def keeps_tokens(problem: Problem, service: Service, instance: Instance) -> bool:
    """Returns whether an instance carries its rate, by the capacity that plans are made with."""
    return instance.rate_per_second <= carried_by(problem, service, instance) * (1 + 1e-9)


def _clocks(facts: TokenFacts, profile: Profile, gpu: GpuType) -> Sequence[float]:
    """Returns the clocks worth trying: the highest alone, unless watts cost anything or are limited.

    Of those that the caps of nodes allow it is the highest for each cap.
    """
    clocks, policy, caps_w = gpu.clocks_mhz, facts.policy, facts.caps_w[gpu.name]
    if not policy.energy_price_per_kwh and policy.power_budget_w is None and len(clocks) == 1:
        return clocks
    is_free = not policy.energy_price_per_kwh and policy.power_budget_w is None
    if is_free and _is_cool(facts, gpu, min(caps_w, default=gpu.max_w)):
        return clocks[-1:]
    steps = min(MOST_CLOCKS, len(clocks))
    tried = {clocks[len(clocks) - 1 - (len(clocks) - 1) * step // max(1, steps - 1)] for step in range(steps)}
    for cap_w in caps_w:
        kept = [clock for clock in clocks if is_at_most(gpu.idle_w + busy_w(profile, gpu, clock), cap_w)]
        tried |= set(kept[-1:])
    return sorted(tried)


def _is_cool(facts: TokenFacts, gpu: GpuType, most_w: float) -> bool:
    """Returns whether no language model is too hot for this type of GPU at its highest clock."""
    profiles = [profile for profile in facts.profiles.values() if profile.iteration and profile.gpu_type == gpu.name]
    return all(is_at_most(gpu.idle_w + busy_w(profile, gpu, gpu.top_clock_mhz), most_w) for profile in profiles)
