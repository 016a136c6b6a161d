"""Judges a placement of jobs: its paces, its cost and the rules it breaks, in plain loops that no solver shares."""

from __future__ import annotations

from collections.abc import Sequence

from solvers.mudi.multiplexing.problem import MultiplexedJob, MultiplexingProblem
from solvers.planning.judge.readings import value_at

SLACK = 1e-9  # relative: the rounding of floats


def steps_per_second(problem: MultiplexingProblem, placed: Sequence[MultiplexedJob]) -> dict[str, float]:
    """Returns each job's pace next to all that share its GPU: their pressures add up (M7)."""
    gpus = {gpu.name: gpu for gpu in problem.gpus}
    jobs = {job.name: job for job in problem.jobs}
    paces = {}
    for mine in placed:
        gpu = gpus[mine.gpu]
        profile = jobs[mine.job].profiles[gpu.gpu_type]
        pressure = 0.0
        for service in gpu.services:
            pressure += service.pressure
        for other in placed:
            if other.gpu == mine.gpu and other.job != mine.job:
                pressure += value_at(jobs[other.job].profiles[gpu.gpu_type].demand.pressure, other.sm_percent)
        slowed = (1 + profile.demand.sensitivity * pressure) * (1 / gpu.clock) ** profile.demand.clock_exponent
        paces[mine.job] = value_at(profile.units_per_second, mine.sm_percent) / slowed
    return paces


def cost_seconds(problem: MultiplexingProblem, placed: Sequence[MultiplexedJob]) -> float:
    """Returns the sum of 1 / stepsPerSecond; a waiting job counts `waiting_seconds`."""
    total = sum(1 / pace for pace in steps_per_second(problem, placed).values())
    return total + problem.waiting_seconds * (len(problem.jobs) - len(placed))


def violations(problem: MultiplexingProblem, placed: Sequence[MultiplexedJob]) -> list[str]:
    """Returns a sentence for every broken rule."""
    found = []
    jobs = {job.name: job for job in problem.jobs}
    if len({entry.job for entry in placed}) < len(placed):
        found.append("a job runs twice")
    for gpu in problem.gpus:
        mine = [entry for entry in placed if entry.gpu == gpu.name]
        unprofiled = [each.job for each in mine if each.job not in jobs or gpu.gpu_type not in jobs[each.job].profiles]
        if unprofiled:
            found += [f"{gpu.name}: {name} has no profile on {gpu.gpu_type}" for name in unprofiled]
            continue
        if len(mine) > problem.jobs_per_gpu:
            found.append(f"{gpu.name}: {len(mine)} jobs; {problem.jobs_per_gpu} are allowed")
        spare = gpu.spare_sm_percent
        memory_gib = watts = pressure = 0.0
        for entry in mine:
            profile = jobs[entry.job].profiles[gpu.gpu_type]
            low, high = profile.units_per_second[0][0], profile.units_per_second[-1][0]
            part = min(spare // len(mine), high)
            if entry.sm_percent != part or part < low:
                even = f"its even part is {part} of {low}..{high}"
                found.append(f"{gpu.name}: {entry.job} has {entry.sm_percent} SM%; {even}")
            memory_gib += profile.memory_gib
            watts += value_at(profile.demand.power_w, entry.sm_percent) * gpu.clock**profile.demand.power_exponent
            pressure += value_at(profile.demand.pressure, entry.sm_percent)
        if memory_gib > gpu.free_memory_gib * (1 + SLACK):
            found.append(f"{gpu.name}: jobs use {memory_gib:g} GiB; {gpu.free_memory_gib:g} are free")
        if watts > gpu.free_w * (1 + SLACK):
            found.append(f"{gpu.name}: jobs draw {watts:g} W; {gpu.free_w:g} are free")
        for service in gpu.services:
            others = pressure + sum(other.pressure for other in gpu.services if other.name != service.name)
            if mine and others > service.bears + SLACK:
                limit = f"{service.name} tolerates a pressure of {service.bears:g}"
                found.append(f"{gpu.name}: {limit}; its neighbours cause {others:g}")
    known = {gpu.name for gpu in problem.gpus}
    found += [f"{entry.job} runs on the unknown {entry.gpu}" for entry in placed if entry.gpu not in known]
    return found
