"""Judges an answer: its power draw, its worth and the limits it breaks, in plain loops that no solver shares."""

from __future__ import annotations

from lab.morak.problem import PoweredSetting, PowerProblem
from solvers.planning.judge.readings import value_at

SLACK = 1e-9  # relative: the rounding of floats, never a watt


def execs_ms(problem: PowerProblem, setting: PoweredSetting) -> list[float]:
    """Returns the time of each resident's batch next to the others: Morak, L(b, f, p) x L_int(n)."""
    gpu = next(gpu for gpu in problem.gpus if gpu.name == setting.gpu)
    top = problem.gpu_types[gpu.gpu_type].top_clock_mhz
    models = {model.name: model for model in problem.models}
    found = []
    for me, resident in enumerate(setting.residents):
        profile = models[resident.model].profiles[gpu.gpu_type]
        pressure = 0.0
        for other, neighbour in enumerate(setting.residents):
            if other != me:
                demand = models[neighbour.model].profiles[gpu.gpu_type].demand
                pressure += value_at(demand.whole_pressure, neighbour.sm_percent)
        alone_ms = value_at(profile.latency_ms[resident.batch], resident.sm_percent)
        slowed = alone_ms * (1 + profile.demand.most_sensitivity * pressure)
        found.append(slowed * (top / setting.clock_mhz) ** profile.demand.clock_exponent)
    return found


def watts(problem: PowerProblem, setting: PoweredSetting) -> float:
    """Returns the watts that the GPU draws with all residents busy, including idle watts."""
    gpu = next(gpu for gpu in problem.gpus if gpu.name == setting.gpu)
    gpu_type = problem.gpu_types[gpu.gpu_type]
    models = {model.name: model for model in problem.models}
    total = gpu_type.idle_w
    for resident in setting.residents:
        demand = models[resident.model].profiles[gpu.gpu_type].demand
        clock = setting.clock_mhz / gpu_type.top_clock_mhz
        total += value_at(demand.power_w, resident.sm_percent) * clock**demand.power_exponent
    return total


def worth_per_second(problem: PowerProblem, settings: tuple[PoweredSetting, ...]) -> float:
    """Returns Morak's objective (1) with (2): the sum of batch / exec, each request by its model's weight."""
    weights = {model.name: model.weight for model in problem.models}
    total = 0.0
    for setting in settings:
        for resident, exec_ms in zip(setting.residents, execs_ms(problem, setting), strict=True):
            total += weights[resident.model] * resident.batch / exec_ms * 1000
    return total


def violations(problem: PowerProblem, settings: tuple[PoweredSetting, ...]) -> list[str]:
    """Returns a sentence for every broken limit."""
    found: list[str] = []
    gpus = {gpu.name: gpu for gpu in problem.gpus}
    models = {model.name: model for model in problem.models}
    if len({setting.gpu for setting in settings}) < len(settings):
        found.append("a GPU has two settings")
    drawn = sum(problem.gpu_types[gpu.gpu_type].idle_w for gpu in problem.gpus)
    for setting in settings:
        gpu = gpus[setting.gpu]
        gpu_type = problem.gpu_types[gpu.gpu_type]
        faults = shape_faults(problem, setting)
        found += [f"{setting.gpu}: {fault}" for fault in faults]
        if faults:
            continue
        for resident, exec_ms in zip(setting.residents, execs_ms(problem, setting), strict=True):
            limit = models[resident.model].limit_ms
            if exec_ms > limit * (1 + SLACK):
                found.append(f"{setting.gpu}: {resident.model} takes {exec_ms:g} ms; {limit:g} are allowed")
        power = watts(problem, setting)
        drawn += power - gpu_type.idle_w
        if power > problem.cap_w(gpu) * (1 + SLACK):
            found.append(f"{setting.gpu}: draws {power:g} W; its cap is {problem.cap_w(gpu):g} W")
    # Idle GPUs draw their watts in any case, so only an answer that runs something can exceed the budget.
    if problem.budget_w is not None and settings and drawn > problem.budget_w * (1 + SLACK):
        found.append(f"the fleet draws {drawn:g} W; its budget is {problem.budget_w:g} W")
    return found


def shape_faults(problem: PowerProblem, setting: PoweredSetting) -> list[str]:
    """Returns the faults of a setting that need no timing."""
    gpu = next(gpu for gpu in problem.gpus if gpu.name == setting.gpu)
    gpu_type = problem.gpu_types[gpu.gpu_type]
    models = {model.name: model for model in problem.models}
    found = []
    if setting.clock_mhz not in gpu_type.clocks_mhz:
        found.append(f"{setting.clock_mhz:g} MHz is not a clock of {gpu_type.name}")
    if not 1 <= len(setting.residents) <= problem.residents_per_gpu:
        found.append(f"{len(setting.residents)} residents; 1..{problem.residents_per_gpu} are allowed")
    memory_gib = 0.0
    for resident in setting.residents:
        model = models.get(resident.model)
        profile = model.profiles.get(gpu.gpu_type) if model else None
        if not model or not profile or resident.batch not in profile.latency_ms:
            found.append(f"{resident.model} at batch {resident.batch} was never measured on {gpu_type.name}")
            continue
        curve = profile.latency_ms[resident.batch]
        if not curve[0][0] <= resident.sm_percent <= curve[-1][0]:
            found.append(f"{resident.model} at batch {resident.batch} was never measured at {resident.sm_percent} SM%")
        if resident.sm_percent not in model.sm_percents.get(gpu.gpu_type, ()):
            found.append(f"{resident.sm_percent} SM% is not one of the shares of {resident.model}")
        if gpu.models is not None and resident.model not in gpu.models:
            found.append(f"{resident.model} is not admitted")
        memory_gib += profile.memory_gib[resident.batch]
    if memory_gib > gpu_type.memory_gib * (1 + SLACK):
        found.append(f"{memory_gib:g} GiB are used; the GPU has {gpu_type.memory_gib:g}")
    shares = sum(resident.sm_percent for resident in setting.residents)
    if shares > 100:
        found.append(f"{shares} SM% are assigned; a GPU has 100")
    return found
