"""Rules of a GPU and of its node: what runs there fits, and what must be apart is apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import fsum

from solvers.planning.judge.jobs import job_may_open, job_may_open_node
from solvers.planning.judge.readings import JudgedGpu, Resident, watts
from solvers.planning.judge.tolerances import is_at_most
from solvers.planning.judge.whole import whole_alone
from solvers.planning.problem import Demand, Node, Problem


def sm_fits(problem: Problem, gpu: JudgedGpu) -> str | None:
    """sum of smPercent of instances and jobs <= 100"""
    total = gpu.sm_percent
    return None if total <= 100 else f"SM% add up to {total:g}, over 100"


def memory_fits(problem: Problem, gpu: JudgedGpu) -> str | None:
    """sum of memoryGib of instances and jobs <= memoryGib of the GPU's type"""
    gib = [line.instance.memory_gib for line in gpu.residents]
    total = fsum([*gib, *[job.placed.memory_gib for job in gpu.jobs]] if gpu.jobs else gib)
    if is_at_most(total, gpu.type.memory_gib):
        return None
    return f"{total:.6g} GiB are used of the {gpu.type.memory_gib:g} GiB of a {gpu.type.name}"


def same_model_fits(problem: Problem, gpu: JudgedGpu) -> str | None:
    """instances of one model, whatever the variant, service or tenant <= sameModelPerGpu"""
    if len(gpu.residents) < 2:
        return None
    models = [line.service.model for line in gpu.residents if line.service]
    most = problem.policy.same_model_per_gpu
    if len(set(models)) == len(models) and most >= 1:
        return None
    for model, count in sorted(Counter(models).items()):
        if count > most:
            return f"{count} instances of model {model}, over sameModelPerGpu {most}"
    return None


def clients_fit(problem: Problem, gpu: JudgedGpu) -> str | None:
    """instances + jobs <= clientsPerGpu"""
    count, most = len(gpu.residents) + len(gpu.jobs), problem.policy.clients_per_gpu
    return None if count <= most else f"{count} instances and jobs, over clientsPerGpu {most}"


def jobs_fit(problem: Problem, gpu: JudgedGpu) -> str | None:
    """jobs <= jobsPerGpu"""
    count, most = len(gpu.jobs), problem.policy.jobs_per_gpu
    return None if count <= most else f"{count} jobs, over jobsPerGpu {most}"


def dedicated_alone(problem: Problem, gpu: JudgedGpu) -> str | None:
    """a dedicated service on the GPU => nothing of another service and no job; its own instances may be several"""
    dedicated = [line.service.name for line in gpu.residents if line.service and line.service.is_dedicated]
    if not dedicated:
        return None
    services, jobs = {line.instance.service for line in gpu.residents}, {job.placed.job for job in gpu.jobs}
    for name in dedicated:
        others = (services - {name}) | jobs
        if others:
            return f"the dedicated service {name} shares it with {min(others)}"
    return None


def tenants_apart(problem: Problem, gpu: JudgedGpu) -> str | None:
    """an own runtime or a job on the GPU => all that runs there is of one tenant, unless shareAcrossTenants"""
    if problem.policy.share_across_tenants or len(gpu.residents) + len(gpu.jobs) < 2:
        return None
    own = [line.instance.service for line in gpu.residents if _is_own(problem, line)]
    guarded = own + [job.placed.job for job in gpu.jobs]
    if not guarded:
        return None
    everything = [line.instance.service for line in gpu.residents] + [job.placed.job for job in gpu.jobs]
    tenants = sorted({name.partition("/")[0] for name in everything})
    if len(tenants) < 2:
        return None
    what = "brings its own runtime" if own else "is a job"
    return f"{min(own or guarded)} {what}, and the GPU has tenants {', '.join(tenants)}: shareAcrossTenants is false"


def _is_own(problem: Problem, line: Resident) -> bool:
    if line.service is None:
        return False
    for variant in problem.models[line.service.model]:
        if variant.is_own and variant.name == line.instance.variant:
            return True
    return False


def clocks_agree(problem: Problem, gpu: JudgedGpu) -> str | None:
    """all that runs on the GPU states one clock; jobs state none"""
    stated = {line.instance.clock_mhz for line in gpu.residents}
    if len(stated) < 2:
        return None
    return f"its instances state different clocks: {', '.join(f'{clock:g}' for clock in sorted(stated))} MHz"


def watts_fit(problem: Problem, gpu: JudgedGpu) -> str | None:
    """idleW + sum of powerW x (clock / highest) ** powerExponent, all busy at once <= maxW, or its capW"""
    drawn = fsum([gpu.type.idle_w, *[watts(line, gpu) for line in gpu.residents], *[watts(j, gpu) for j in gpu.jobs]])
    if is_at_most(drawn, gpu.type.max_w):
        return None
    if gpu.node.caps_w and gpu.type.max_w < problem.gpu_types[gpu.node.gpu_type].max_w:
        return f"all busy draw {drawn:.6g} W, over the {gpu.type.max_w:g} W that its capW allows"
    return f"all busy draw {drawn:.6g} W, over the {gpu.type.max_w:g} W of a {gpu.type.name}"


RULES = (
    sm_fits,
    memory_fits,
    same_model_fits,
    clients_fit,
    jobs_fit,
    dedicated_alone,
    tenants_apart,
    clocks_agree,
    watts_fit,
    job_may_open,
    whole_alone,
)


def cpu_fits(problem: Problem, node: Node, gpus: Sequence[JudgedGpu]) -> str | None:
    """sum of cpuCores over the node's instances and jobs <= cpuCores of the node"""
    total = fsum([demand.cpu_cores for demand in demands_on(gpus)])
    return None if is_at_most(total, node.cpu_cores) else f"{total:.6g} CPU cores are used of {node.cpu_cores:g}"


def host_memory_fits(problem: Problem, node: Node, gpus: Sequence[JudgedGpu]) -> str | None:
    """sum of hostMemoryGib over the node's instances and jobs <= memoryGib of the node"""
    total = fsum([demand.host_memory_gib for demand in demands_on(gpus)])
    if is_at_most(total, node.host_memory_gib):
        return None
    return f"{total:.6g} GiB of host memory are used of {node.host_memory_gib:g}"


def demands_on(gpus: Sequence[JudgedGpu]) -> list[Demand]:
    """Returns what the instances and jobs on these GPUs of a node take of it; what runs on several GPUs once."""
    demands = [line.demand for gpu in gpus for line in gpu.residents if line.instance.gpu == gpu.index]
    return demands + [job.demand for gpu in gpus for job in gpu.jobs if job.placed.gpu == gpu.index]


NODE_RULES = (cpu_fits, host_memory_fits, job_may_open_node)
