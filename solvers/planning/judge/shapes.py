"""Rules of an instance by itself: what it names exists, and its shape was profiled."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from solvers.planning.judge.readings import JudgedGpu, Resident
from solvers.planning.judge.tolerances import SUM_SHARE, is_at_most
from solvers.planning.problem import Instance, PlacedJob, Problem


def service_exists(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """service in services"""
    return None if line.service else f"there is no service {line.instance.service}"


def gpu_exists(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """node in nodes, gpu in gpus of the node"""
    if gpu:
        return None
    return no_such_gpu(problem, line.instance.node, line.instance.gpu)


def no_such_gpu(problem: Problem, node: str, index: float) -> str:
    if node not in problem.nodes:
        return f"there is no node {node}"
    return f"node {node} has no GPU {index:g}; it has {_spell_indexes(problem.nodes[node].gpus)}"


def find_misnamed_gpus(problem: Problem, line: Instance | PlacedJob, gpu: JudgedGpu | None) -> str | None:
    """Returns which GPU does not exist, or that they are not listed in order, each once; None if all is well."""
    indexes = [index for _, index in line.places]
    if gpu is None:
        node = problem.nodes.get(line.node)
        missing = [index for index in indexes if node is None or not node.has_gpu(index)]
        return no_such_gpu(problem, line.node, missing[0] if missing else line.gpu)
    if indexes == sorted(set(indexes)) and indexes[0] == line.gpu:
        return None
    return f"its gpus {', '.join(f'{index:g}' for index in indexes)} do not rise, each listed once"


def find_unlinked(line: Instance | PlacedJob, gpu: JudgedGpu | None) -> str | None:
    """Returns that its GPUs are not linked with each other; None if they are."""
    if gpu is None or len({gpu.node.link_of(index) for _, index in line.places}) == 1:
        return None
    spelled = ", ".join(f"{index:g}" for _, index in line.places)
    return f"GPUs {spelled} of {gpu.node.name} are not linked: {gpu.node.linked_gpus} in a row are"


def _spell_indexes(gpus: Sequence[int]) -> str:
    """Spells indexes: `0..7`, or `1, 3..7` where some are missing."""
    breaks = [at for at in range(1, len(gpus)) if gpus[at] != gpus[at - 1] + 1]
    runs = [(gpus[first], gpus[end - 1]) for first, end in pairwise([0, *breaks, len(gpus)])]
    return ", ".join(f"{first}" if first == last else f"{first}..{last}" for first, last in runs)


def variant_admitted(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """variant in (variants of the service) and accuracy(variant) >= minAccuracy, resolved in Service.variants"""
    if line.service is None or line.instance.variant in line.service.variants:
        return None
    return (
        f"variant {line.instance.variant} is not admitted by the service: {', '.join(line.service.variants) or 'none'}"
    )


def gpu_type_admitted(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """type(gpu) in gpuTypes, where the service lists any"""
    service = line.service
    if service is None or gpu is None or service.gpu_types is None or gpu.type.name in service.gpu_types:
        return None
    return f"GPU type {gpu.type.name} is not in the service's gpuTypes: {', '.join(service.gpu_types)}"


def template_offered(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """runtime(variant) in offered(node): templates, and own runtimes admitted, where the node lists any"""
    if line.service is None or gpu is None or gpu.node.templates is None:
        return None
    for variant in problem.models[line.service.model]:
        if variant.name == line.instance.variant and variant.template and variant.template not in gpu.node.templates:
            what = "admit the own runtime" if variant.is_own else f"offer the template {variant.template}"
            return f"node {gpu.node.name} does not {what} of variant {variant.name}"
    return None


def cell_admitted(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """cell(node) in cells of the service, where it is a part of one that is divided"""
    service = line.service
    if service is None or gpu is None or service.cells is None or gpu.node.cell in service.cells:
        return None
    return f"node {gpu.node.name} is of cell {gpu.node.cell}, not of {', '.join(sorted(service.cells))}"


def shape_profiled(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """(model, variant, type(gpu)) has a profile, and batch in latencyMs"""
    if line.service is None or gpu is None or line.alone_ms is not None:
        return None
    if line.profile is None:
        return f"variant {line.instance.variant} of {line.service.model} has no profile on {gpu.type.name}"
    batches = ", ".join(map(str, sorted(line.profile.latency_ms)))
    return f"batch {line.instance.batch:g} was not profiled on {gpu.type.name}; profiled: {batches}"


def sm_profiled(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """first SM% of latencyMs[batch] <= smPercent <= last, a whole number"""
    if line.profile is None or line.alone_ms is None:
        return None
    curve = line.profile.latency_ms[line.instance.batch]
    return outside(line.instance.sm_percent, curve[0][0], curve[-1][0])


def outside(sm_percent: float, first: int, last: int) -> str | None:
    if first <= sm_percent <= last and sm_percent == int(sm_percent):
        return None
    return f"smPercent {sm_percent:g} is not a whole number of the profiled range {first}..{last}"


def memory_covers(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """memoryGib >= memoryGib[batch] of the profile"""
    if line.profile is None or line.alone_ms is None:
        return None
    needed = line.profile.memory_gib[line.instance.batch]
    if is_at_most(needed, line.instance.memory_gib):
        return None
    return f"memoryGib {line.instance.memory_gib:g} is less than the {needed:g} of batch {line.instance.batch}"


def clock_offered(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """clockMhz in clocksMhz of the GPU's type"""
    if gpu is None or line.instance.clock_mhz in gpu.type.clocks_mhz:
        return None
    clocks = ", ".join(f"{clock:g}" for clock in gpu.type.clocks_mhz)
    return f"clockMhz {line.instance.clock_mhz:g} is not a clock of {gpu.type.name}: {clocks}"


def timeout_counts(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """batchTimeoutMs >= 0"""
    if line.instance.batch_timeout_ms >= 0:
        return None
    return f"batchTimeoutMs {line.instance.batch_timeout_ms:g} is below 0"


def rate_positive(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """ratePerSecond > 0"""
    if line.instance.rate_per_second > 0:
        return None
    return f"ratePerSecond {line.instance.rate_per_second:g} is not above 0"


def utilization_holds(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """ratePerSecond x exec / batch <= utilization, exec without the margin"""
    if line.exec_ms is None:
        return None
    instance = line.instance
    load = instance.rate_per_second * line.exec_ms / 1000 / instance.batch
    limit = problem.policy.utilization
    if line.service:
        limit = min(limit, line.service.used_load.most)
    if load <= limit * (1 + SUM_SHARE):
        return None
    return (
        f"{instance.rate_per_second:.6g} a second x {line.exec_ms:.6g} ms / batch {instance.batch} is {load:.6g},"
        f" over the utilization {limit:g}"
    )


def one_gpu(problem: Problem, line: Resident, gpu: JudgedGpu | None) -> str | None:
    """gpus, with several GPUs, only for a service whose SLO counts tokens"""
    if not line.instance.gpus:
        return None
    return f"it takes {line.instance.degree} GPUs, but only a service whose SLO counts tokens may take several"


RULES = (
    service_exists,
    gpu_exists,
    variant_admitted,
    gpu_type_admitted,
    template_offered,
    cell_admitted,
    shape_profiled,
    sm_profiled,
    memory_covers,
    clock_offered,
    timeout_counts,
    rate_positive,
)
TUNING_RULES = (timeout_counts, rate_positive)  # of RULES those that rate and timeout decide
LOAD_RULES = (utilization_holds,)  # these depend on the neighbours
