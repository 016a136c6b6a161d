"""Rules of a language model's instance: whole GPUs of one node, linked with each other, with memory for its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor

from solvers.llm.iteration import BatchingLimits, EngineForm, IterationCost
from solvers.planning.judge.adapters import find_unheld_adapters, lengthen
from solvers.planning.judge.readings import JudgedGpu, Resident, power
from solvers.planning.judge.shapes import (
    cell_admitted,
    clock_offered,
    find_misnamed_gpus,
    find_unlinked,
    gpu_type_admitted,
    one_gpu,
    rate_positive,
    service_exists,
    template_offered,
    variant_admitted,
)
from solvers.planning.judge.violations import Rules
from solvers.planning.language import LlmSize
from solvers.planning.problem import GpuType, Problem, Profile

GIB = 2**30
WHOLE_PERCENT = 100
MOST_SEQUENCES = 256


def is_whole(line: Resident) -> bool:
    """Returns whether this is an instance of a language model, which holds whole GPUs."""
    return line.service is not None and line.service.tokens is not None


def size_of(problem: Problem, line: Resident) -> LlmSize | None:
    """Returns what the instance's variant holds in memory."""
    if line.service is None:
        return None
    variants = problem.models[line.service.model]
    return next((variant.llm for variant in variants if variant.name == line.instance.variant), None)


def kv_tokens(profile: Profile, size: LlmSize, degree: int, memory_gib: float) -> int:
    """Returns how many tokens a data rank holds in so much memory of each GPU, and no more than its server said.

    It said that without adapters, whose places take from both. What experts share of the weights is unknown, so that
    with several ranks the weights count once.
    """
    left_gib = (memory_gib - profile.overhead_gib - profile.adapters_gib) * degree - size.weights_gib
    tokens = max(0, floor(left_gib * GIB / size.kv_bytes_per_token))
    engine = profile.engine.get(degree)
    if engine is None:
        return tokens
    ranks = engine.form.data_ranks
    places = ceil(profile.adapters_gib * degree * GIB / size.kv_bytes_per_token / ranks)
    return min(max(0, engine.cache_tokens - places), tokens // ranks)


def iterations(
    profile: Profile, size: LlmSize, gpu: GpuType, degree: int, batch: int, memory_gib: float, clock_mhz: float,
    margin: float,
) -> tuple[IterationCost, BatchingLimits]:  # fmt: skip
    """Returns the time of an instance's iterations at its clock, longer by the margin, and what bounds them."""
    slower = power(gpu.top_clock_mhz / clock_mhz, profile.demand.clock_exponent) * (1 + margin)
    held = kv_tokens(profile, size, degree, memory_gib)
    form = profile.engine[degree].form if degree in profile.engine else EngineForm()
    limits = BatchingLimits(batch, profile.tokens_per_iteration, held, form)
    return lengthen(profile.iteration[degree], slower), limits


def gpus_exist(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """node in nodes; gpus rise and are GPUs of the node"""
    return find_misnamed_gpus(problem, line.instance, gpu)


def degree_profiled(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """the number of its GPUs in iteration of the profile, and in parallel of the variant"""
    if line.service is None or gpu is None:
        return None
    name, degree = f"variant {line.instance.variant} of {line.service.model}", line.instance.degree
    size = size_of(problem, line)
    if size is None:
        return f"{name} is no language model"
    if line.profile is None or not line.profile.iteration:
        return f"{name} has no profile of iterations on {gpu.type.name}"
    known = sorted(set(line.profile.iteration) & set(size.degrees))
    if degree in known:
        return None
    return f"{name} was not profiled on {degree} {gpu.type.name}; profiled: {', '.join(map(str, known)) or 'none'}"


def adapters_held(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """the profile has a place for each adapter of the service, and maxRank is no less than any of their ranks"""
    if line.service is None or line.profile is None:
        return None
    return find_unheld_adapters(line.profile, line.service) or None


def gpus_linked(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """its GPUs are in one group of linked GPUs of the node"""
    return find_unlinked(line.instance, gpu)


def gpus_whole(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """smPercent 100"""
    if line.instance.sm_percent == WHOLE_PERCENT:
        return None
    return f"smPercent {line.instance.sm_percent:g} is not 100: a language model holds whole GPUs"


def sequences_counted(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """batch, the requests at once, is a whole number 1..256, and batchTimeoutMs is 0"""
    instance = line.instance
    if not (1 <= instance.batch <= MOST_SEQUENCES and instance.batch == int(instance.batch)):
        return f"batch {instance.batch:g} is not a whole number 1..{MOST_SEQUENCES}"
    if instance.batch_timeout_ms != 0:
        return f"batchTimeoutMs {instance.batch_timeout_ms:g} is not 0: a language model does not wait for a batch"
    return None


def tokens_fit(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """(memoryGib - overheadGib) x GPUs - weightsGib holds the tokens of a request as long as the context"""
    size = size_of(problem, line)
    if size is None or line.profile is None:
        return None
    fit = kv_tokens(line.profile, size, line.instance.degree, line.instance.memory_gib)
    if fit >= size.context_tokens:
        return None
    return (
        f"beside {size.weights_gib:g} GiB of weights, {line.instance.memory_gib:g} GiB on each of"
        f" {line.instance.degree} GPUs hold {fit} tokens, fewer than a context of {size.context_tokens}"
    )


RULES = (
    service_exists,
    gpus_exist,
    variant_admitted,
    gpu_type_admitted,
    template_offered,
    cell_admitted,
    degree_profiled,
    adapters_held,
    gpus_linked,
    gpus_whole,
    sequences_counted,
    tokens_fit,
    clock_offered,
    rate_positive,
)


def whole_alone(problem: Problem, gpu: JudgedGpu) -> str | None:
    """an instance of a language model, or an instance or job on several GPUs => nothing else on any of them"""
    holders = [line.instance.service for line in gpu.residents if is_whole(line) or line.instance.gpus]
    holders += [line.placed.job for line in gpu.jobs if line.placed.gpus]
    others: Sequence[object] = [*gpu.residents, *gpu.jobs]
    if not holders or len(others) == 1:
        return None
    return f"{holders[0]} holds the whole GPU, but {len(others) - 1} more run there"


def rules_of(line: Resident) -> Rules:
    """Returns the rules of an instance that holds whole GPUs; none for any other."""
    if is_whole(line):
        return RULES
    return (one_gpu,) if line.instance.gpus else ()


def is_sound(problem: Problem, line: Resident) -> bool:
    """Returns whether an instance's tokens can be simulated; one that cannot be breaks another rule."""
    node = problem.nodes.get(line.instance.node)
    if node is None or not all(node.has_gpu(index) for _, index in line.instance.places):
        return False
    gpu = JudgedGpu(node, problem.type_at(line.instance.place), line.instance.gpu)
    rules = (gpus_exist, degree_profiled, adapters_held, sequences_counted, tokens_fit, clock_offered, rate_positive)
    return is_whole(line) and all(rule(problem, line, gpu) is None for rule in rules)
